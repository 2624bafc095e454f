"""Starts a process that loads a program and reports its effects.

The effects are those on the running application (dev_process.py). Then the process waits until it may run the program.
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
"""How long loading a program may take."""

_END_SECONDS: Final = 60.0
"""How long a program may take to commit and end before it is killed; the next one continues from its last commit."""


@dataclass(frozen=True)
class Order:
    """An order to load and run a program.

    Args:
        path: of its file.
        overrides: of the program's configuration.
        creates_topics: whether to create missing topics.
        verbose: whether to show logs.
        before: the shape of the running topology, None without one.
    """

    path: str
    overrides: Mapping[str, Any]
    creates_topics: bool
    verbose: bool
    before: Mapping[str, Any] | None


@dataclass(frozen=True)
class ProgramAnswer:
    """The effects of a program on the running one.

    Args:
        lines: the lines of `penstock diff`.
        refused: whether it is refused.
        shape: the shape of its topology.
        error: the reason why it cannot be loaded.
        files: the states of its files when it was loaded, even if loading failed; empty if the process did not answer.
    """

    lines: tuple[str, ...] = ()
    refused: bool = False
    shape: Mapping[str, Any] | None = None
    error: str | None = None
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class ProgramProcess:
    """A process with one version of the program.

    The constructor starts it; it loads the program and waits.

    Args:
        order: the program to run.
        prints_to_stderr: whether the program's standard output goes to standard error.
    """

    def __init__(self, order: Order, prints_to_stderr: bool) -> None:
        reading, writing = os.pipe()
        with open(writing, "wb"):  # the process has its own copy
            self._answers = open(reading, "rb")  # noqa: SIM115 - closed by `answer`
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.tools.cli.dev_process", str(writing)],
                stdin=subprocess.PIPE,
                stdout=sys.stderr if prints_to_stderr else None,
                pass_fds=[writing],
                start_new_session=True,  # a Ctrl-C at the terminal is for the command, which ends this process
            )
        self._write(msgspec.json.encode(order))

    def answer(self) -> ProgramAnswer:
        """Return the answer of the process; an error if it does not answer."""
        deadline = time.monotonic() + _LOAD_SECONDS
        os.set_blocking(self._answers.fileno(), False)
        said = b""
        with self._answers:
            while time.monotonic() < deadline:
                part = self._answers.read()
                if part == b"":
                    if said:
                        return msgspec.json.decode(said, type=ProgramAnswer)
                    return ProgramAnswer(
                        error=f"the process ended while it loaded the program, code {self._process.wait()}."
                    )
                said += part or b""
                time.sleep(_LOOK_SECONDS)
        return ProgramAnswer(
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
        """End the process, after a commit if it runs the program.

        It is killed after `seconds`.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # together with its own processes
            self._process.wait()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, as `answer` and `ended` report
