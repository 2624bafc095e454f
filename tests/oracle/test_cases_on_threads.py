"""Every public conformance case on the core of the threads host, most of them with the slow tests; and a share of them
record by record, and, with the slow tests, with stores that are restored from their changelog topics at each step.
`run_cases.py --host threads-inline` runs all of them so.

A seeded sample runs on the host itself, with its threads and clients, on each broker; `--host threads` runs all.

`answers_of_running_threads.json` has the answers of running threads of Kafka Streams 4.4 on a Kafka 4.3, with a commit
after each record: ids of cases that they answer as the test driver does, and the steps of the others. A case is not
among them if the wall clock decides it, or if two repartition topics of one task get records of one time: then the one
that arrives first decides.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path

import pytest

from tests.oracle.interpreter import divergences, threads_cases, threads_host
from tests.oracle.interpreter.comparison import differences
from tests.oracle.interpreter.running_order import differences_of_order
from tests.oracle.run_cases import Case, main, read_cases
from tests.support.brokers import RunningBroker

CASES = Path(__file__).parent / "cases"
FAMILIES = sorted(path.stem for path in CASES.glob("*.jsonl"))

SAMPLE = random.Random(1).sample(FAMILIES, 6)
"""The families of which a case runs on a running instance."""

LEAST_RUN, LEAST_RESTARTED = 1949, 1462
"""Cases that must really have been run: a family that silently shrinks is a failure."""

THROUGH_TOPICS = frozenset(
    ("timestamps-zero-through_a_topic", "timestamps-equal-in_two_topics", "timestamps-equal-in_a_join")
)
"""Cases whose result depends on what a topic of a broker does."""

ANSWERS = json.loads((Path(__file__).parent / "answers_of_running_threads.json").read_text())
"""The answers of running threads of Kafka Streams."""

LEAST_ANSWERED = 135
"""Cases that Kafka's threads must have answered."""

_PARTS = 6
"""The cases of a family are run in so many parts, all but the first one with the slow tests."""

_SHARE = 4
"""One of so many cases runs record by record, half of these with the slow tests, as all do on the test driver; and one
with restarts, which cost a restore for each step."""


def cases_of(family: str) -> list[Case]:
    """Return the cases of a family that can be compared on this host."""
    cases = read_cases(CASES / f"{family}.jsonl")
    return [case for case in cases if not threads_host.missing(case) and not divergences.diverges(case)]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, _PARTS))])
@pytest.mark.parametrize("family", FAMILIES)
def test_family_gives_what_kafka_streams_gives(family: str, part: int) -> None:
    check(cases_of(family)[part::_PARTS], "auto", restarts=False)


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_family_gives_the_same_record_by_record(family: str, half: int) -> None:
    check(cases_of(family)[1::_SHARE][half::2], "record", restarts=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_family_goes_on_from_changelogs_and_committed_offsets(family: str) -> None:
    cases = [case for case in cases_of(family) if not threads_host.is_remembered(case)]
    check(cases[::_SHARE], "auto", restarts=True)


def check(cases: list[Case], execution: str, restarts: bool) -> None:
    """Run `cases` and compare."""
    failed: dict[str, list[str]] = {}
    for case in cases:
        expected = threads_host.comparable(case, case["expected"])
        found = differences(expected, threads_host.run(case, execution, restarts))
        if found:
            failed[case["id"]] = found
    assert not failed, "\n".join(f"{id}:\n    " + "\n    ".join(lines[:5]) for id, lines in failed.items())


def chosen(family: str) -> Case:
    """Return one of the shortest cases of a family that write something or fail on their way, the same each time."""
    fit = [case for case in cases_of(family) if not threads_cases.missing(case)]
    shown = [case for case in fit if any(case["expected"].get("steps", []))] or fit
    shown.sort(key=lambda case: (len(case.get("steps", [])), case["id"]))
    return random.Random(family).choice(shown[: len(shown) // 8 + 1])


@pytest.fixture(scope="module")
def running(broker: RunningBroker) -> Iterator[threads_cases.ThreadsCases]:
    # The embedded broker of the session makes topics on demand: a client of another test may make that of a case again.
    with threads_cases.ThreadsCases(broker.bootstrap_servers if broker.kind == "kafka" else None) as cases:
        yield cases


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("family", SAMPLE)
def test_case_on_a_running_instance_gives_what_kafka_streams_gives(
    running: threads_cases.ThreadsCases, family: str, execution: str
) -> None:
    case = chosen(family)
    assert differences(threads_host.comparable(case, case["expected"]), running.run(case, execution)) == []


@pytest.mark.parametrize(
    "case", [case for case in cases_of("timestamps") if case["id"] in THROUGH_TOPICS], ids=itemgetter("id")
)
def test_times_are_those_of_kafka_streams_after_a_topic(running: threads_cases.ThreadsCases, case: Case) -> None:
    assert differences(threads_host.comparable(case, case["expected"]), running.run(case, "auto")) == []


@cache
def answered() -> list[Case]:
    """Return the cases that running threads of Kafka Streams have answered, with their answers."""
    found, as_on_the_driver = [], set(ANSWERS["as_on_the_driver"])
    for family in FAMILIES:
        for case in read_cases(CASES / f"{family}.jsonl"):
            if case["id"] in as_on_the_driver:
                found.append(case)
            elif (steps := ANSWERS["otherwise"].get(case["id"])) is not None:
                found.append({**case, "expected": {**case["expected"], "steps": steps}})
    return found


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 8))])
def test_running_threads_give_what_those_of_kafka_streams_give(running: threads_cases.ThreadsCases, part: int) -> None:
    failed: dict[str, list[str]] = {}
    for case in answered()[part::8]:
        expected, actual = threads_host.comparable(case, case["expected"]), running.run(case, "auto")
        if found := differences_of_order(case, expected, actual):
            failed[case["id"]] = found
    assert not failed, failed


def test_the_rule_lets_those_of_kafka_streams_pass() -> None:
    cases = answered()
    assert len(cases) >= LEAST_ANSWERED
    driver = {case["id"]: case["expected"] for family in FAMILIES for case in cases_of(family)}
    for case in cases:
        if case["id"] in driver:  # else `_UNFIT` in threads_host says why it is not compared with the driver
            expected, answer = (threads_host.comparable(case, each) for each in (driver[case["id"]], case["expected"]))
            assert differences_of_order(case, expected, answer) == []


def test_the_families_have_their_cases() -> None:
    cases = [case for family in FAMILIES for case in cases_of(family)]
    assert len(cases) >= LEAST_RUN
    assert sum(not threads_host.is_remembered(case) for case in cases) >= LEAST_RESTARTED


def test_the_command_runs_cases_on_this_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (CASES / "aggregate.jsonl").read_text().splitlines()[:3]
    remembered = next(case for family in FAMILIES for case in cases_of(family) if threads_host.is_remembered(case))
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join([*lines, json.dumps(remembered)]) + "\n")
    assert main([str(file), "--host", "threads-inline", "--restarts"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split() for line in shown if "memory" in line] == [
        ["1", "what", "only", "memory", "holds,", "over", "restarts"]
    ]
    assert shown[-1] == "3 passed, 0 failed"
