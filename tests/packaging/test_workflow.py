"""The workflow of the public CI runs .ci/run, and elsewhere only parts of it, with its settings and its targets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
JOBS: dict[str, Any] = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
RUN = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def commands(job: str) -> list[dict[str, Any]]:
    """Return the steps of a job that run a command."""
    return [step for step in JOBS[job]["steps"] if "run" in step]


def python_versions(job: str) -> set[str]:
    """Return the versions of Python that a job runs on."""
    [setup] = [step["with"] for step in JOBS[job]["steps"] if "setup-python" in step.get("uses", "")]
    matrix = JOBS[job].get("strategy", {}).get("matrix", {})
    return set(matrix.get("python", [setup["python-version"]]))


def test_linux_runs_what_a_change_must_pass() -> None:
    assert [step["run"] for step in commands("linux")] == [".ci/run"]
    assert JOBS["linux"]["runs-on"].startswith("ubuntu")
    assert re.search(r"^ci:.*\n\t@?exec \./\.ci/run$", MAKEFILE, re.MULTILINE), "make ci is the same"


@pytest.mark.parametrize("job", [job for job in JOBS if job != "linux"])
def test_another_job_runs_a_part_of_it_with_its_settings(job: str) -> None:
    of_ci = {"quick", *re.findall(r"^make ([\w-]+)$", RUN, re.MULTILINE)}
    settings = set(re.findall(r"\b(PENSTOCK_\w+=\w+)", RUN))
    for step in commands(job):
        [target] = re.findall(r"^make ([\w-]+)", step["run"])
        assert target in of_ci
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
        assert {f"{name}={value}" for name, value in step["env"].items()} <= settings


def test_the_systems_and_versions_are_those_that_the_distributions_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    assert python_versions("quick") == named
    lowest = project["requires-python"].removeprefix(">=")
    assert all(python_versions(job) == {lowest} for job in JOBS if job != "quick")
    assert "Operating System :: MacOS" in project["classifiers"]
    assert any(job["runs-on"].startswith("macos") for job in JOBS.values())


def test_the_lowest_versions_have_a_job() -> None:
    [step] = commands("lowest-versions")
    assert (ROOT / step["run"].partition("ARGS=")[2]).is_file()


def test_the_forms_of_issues_can_be_read() -> None:
    forms = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        assert all(part["type"] == "markdown" or part["id"] for part in form["body"])
