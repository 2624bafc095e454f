"""A program that runs is compared with its files as they are saved now."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StreamsError
from penstock.tools.cli import program_process, saved_program
from penstock.tools.cli.program import ProgramError, load_program
from penstock.tools.cli.program_process import Order, ProgramAnswer, ProgramProcess
from penstock.tools.cli.saved_program import SavedProgram

PROGRAM = """
from penstock import Materialized, Serdes, StreamsBuilder
from helper_of_saved_program import STORES

config = {
    "application.id": "app",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
    "penstock.host": "threads",
}
print("loaded")
builder = StreamsBuilder()
words = builder.stream("in").group_by_key()
for store in STORES:
    words.count(Materialized.as_(store))
topology = builder.build()
"""
HELPER = "STORES = ['counts']\n"


class Saved:
    """A program of two files that runs."""

    def __init__(self, directory: Path) -> None:
        self.file, self.helper = directory / "program.py", directory / "helper_of_saved_program.py"
        self.file.write_text(PROGRAM)
        self.helper.write_text(HELPER)
        program = load_program(self.file)
        self.program = SavedProgram(program, {}, program.configured({}))

    def compare(self) -> list[str]:
        return list(self.program.compare().lines)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[ProgramProcess]:
    """The processes that were started."""
    started: list[ProgramProcess] = []

    class Counted(ProgramProcess):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(saved_program, "ProgramProcess", Counted)
    return started


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Saved]:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # which load_program changes
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Saved(tmp_path)
    monkeypatch.delitem(sys.modules, "helper_of_saved_program")


def test_a_program_is_loaded_once_for_each_time_that_it_is_saved(
    saved: Saved, starts: list[ProgramProcess], capfd: pytest.CaptureFixture[str]
) -> None:
    assert saved.program.compare().what.endswith("program.py has not changed since the start.")
    assert starts == []
    capfd.readouterr()
    saved.helper.write_text(HELPER.replace("]", ", 'more']"))
    assert saved.program.compare().what.endswith("program.py was saved since the start.")
    assert saved.compare()[:2] == ["store counts keeps its state", "store more is new and starts empty"]
    assert len(starts) == 1
    assert all(process.ended() is not None for process in starts)
    printed = capfd.readouterr()
    assert printed.out == ""  # the lines that a program prints are no output of the command
    assert printed.err.splitlines().count("loaded") == 1  # librdkafka's threads may log there, too
    saved.helper.write_text(HELPER + "# as before\n")
    assert saved.compare() == saved.compare() == []
    assert len(starts) == 2


def test_a_program_that_cannot_be_loaded_is_an_error(saved: Saved, starts: list[ProgramProcess]) -> None:
    saved.file.write_text("topology = (\n")
    for _ in range(2):
        with pytest.raises(ProgramError, match=r"program\.py was saved since the start, and cannot be .*Syntax"):
            saved.compare()
    assert len(starts) == 1
    saved.file.unlink()
    with pytest.raises(ProgramError, match="There is no file"):
        saved.compare()


def test_a_program_that_does_not_end_loading_is_killed(
    saved: Saved, starts: list[ProgramProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_process, "_LOAD_SECONDS", 0.1)
    monkeypatch.setattr(saved_program, "_END_SECONDS", 0.1)
    saved.file.write_text("import threading\nthreading.Event().wait()\n")
    with pytest.raises(ProgramError, match=r"it did not finish loading within 0 s"):
        saved.compare()
    assert starts[0].ended() == -9


@pytest.mark.slow
def test_modules_that_only_the_saved_program_imports_count(
    saved: Saved, starts: list[ProgramProcess], tmp_path: Path
) -> None:
    added = tmp_path / "added_to_saved_program.py"
    added.write_text("1 / 0\n")
    saved.file.write_text("import added_to_saved_program\n" + PROGRAM)
    for _ in range(2):
        with pytest.raises(ProgramError, match="ZeroDivisionError"):
            saved.compare()
    added.write_text("(\n")
    with pytest.raises(ProgramError, match="SyntaxError"):
        saved.compare()
    added.write_text("# works\n")
    assert saved.compare() == saved.compare() == []
    assert len(starts) == 3
    added.write_text("raise ValueError('no more')\n")
    with pytest.raises(ProgramError, match="no more"):
        saved.compare()


def test_a_change_while_a_program_is_loaded_is_a_change(saved: Saved) -> None:
    saves_itself = "from pathlib import Path\nPath(__file__).write_text('topology = None')\n"
    saved.file.write_text(PROGRAM + saves_itself)
    program = load_program(saved.file)
    with pytest.raises(ProgramError, match="was saved since the start"):
        SavedProgram(program, {}, program.configured({})).compare()


def test_a_process_that_ended_while_it_loaded_the_program_is_started_again(
    saved: Saved, starts: list[ProgramProcess], tmp_path: Path
) -> None:
    once = tmp_path / "once"
    once.touch()
    ends_once = f"import os\nif os.path.exists({str(once)!r}):\n    os.remove({str(once)!r})\n    os._exit(3)\n"
    saved.file.write_text(ends_once + PROGRAM)
    with pytest.raises(ProgramError, match="the process ended while it loaded the program, code 3"):
        saved.compare()
    assert saved.compare() == []
    assert len(starts) == 2


def test_what_a_program_has_started_is_killed_with_it(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    program = tmp_path / "starts.py"
    program.write_text(
        f"import subprocess, threading\nsubprocess.Popen(['sleep', '600'], stdout=open({str(told)!r}, 'wb'))\n"
        f"open({str(told)!r}, 'w').write('x')\nthreading.Event().wait()\n"
    )
    process = ProgramProcess(Order(str(program), {}, False, False, None), prints_to_stderr=True)
    with told.open("rb") as reading:  # waits for the program
        assert reading.read(1) == b"x"
        process.close(0.1)
        assert reading.read() == b""  # whoever could write there has ended


def test_only_one_request_loads_it(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    saved.file.write_text(PROGRAM + "# saved\n")

    def answer(program: SavedProgram) -> ProgramAnswer:
        with pytest.raises(StreamsError, match="is being loaded: ask again"):
            saved.compare()
        return ProgramAnswer(("store x is new",))

    monkeypatch.setattr(SavedProgram, "_answer", answer)
    assert saved.compare() == ["store x is new"]
