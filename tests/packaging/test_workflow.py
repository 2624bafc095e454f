"""The workflow of the public CI runs .ci/run, and elsewhere only parts of it, with its settings and its targets."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"


def jobs(workflow: str) -> dict[str, Any]:
    """Return the jobs of a workflow."""
    found: dict[str, Any] = yaml.safe_load((GITHUB / "workflows" / workflow).read_text(encoding="utf-8"))["jobs"]
    return found


JOBS = jobs("ci.yml")
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


def test_a_change_must_pass_tests_lint_and_documentation() -> None:
    assert set(re.findall(r"^ *(?:nice )?make ([\w-]+)$", RUN, re.MULTILINE)) == {"test", "test-slow", "lint", "docs"}


@pytest.mark.parametrize("failing", ["bootstrap", "test", "test-slow", "lint", "docs"])
def test_one_part_that_fails_fails_the_run_and_is_shown(failing: str, tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    (tmp_path / ".ci").mkdir()
    (tmp_path / "scripts").mkdir()
    commands.mkdir()
    (tmp_path / ".ci" / "run").write_text(RUN, encoding="utf-8")
    written = {
        tmp_path / "scripts" / "bootstrap.sh": f'echo "output of bootstrap"; [ bootstrap != {failing} ]',
        commands / "make": f'echo "output of $1"; [ "$1" != {failing} ]',
        **dict.fromkeys((commands / name for name in ("chromium", "kcat")), "exit 0"),
    }
    for path, line in written.items():
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode != 0
    assert f"output of {failing}\n" in ended.stdout


@pytest.mark.parametrize("job", [job for job in JOBS if job != "linux"])
def test_another_job_runs_a_part_of_it_with_its_settings(job: str) -> None:
    of_ci = {"quick", *re.findall(r"^make ([\w-]+)$", RUN, re.MULTILINE)}
    settings = set(re.findall(r"\b(PENSTOCK_\w+=\w+)", RUN))
    for step in commands(job):
        [target] = re.findall(r"^make ([\w-]+)", step["run"])
        assert target in of_ci
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
        assert {f"{name}={value}" for name, value in step["env"].items()} <= settings


def test_each_week_draws_many_more_examples_by_another_seed() -> None:
    [step] = [step for step in jobs("examples.yml")["examples"]["steps"] if "run" in step]
    assert re.fullmatch(r"make test ARGS=--hypothesis-seed=\$\{\{ github\.run_number \}\}", step["run"])
    [usual] = re.findall(r"PENSTOCK_EXAMPLES=\$\(or \$\(PENSTOCK_EXAMPLES\),(\d+)\)", MAKEFILE)
    assert "PENSTOCK_EXAMPLES=" not in RUN
    assert int(step["env"]["PENSTOCK_EXAMPLES"]) >= 20 * int(usual)
    assert "PENSTOCK_FIXED_SEEDS" not in step["env"]


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
