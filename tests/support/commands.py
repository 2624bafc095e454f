"""Runs `penstock` as a user does, as a process, and finds what it leaves behind; or in this process, which is quicker.

A run carries a mark in its environment, which all processes that it starts inherit, whatever groups and sessions they
make; the mark is looked for in /proc.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from penstock.tools.cli.common import set_verbose
from penstock.tools.cli.main import main
from tests.support.waiting import WAIT_SECONDS, until

_MARK = "PENSTOCK_TEST_RUN"


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


class Command:
    """A `penstock` command that runs; a context manager that ends it and everything that it started.

    Args:
        arguments: the command line after `penstock`.
        directory: where it runs, and where its output goes.
        environment: variables beside those of this process.
        program: what the interpreter runs; the arguments follow.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "penstock.tools.cli.main"),
    ) -> None:
        self.mark = uuid.uuid4().hex
        self._out, self._err = (directory / f"{self.mark}.{name}" for name in ("out", "err"))
        surroundings = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                cwd=directory,
                env={**surroundings, "COLUMNS": "200", **(environment or {}), _MARK: self.mark},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def output(self) -> str:
        """Return what it has written so far, standard output first."""
        return self._out.read_text() + self._err.read_text()

    def interrupt(self) -> None:
        """Press Ctrl-C: the terminal sends SIGINT to the process group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM to the command alone."""
        self._process.terminate()

    def ended(self, standard_input: str = "") -> Ended:
        """Give it `standard_input`, wait until it ends, and return how."""
        self._process.communicate(standard_input.encode(), timeout=WAIT_SECONDS)
        return Ended(self._process.returncode, self._out.read_text(), self._err.read_text())

    def processes(self) -> list[int]:
        """Return the ids of the processes of this run, the command's own among them."""
        wanted = f"{_MARK}={self.mark}".encode()
        found = []
        for directory in Path("/proc").iterdir():
            if directory.name.isdigit():
                try:
                    environment = (directory / "environ").read_bytes()
                except OSError:
                    continue  # it has ended, or is another user's
                if wanted in environment.split(b"\0"):
                    found.append(int(directory.name))
        return found

    def command_lines(self) -> list[bytes]:
        """Return the command lines of the processes of this run."""
        found = []
        for pid in self.processes():
            with suppress(OSError):  # it has ended
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        return found

    def nothing_left(self) -> bool:
        """Return whether all its processes end, including those that end on their own within the limit."""
        return until(lambda: not self.processes(), 60)


def penstock(directory: Path, *arguments: str, standard_input: str = "", **environment: str) -> Ended:
    """Run a command to its end and return how it ended."""
    with Command(arguments, directory, environment) as command:
        return command.ended(standard_input)


Run = Callable[..., Ended]


@pytest.fixture
def penstock_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a command in this process."""
    common = import_module("penstock.tools.cli.common")
    for console in (common.out, common.err):  # each took the width of the terminal when it was made
        monkeypatch.setattr(console, "width", 200)

    def command(*arguments: str, standard_input: str = "") -> Ended:
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(standard_input.encode()), newline="\n"))
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return Ended(int(ended.value.code or 0), written.out, written.err)

    yield command
    set_verbose(False)
