"""`penstock dev`: runs a program, and restarts it with its state after changes.

The command watches files and owns the broker, if the program names no brokers. Each version of the program is a process
of its own (dev_process.py): it loads the program while the old version still runs, and takes over when the old one has
ended after its last commit. A program that cannot be loaded, or that cannot use the state, changes nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from penstock.host.open import check_host
from penstock.termination import terminating
from penstock.tools.cli.broker import EmbeddedBrokerOptions
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import (
    INTERRUPTED,
    Verbose,
    err,
    interruptible,
    option_groups,
    set_verbose,
)
from penstock.tools.cli.program import file_state, load_program
from penstock.tools.cli.program_process import Order, ProgramAnswer, ProgramProcess
from penstock.tools.cli.run import HostOption, with_broker

_LOOK_SECONDS: Final = 0.2
_MOST_FILES: Final = 2_000
_NOT_WATCHED: Final = frozenset(("__pycache__", "node_modules", "site-packages", "venv"))

_Files = Mapping[str, tuple[int, int]]
"""The time of the last change (ns) and the size (bytes) of files, by path."""


@option_groups
def dev(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A Python program that defines `topology` and `config`.")
    ],
    host: HostOption = None,
    *,
    embedded: EmbeddedBrokerOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Show each event as a line of JSON; what the program prints goes to stderr.")
    ] = False,
    options: ProgramOptions,
    verbose: Verbose = False,
) -> None:
    """Run a program, and continue with its state whenever one of its files is saved, until Ctrl-C.

    A program that cannot be loaded, or that cannot use the state, does not run: the previous one continues.
    """
    overrides = options.overrides()
    if host is not None:
        overrides["penstock.host"] = host.value
    if verbose:
        set_verbose(True)
    program = load_program(file)
    configured = program.configured(overrides)
    check_host(configured)
    creates_topics = configured["bootstrap.servers"] is None
    with terminating(), interruptible() as interrupted, with_broker(configured, embedded) as settings:
        overrides["bootstrap.servers"] = settings["bootstrap.servers"]
        session = _Session(file, overrides, creates_topics, verbose, _Events(as_json))
        try:
            session.change()
            while not interrupted():
                time.sleep(_LOOK_SECONDS)
                session.look()
        finally:
            session.close()
    raise typer.Exit(INTERRUPTED)


class _Events:
    """Reports events: as text on standard error, or as JSON on standard output."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def tell(self, event: str, text: str, **more: Any) -> None:
        """Report `event`.

        Args:
            event: name of the event.
            text: its text for people.
            more: its fields in JSON.
        """
        if self.as_json:
            sys.stdout.write(orjson.dumps({"event": event, **more}).decode() + "\n")
            sys.stdout.flush()
        else:
            err.print(text, markup=False)


class _Session:
    """The files of a program, its running process, and reports about both."""

    def __init__(
        self, file: Path, overrides: Mapping[str, Any], creates_topics: bool, verbose: bool, events: _Events
    ) -> None:
        self._file = file
        self._overrides, self._creates_topics, self._verbose = overrides, creates_topics, verbose
        self._events = events
        self._running: ProgramProcess | None = None
        self._shape: Mapping[str, Any] | None = None
        self._loaded: _Files = {}
        self._seen: _Files = {}

    def look(self) -> None:
        """Run the changed program if files were saved, and report the end of the program."""
        files = _files(self._file)
        if files != self._loaded and files == self._seen:  # the files no longer change
            self.change()
        self._seen = files
        if self._running is not None and (code := self._running.ended()) is not None:
            self._running = None
            text = f"{self._file} has ended with exit code {code}. It starts again when you save the file."
            self._events.tell("ended", text, code=code)

    def change(self) -> None:
        """Load the current program, and replace the running one if possible."""
        self._loaded = self._seen = _files(self._file)
        order = Order(str(self._file), self._overrides, self._creates_topics, self._verbose, self._shape)
        candidate = ProgramProcess(order, self._events.as_json)
        is_taken = False
        try:
            answer = candidate.answer()
            if answer.error is not None:
                self._keep("failed", [answer.error], error=answer.error)
            elif answer.refused:
                self._keep("refused", list(answer.lines), lines=answer.lines)
            else:
                is_taken = True
                self._replace(candidate, answer)
        finally:
            if not is_taken:
                candidate.close()

    def close(self) -> None:
        """End the program after its last commit."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def _keep(self, event: str, reasons: list[str], **more: Any) -> None:
        is_running = self._running is not None
        stays = "The previous version keeps running." if is_running else "Nothing runs until you save the file again."
        self._events.tell(event, "\n".join([f"{self._file} cannot run:", *reasons, stays]), **more)

    def _replace(self, candidate: ProgramProcess, answer: ProgramAnswer) -> None:
        if self._shape is not None or answer.lines:
            lines = answer.lines or ("nothing changes",)
            self._events.tell("changed", "\n".join([f"{self._file} has changed:", *lines]), lines=lines)
        self.close()
        self._running, self._shape = candidate, answer.shape
        candidate.start()
        self._events.tell("started", f"{self._file} is starting. Saved changes take effect automatically.")


def _files(file: Path) -> _Files:
    """Return the Python files in the directory of `file` and below, which it may import.

    If there are very many, only some are returned, but always the file itself.
    """
    found = {str(file): file_state(file)}
    for directory, below, names in os.walk(file.resolve().parent):
        below[:] = sorted(name for name in below if not name.startswith(".") and name not in _NOT_WATCHED)
        for name in sorted(names):
            if name.endswith(".py") and len(found) < _MOST_FILES:
                path = Path(directory, name)
                found[str(path)] = file_state(path)
        if len(found) >= _MOST_FILES:
            break
    return found
