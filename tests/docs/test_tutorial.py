"""The tutorial: its steps print what it shows, its program runs on a broker, and its test passes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import EmbeddedBroker
from tests.docs.pages import ROOT, blocks, command_lines, printed, run_and_compare
from tests.support.commands import Command, Run
from tests.support.waiting import until

PAGE = "docs/tutorial.md"
STEPS, PROGRAM, QUERY, TEST = range(4), 4, 5, 6
"""The Python blocks of the page."""
ADDRESS = "localhost:9092"
"""The broker of the page."""


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a broker, where the commands of this process find it instead of at ADDRESS."""
    with EmbeddedBroker() as broker:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        yield broker.bootstrap_servers


def write_program(directory: Path, servers: str = ADDRESS, main: str | None = None) -> Path:
    """Write shop.py for a broker, with `main` instead of its last lines if it is given."""
    program = blocks(PAGE)[PROGRAM].lstrip().replace(ADDRESS, servers)
    if main is not None:
        program = program.partition("if __name__")[0] + main.lstrip()
    path = directory / "shop.py"
    path.write_text(program)
    return path


def test_the_steps_print_what_the_page_shows() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for number in STEPS:
        run_and_compare(PAGE, number, names)


def test_the_picture_is_that_of_the_program() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    run_and_compare(PAGE, PROGRAM, names)
    picture = ROOT / "docs" / "images" / "shop.svg"
    assert names["topology"].describe().to_svg() == picture.read_text(encoding="utf-8"), (
        "penstock describe shop.py -f svg"
    )


@pytest.mark.slow
def test_the_program_on_a_broker(kafka: str, penstock_here: Run, tmp_path: Path) -> None:
    environment = {"PENSTOCK_STATE_DIR": str(tmp_path / "state")}
    program = write_program(tmp_path, kafka)
    lines = list(command_lines(PAGE))
    for line in lines:
        if line.startswith("penstock topics create"):
            assert penstock_here(*shlex.split(line)[1:]).code == 0
    assert f"penstock run {program.name}" in lines
    with Command(("run", str(program)), tmp_path, environment) as running:
        assert until(lambda: ": exactly once; broker" in running.output()), running.output()
        for line in lines:
            if line.startswith("echo "):
                echo, _, produce = line.partition(" | ")
                written = penstock_here(*shlex.split(produce)[1:], standard_input=shlex.split(echo)[1] + "\n")
                assert written.code == 0, written.err
        consume = next(line for line in lines if line.startswith("penstock consume"))
        consumed = penstock_here(*shlex.split(consume)[1:])
        assert consumed.out == printed(PAGE, consume)
        running.interrupt()
        assert running.nothing_left()
    asked = write_program(tmp_path, kafka, blocks(PAGE)[QUERY])
    with Command((), tmp_path, environment, program=(str(asked),)) as asking:
        ended = asking.ended()
    assert ended.code == 0, ended.err
    assert ended.out == printed(PAGE, next(line for line in lines if line.endswith(f"python {asked.name}")))


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    write_program(tmp_path)
    (tmp_path / "test_shop.py").write_text(blocks(PAGE)[TEST].lstrip())
    arguments = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."]
    ended = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout
