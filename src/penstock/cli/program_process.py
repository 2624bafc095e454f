"""Starts a process that loads a program and says what that means for the application that runs (dev_process.py). Then
it waits until it may run the program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

_LOOK_SECONDS: Final = 0.02

_LOAD_SECONDS: Final = 60.0
"""How long a program may take to be loaded."""

_END_SECONDS: Final = 60.0
"""How long a program may take to commit and end before it is killed; the next one continues from its last commit."""


@dataclass(frozen=True)
class Order:
    """What to run.

    overrides: of the program's configuration. creates_topics: whether to create topics that are missing. before: the
    shape of the topology that runs now, None if none does.
    """

    path: str
    overrides: Mapping[str, Any]
    creates_topics: bool
    verbose: bool
    before: Mapping[str, Any] | None


@dataclass(frozen=True)
class Answer:
    """What a program means for the one that runs: the lines of `penstock diff`, whether it is refused, and the shape of
    its topology. error: why it cannot be loaded. files: the states of its files when it was loaded, also of one that
    cannot be; none if the process did not answer."""

    lines: tuple[str, ...] = ()
    refused: bool = False
    shape: Mapping[str, Any] | None = None
    error: str | None = None
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class ProgramProcess:
    """A process with one version of the program."""

    def __init__(self, order: Order, prints_to_stderr: bool) -> None:
        """Start it; it loads the program and waits."""
        reading, writing = os.pipe()
        with open(writing, "wb"):  # the process has its own
            self._answers = open(reading, "rb")  # noqa: SIM115 - closed by `answer`
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli.dev_process", str(writing)],
                stdin=subprocess.PIPE,
                stdout=sys.stderr if prints_to_stderr else None,
                pass_fds=[writing],
                start_new_session=True,  # a Ctrl-C at the terminal is for the command, which ends this process
            )
        self._write(msgspec.json.encode(order))

    def answer(self) -> Answer:
        """Return what the process says of the program; that it cannot be loaded if it says nothing."""
        deadline = time.monotonic() + _LOAD_SECONDS
        os.set_blocking(self._answers.fileno(), False)
        said = b""
        with self._answers:
            while time.monotonic() < deadline:
                part = self._answers.read()
                if part == b"":
                    if said:
                        return msgspec.json.decode(said, type=Answer)
                    return Answer(error=f"the process ended while it loaded the program, code {self._process.wait()}.")
                said += part or b""
                time.sleep(_LOOK_SECONDS)
        return Answer(
            error=f"it did not finish loading within {_LOAD_SECONDS:.0f} s: move code that waits or runs the "
            'application under `if __name__ == "__main__"`.'
        )

    def start(self) -> None:
        """Let the process run the program."""
        self._write(b"run")

    def ended(self) -> int | None:
        """Return the exit code, None while the process runs."""
        return self._process.poll()

    def close(self, seconds: float = _END_SECONDS) -> None:
        """End the process, behind a commit if it runs the program. seconds: after which it is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # and what it has started
            self._process.wait()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which `answer` and `ended` say
