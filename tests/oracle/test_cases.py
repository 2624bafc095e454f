"""Every public conformance case, in both executions, on the test driver."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.oracle.interpreter import case_runner, divergences, kafka_faults
from tests.oracle.interpreter.comparison import differences, normalised_description
from tests.oracle.run_cases import Case, main, read_cases

CASES = Path(__file__).parent / "cases"
FAMILIES = sorted(path.stem for path in CASES.glob("*.jsonl"))
EXECUTIONS = ("auto", "record")

# How many cases of each family must really have been run, all but those that differ on purpose: a family that silently
# shrinks is a failure. Where Kafka's fault can be simulated, its answer is compared with the fault.
LEAST_RUN = {
    "aggregate": 61,
    "calendar_windows": 20,
    "cogroup": 61,
    "composite": 11,
    "emit_final": 134,
    "errors": 82,
    "foreign_key_join": 56,
    "handlers": 112,
    "headers": 73,
    "naming": 139,
    "optimisation": 135,
    "processor": 78,
    "record_context": 219,
    "session_windows": 67,
    "sliding_windows": 57,
    "stateless": 96,
    "store_format": 30,
    "stores": 31,
    "stream_global_join": 35,
    "stream_stream_join": 115,
    "stream_table_join": 45,
    "suppress": 90,
    "table_aggregate": 38,
    "table_table_join": 72,
    "tables": 56,
    "time_windows": 97,
    "timestamps": 24,
    "topology": 72,
}

DIVERGENT = [
    case
    for family in FAMILIES
    for case in read_cases(CASES / f"{family}.jsonl")
    if divergences.diverges(case) and not case_runner.missing(case)
]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=pytest.mark.family(family, "test driver")) for family in FAMILIES]
)
def test_family_gives_what_kafka_streams_gives(family: str, execution: str) -> None:
    run = 0
    failed: dict[str, list[str]] = {}
    for case in read_cases(CASES / f"{family}.jsonl"):
        simulated = kafka_faults.is_simulated(case)
        if case_runner.missing(case) or (divergences.diverges(case) and not simulated):
            continue
        run += 1
        with kafka_faults.as_kafka_does() if simulated else nullcontext():
            found = differences(case["expected"], case_runner.run(case, execution))
        if found:
            failed[case["id"]] = found
    assert not failed, "\n".join(f"{id}:\n    " + "\n    ".join(lines[:5]) for id, lines in failed.items())
    assert run >= LEAST_RUN[family]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in DIVERGENT])
@pytest.mark.xfail(strict=True, reason="differs on purpose: DIVERGENCES.md")
def test_case_that_differs_on_purpose(case: Case, execution: str) -> None:
    assert differences(case["expected"], case_runner.run(case, execution)) == []


def test_a_fault_of_kafka_is_told_from_other_differences() -> None:
    case = next(case for case in DIVERGENT if kafka_faults.is_simulated(case))
    assert kafka_faults.explain(case)
    expected = {**case["expected"], "steps": [*case["expected"]["steps"], []]}
    assert not kafka_faults.explain({**case, "expected": expected})


def test_every_family_has_its_cases() -> None:
    assert sorted(LEAST_RUN) == FAMILIES


def test_every_divergence_has_a_case() -> None:
    assert len(DIVERGENT) >= 3


def test_the_command_counts_says_what_differs_and_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (CASES / "stateless.jsonl").read_text().splitlines()
    right = next(line for line in lines if '"stateless-filter-contains"' in line)
    wrong = right.replace('"out","a","x",10', '"out","a","y",10').replace("stateless-filter-contains", "wrong")
    unknown = right.replace('"op":"filter"', '"op":"tilt"')
    file, written = tmp_path / "cases.jsonl", tmp_path / "written.jsonl"
    file.write_text("\n".join([right, wrong, unknown]) + "\n")
    assert main([str(file), "--verbose", "--write", str(written)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "1 passed, 1 failed"
    assert "1 not run, by what they miss (a case may miss several):" in printed
    assert any(line.split() == ["1", "KStream.tilt"] for line in printed)
    assert any('expected [["out", "a", "y", 10' in line and 'got [["out", "a", "x", 10' in line for line in printed)
    first = next(read_cases(written))
    assert differences(first["expected"], next(read_cases(file))["expected"]) == []


def test_lists_of_names_are_sorted_in_descriptions() -> None:
    text = "  Processor: b (stores: [z, a])\n      --> d, c\n      <-- none\n"
    assert normalised_description(text) == "  Processor: b (stores: [a, z])\n      --> c, d\n      <-- none\n"
