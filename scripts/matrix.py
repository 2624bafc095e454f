"""Runs the main cases on each Spark, Python and Kafka that Penstock supports, and prints the table of
docs/compatibility.md.

    python scripts/matrix.py [--spark 4.0.5,4.3.0] [--python 3.11] [--kafka 3.7.2] [--all]

By default each Spark and each Python runs on the newest Kafka, and the other Kafkas with the newest Spark on the oldest
Python; `--all` takes every combination. The output names each Python that is not on the path. Environments and jars
stay in the user's cache directory. The cases are tests of tests/host and tests/crash.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.support.kafka import cache_root

ROOT = Path(__file__).resolve().parent.parent
BROKER = ROOT / "packages" / "penstock-broker"

SPARKS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
KAFKAS = ("3.7.2", "3.9.1", "4.0.0", "4.1.1", "4.2.0", "4.3.0", "4.4.0")
PANDAS_2_ON = "3.11"
"""The Python with pandas 2; the others have pandas 3."""

CASES: Mapping[str, str] = {
    "word count, restarts": (
        "tests/host/test_topologies.py::test_counts_words_over_several_epochs_and_restarts[kafka-spark]"
    ),
    "joins, windows, restarts": (
        "tests/host/test_operators.py::test_tables_and_joins_end_with_what_the_test_driver_ends_with[kafka-spark]"
    ),
    "runs until closed, restart": (
        "tests/host/test_life.py::test_runs_until_closed_and_continues_where_it_stopped[kafka-spark]"
    ),
    "exactly once, killed": (
        "tests/crash/test_kills.py::test_a_killed_application_continues_as_if_nothing_had_happened"
        "[sample-of-worker-and-driver]"
    ),
}
"""What a column shows -> its test."""

_TEST_PACKAGES = ("hypothesis", "packaging", "pytest", "pytest-timeout", "pytest-xdist")
_CRASH_SEED = "1"
_RUN_SECONDS = 1800


class Combination(NamedTuple):
    """One row of the table."""

    spark: str
    python: str
    kafka: str


def combinations(
    sparks: Sequence[str], pythons: Sequence[str], kafkas: Sequence[str], everything: bool
) -> Iterator[Combination]:
    """Yield the rows; not `everything`: each Spark and Python on the last Kafka, each other Kafka on the last Spark and
    the first Python."""
    for spark, python, kafka in itertools.product(sparks, pythons, kafkas):
        if everything or kafka == kafkas[-1] or (spark, python) == (sparks[-1], pythons[0]):
            yield Combination(spark, python, kafka)


def interpreter(version: str) -> str | None:
    """Return the Python of `version` (3.11) on the path, None where there is none that runs."""
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    ran = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return found if ran.returncode == 0 and f" {version}." in ran.stdout else None


def environment(spark: str, python: str) -> Path:
    """Return the Python of a virtual environment with the packages that Penstock needs, pyspark `spark` and what the
    tests need; made the first time."""
    directory = cache_root() / f"matrix-spark-{spark}-python-{python}"
    executable, stamp = directory / "bin" / "python", directory / "complete"
    if not stamp.exists():
        base = interpreter(python)
        assert base is not None, f"python{python} was looked for before"
        projects = [tomllib.loads((path / "pyproject.toml").read_text())["project"] for path in (ROOT, BROKER)]
        needed = {each for project in projects for each in project["dependencies"] if "penstock" not in each}
        pandas = "pandas>=2.2,<3" if python == PANDAS_2_ON else "pandas>=3,<4"
        subprocess.run([base, "-m", "venv", "--clear", str(directory)], check=True)
        install = [str(executable), "-m", "pip", "install", "--quiet", "--use-pep517", f"pyspark=={spark}", pandas]
        subprocess.run([*install, *sorted(needed), *_TEST_PACKAGES], check=True)
        stamp.touch()
    return executable


def run(combination: Combination) -> dict[str, str]:
    """Return the result of each case of `combination`: ok, or what the test ended with."""
    python = environment(combination.spark, combination.python)
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        subprocess.run(
            [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *CASES.values()],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(str(project / "src") for project in (ROOT, BROKER)),
                "PENSTOCK_KAFKA_VERSION": combination.kafka,
                "PENSTOCK_REQUIRE_KAFKA": "1",
                "PENSTOCK_CRASH_SEED": _CRASH_SEED,
            },
            stdout=sys.stderr,
            timeout=_RUN_SECONDS,
            check=False,
        )
        results = results_of(report) if report.exists() else {}
    return {title: results.get(test.rpartition("::")[2], "did not run") for title, test in CASES.items()}


def results_of(report: Path) -> dict[str, str]:
    """Return the outcome of each test of a report of pytest by its name."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.attrib["name"]] = ", ".join(problems) or "ok"
    return found


def main() -> int:
    """Run and print; return 1 where a case failed."""
    parser = argparse.ArgumentParser(description="Run the main cases on each Spark, Python and Kafka.")
    parser.add_argument("--spark", default=",".join(SPARKS), help="versions of pyspark, oldest first")
    parser.add_argument("--python", default=",".join(PYTHONS), help="versions of Python, oldest first")
    parser.add_argument("--kafka", default=",".join(KAFKAS), help="versions of Kafka, oldest first")
    parser.add_argument("--all", action="store_true", help="run every combination")
    arguments = parser.parse_args()
    pythons = [version for version in arguments.python.split(",") if interpreter(version) is not None]
    for version in sorted({*arguments.python.split(",")} - {*pythons}):
        print(f"Python {version} is not on this machine, and is not covered.", file=sys.stderr)
    print(f"| Spark | Python | pandas | Kafka | {' | '.join(CASES)} |")
    print("|" + "---|" * (4 + len(CASES)))
    failed = False
    rows = combinations(arguments.spark.split(","), pythons, arguments.kafka.split(","), arguments.all)
    for combination in rows:
        results = run(combination)
        failed = failed or any(result != "ok" for result in results.values())
        pandas = "2" if combination.python == PANDAS_2_ON else "3"
        cells = (combination.spark, combination.python, pandas, combination.kafka, *results.values())
        print(f"| {' | '.join(cells)} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
