"""Runs conformance cases and says which differ: `python tests/oracle/run_cases.py FILE... [options]`; see README.md.

The last line is `N passed, M failed`; before it stands the number of cases that were not run, by what they miss. Exits
with 1 when a case failed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.oracle.interpreter import case_runner, divergences, errors, kafka_faults, threads_host
from tests.oracle.interpreter.comparison import differences
from tests.oracle.interpreter.running_order import differences_of_order

Case = dict[str, Any]

_CHUNK = 40  # cases, at most, that one process runs over one broker, in one session of Spark


def read_cases(path: Path) -> Iterator[Case]:
    """Yield the cases of a file, one JSON object a line."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _all_differences(case: Case, expected: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    return differences(expected, actual)


class Outcome(NamedTuple):
    """A case, what is expected of it and what came out; of_kafka: whether Kafka's own answer is what is expected, or
    that of its driver with the commits of the host. unexplained: the differences that fail a case."""

    case: Case
    expected: dict[str, Any]
    actual: dict[str, Any]
    of_kafka: bool = True
    unexplained: Callable[[Case, dict[str, Any], dict[str, Any]], list[str]] = _all_differences


@dataclass
class Tally:
    """What became of the cases; prints each failure when it is noted. verbose: with all differences."""

    verbose: bool
    passed: int = 0
    by_commits: int = 0
    by_order: int = 0
    failed: int = 0
    divergent: int = 0
    not_run: int = 0
    missing: Counter[str] = field(default_factory=Counter)

    def note_not_run(self, missing: list[str]) -> None:
        """Count a case that was not run because of what it is `missing`."""
        self.not_run += 1
        self.missing.update(missing)

    def note_left_out(self, cases: int) -> None:
        """Count cases that could be run and are not in the sample."""
        self.not_run += cases
        self.missing["not in the sample"] += cases

    def note(self, outcome: Outcome) -> None:
        """Compare what came out of a case with what is expected, and count it."""
        case = outcome.case
        found = differences(outcome.expected, outcome.actual)
        if not found:
            self.passed += 1
            self.by_commits += not outcome.of_kafka
        elif divergences.diverges(case) or kafka_faults.explain(case):
            self.divergent += 1
        elif not (found := outcome.unexplained(case, outcome.expected, outcome.actual)):
            self.passed += 1
            self.by_order += 1
        else:
            self.failed += 1
            print(f"FAILED {case['id']}, {len(found)} differences", flush=True)
            if self.verbose:
                print("".join(f"    {line}\n" for line in found), end="", flush=True)

    def print_summary(self) -> None:
        """Print the counts; the last line is that of passed and failed cases."""
        if self.by_commits:
            print(f"{self.by_commits} as the test driver gives it with the commits of this host (epoch_driver.py)")
        if self.by_order:
            print(f"{self.by_order} differ from the test driver only as the order of tasks explains (running_order.py)")
        if self.divergent:
            print(f"{self.divergent} differ on purpose (DIVERGENCES.md)")
        print(f"{self.not_run} not run" + (", by what they miss (a case may miss several):" if self.missing else ""))
        for name, count in sorted(self.missing.items(), key=lambda item: (-item[1], item[0])):
            print(f"    {count:5} {name}")
        print(f"{self.passed} passed, {self.failed} failed")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _options(arguments)
    tally = Tally(options.verbose)
    written: dict[str, str] = {}
    cases = [case for path in options.files for case in read_cases(path)]
    by_host = {"driver": _run_on_test_driver, "threads": _run_on_threads, "threads-inline": _run_on_threads_inline}
    run = by_host.get(options.host, _run_on_spark)
    for outcome in run(cases, options, tally):
        tally.note(outcome)
        written[outcome.case["id"]] = json.dumps({**outcome.case, "expected": outcome.actual})
    if options.write is not None:
        lines = [written[case["id"]] for case in cases if case["id"] in written]
        options.write.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    tally.print_summary()
    return 1 if tally.failed else 0


def _run_on_test_driver(cases: list[Case], options: argparse.Namespace, tally: Tally) -> Iterator[Outcome]:
    for case in _runnable(cases, case_runner.missing, options.sample, tally):
        yield Outcome(case, case.get("expected", {}), case_runner.run(case, options.execution))


def _run_on_threads(cases: list[Case], options: argparse.Namespace, tally: Tally) -> Iterator[Outcome]:
    # Imported here, by name: only this needs a broker.
    threads_cases = import_module("tests.oracle.interpreter.threads_cases")
    with threads_cases.ThreadsCases(options.bootstrap_servers) as threads:
        for case in _runnable(cases, threads_cases.missing, options.sample, tally):
            expected = threads_host.comparable(case, case.get("expected", {}))
            actual = threads.run(case, options.execution)
            yield Outcome(case, expected, actual, unexplained=differences_of_order)


def _run_on_threads_inline(cases: list[Case], options: argparse.Namespace, tally: Tally) -> Iterator[Outcome]:
    def missing(case: Case) -> list[str]:
        lost = (
            ["what only memory holds, over restarts"] if options.restarts and threads_host.is_remembered(case) else []
        )
        return [*threads_host.missing(case), *lost]

    for case in _runnable(cases, missing, options.sample, tally):
        try:
            actual = threads_host.run(case, options.execution, options.restarts)
        except Exception as error:  # the other cases continue
            actual = {"error": errors.to_json("host", 0, error)}
        yield Outcome(case, threads_host.comparable(case, case.get("expected", {})), actual)


def _run_on_spark(cases: list[Case], options: argparse.Namespace, tally: Tally) -> Iterator[Outcome]:
    # Imported here, by name: only this needs Spark and a broker.
    spark_host = import_module("tests.oracle.interpreter.spark_host")
    runnable = _runnable(cases, lambda case: case_runner.missing(case) or spark_host.unfit(case), options.sample, tally)
    size = max(1, min(_CHUNK, -(-len(runnable) // options.jobs)))
    chunks = [runnable[start : start + size] for start in range(0, len(runnable), size)]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        run = partial(_run_chunk, options.host == "spark-inline", options.execution)
        for done, ended in enumerate(as_completed([pool.submit(run, chunk) for chunk in chunks]), 1):
            yield from ended.result()
            print(f"{min(done * size, len(runnable))} of {len(runnable)} cases have run", file=sys.stderr, flush=True)


def _run_chunk(inline: bool, execution: str, cases: list[Case]) -> list[Outcome]:
    spark_host = import_module("tests.oracle.interpreter.spark_host")
    with spark_host.SparkCases(inline) as spark:
        return [_outcome(spark_host, spark, case, execution) for case in cases]


def _outcome(spark_host: Any, spark: Any, case: Case, execution: str) -> Outcome:
    try:
        actual = spark.run(case, execution)
    except Exception as error:  # the other cases of a long run continue
        return Outcome(case, case.get("expected", {}), {"error": errors.to_json("host", 0, error)})
    expected, of_kafka = spark_host.expected(case, execution, actual)
    return Outcome(case, expected, actual, of_kafka)


def _runnable(cases: list[Case], missing: Callable[[Case], list[str]], sample: int | None, tally: Tally) -> list[Case]:
    """Return the cases that miss nothing, or a sample of them (the same each time); the others are counted."""
    runnable = []
    for case in cases:
        missed = missing(case)
        if missed:
            tally.note_not_run(missed)
        else:
            runnable.append(case)
    if sample is None or sample >= len(runnable):
        return runnable
    chosen = set(random.Random(0).sample(range(len(runnable)), sample))
    tally.note_left_out(len(runnable) - sample)
    return [case for index, case in enumerate(runnable) if index in chosen]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs conformance cases and says which differ.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="case files, one JSON object a line")
    hosts = ("driver", "spark", "spark-inline", "threads", "threads-inline")
    parser.add_argument("--host", choices=hosts, default="driver", help="where the topologies run")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes that run cases on Spark")
    parser.add_argument(
        "--execution", choices=("auto", "record"), default="auto", help="column by column, or record by record"
    )
    parser.add_argument(
        "--restarts", action="store_true", help="on threads-inline: restore the stores from changelogs at each step"
    )
    parser.add_argument("--bootstrap-servers", metavar="SERVERS", help="on threads: a broker that runs")
    parser.add_argument("--sample", type=int, metavar="N", help="run only N of the cases, the same N each time")
    parser.add_argument("--write", type=Path, metavar="OUT", help="write the cases that were run, with the results")
    parser.add_argument("--verbose", action="store_true", help="show each difference")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
