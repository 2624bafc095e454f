"""The oldest Spark that the extra `spark` takes runs a word count, joins, windows and restarts, as the newest does."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

from tests.support.other_spark import environment, require_spark

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
OLDEST = "4.0.0"

CASES = (
    "tests/host/test_operators.py::test_tables_and_joins_end_with_what_the_test_driver_ends_with[embedded-spark]",
    "tests/host/test_life.py::test_runs_until_closed_and_continues_where_it_stopped[embedded-spark]",
    "tests/host/test_tables.py::test_libraries_of_data_frames_read_the_table_of_a_store[embedded-spark]",
    "tests/host/spark/test_versions.py::test_the_installed_spark_has_what_its_version_says",
)


@pytest.mark.timeout(1800)  # the first time it is downloaded
@pytest.mark.xdist_group("oldest-spark")
def test_the_oldest_spark_runs_a_word_count_joins_windows_and_restarts() -> None:
    surroundings = environment(require_spark(OLDEST))
    command = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    found = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True).stdout
    assert found.strip() == OLDEST
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CASES],
        cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert f"{len(CASES)} passed" in ran.stdout


def test_the_oldest_spark_is_the_least_that_the_extra_takes() -> None:
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    [accepted] = [each.specifier for each in map(Requirement, lines) if each.name == "pyspark"]
    assert accepted.contains(OLDEST)
    assert not accepted.contains(f"{OLDEST}.dev1", prereleases=True)
    assert accepted.contains(pyspark.__version__)
