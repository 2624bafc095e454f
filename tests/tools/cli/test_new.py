"""`penstock new`: the project that it makes passes its test, runs, and is written over nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.tools.cli.main import command
from penstock.tools.cli.program import load_program
from penstock_broker.process import BrokerProcess
from tests.support.commands import Command, Run, penstock


@pytest.fixture
def project(penstock_here: Run, tmp_path: Path) -> Path:
    directory = tmp_path / "order-totals"
    assert penstock_here("new", str(directory)).code == 0
    return directory


def test_the_files_of_a_project(penstock_here: Run, tmp_path: Path) -> None:
    directory = tmp_path / "order-totals"
    ended = penstock_here("new", str(directory), "--host", "spark", "--json")
    answer = json.loads(ended.out)
    written = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    assert answer == {"directory": str(directory), "files": answer["files"]}
    assert sorted(answer["files"]) == written
    assert {"order_totals.py", "tests/test_order_totals.py", "compose.yaml"} <= set(written)
    assert load_program(directory / "order_totals.py").configured({})["penstock.host"] == "spark"
    described = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    assert described["name"] == "order-totals"
    assert described["dependencies"][0].startswith("penstock-streams[spark]>=")


def test_its_test_passes_and_it_is_formatted(project: Path) -> None:
    command_line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(command_line, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
    for tool in (("format", "--check"), ("check", "--select", "E,F,I,UP,B")):
        ruff = [sys.executable, "-m", "ruff", *tool, "--no-cache", "--line-length", "120", "."]
        checked = subprocess.run(ruff, cwd=project, capture_output=True, text=True, timeout=120, check=False)
        assert checked.returncode == 0, checked.stdout


def test_it_can_be_installed_where_penstock_is(project: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-build-isolation", "-e", ".[dev]"]
    ended = subprocess.run(pip, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Would install order-totals-0.1.0" in ended.stdout


def test_its_program_runs(project: Path, penstock_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("-c", f"state.dir={tmp_path / 'state'}")
    with BrokerProcess(tmp_path / "broker") as broker:  # its own, for the names of the topics are given
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        assert penstock_here("topics", "create", "orders", "totals").code == 0
        order = json.dumps({"customer": "ada", "amount": 3})
        penstock_here("produce", "orders", "--value-serde", "json", standard_input=order)
        servers = {"PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
        ended = penstock(project, "run", "order_totals.py", "--until-end", *settings, **servers)
        assert ended.code == 0, ended.err
        totals = ("consume", "totals", "--from-beginning", "--value-serde", "double", "--max-messages", "1")
        assert penstock_here(*totals).out == "ada\t3.0\n"


@pytest.mark.slow
def test_its_readme_runs_as_it_stands(project: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (project / "README.md").read_text(), re.DOTALL)
    _, (run_line,), (produce, consume, query), on_kafka = (block.splitlines() for block in blocks)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def shell(line: str) -> str:
        ended = subprocess.run(
            line, shell=True, cwd=project, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    with BrokerProcess(tmp_path / "broker") as broker:
        own = {
            "PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "PENSTOCK_STATE_DIR": str(tmp_path / "state"),
            "PENSTOCK_COMMIT_INTERVAL_MS": "200",
        }
        environment = {**os.environ, **own, "PATH": path}
        shell(next(line for line in on_kafka if "topics create" in line))
        with Command(shlex.split(run_line)[1:], project, own):
            shell(produce)
            assert shell(consume) == "ada\t3.0\n"
            assert shell(query) == "ada\t3.0\n"
        assert "nothing changes" in shell("penstock diff order_totals.py")


def test_the_commands_of_its_readme_are_understood(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    lines = re.findall(r"^(?:.* \| )?penstock (.*)$", (project / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 6
    for line in lines:
        name, *arguments = shlex.split(line)
        assert command(name).make_context(name, arguments)


def test_nothing_is_written_over(project: Path, penstock_here: Run) -> None:
    before = {path: path.read_text() for path in project.rglob("*") if path.is_file()}
    ended = penstock_here("new", str(project))
    assert (ended.code, "exists already" in ended.err) == (1, True)
    assert {path: path.read_text() for path in project.rglob("*") if path.is_file()} == before
    (project.parent / "empty").mkdir()
    assert penstock_here("new", str(project.parent / "empty")).code == 0


@pytest.mark.parametrize("name", ["Orders", "my_app", "1st", "json", "class", "penstock", "tests", "a--b", ""])
def test_names_that_cannot_be_those_of_modules_are_refused(penstock_here: Run, tmp_path: Path, name: str) -> None:
    ended = penstock_here("new", str(tmp_path / name) if name else "/")
    assert ended.code == 1
    assert "cannot be the name of a project" in ended.err
    assert list(tmp_path.iterdir()) == []
