"""The common parts of commands: consoles, options, and exit codes.

Exit codes: 0 success, 1 failure with one line for the reason and the remedy, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import inspect
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from datetime import datetime
from functools import wraps
from itertools import chain
from types import FrameType
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console
from rich.table import Table

from penstock.errors import StreamsError

DEFAULT_PORT: Final = 9092
FAILED, INTERRUPTED = 1, 130
out: Final = Console(highlight=False, soft_wrap=True, emoji=False)
"""For the answers of commands."""

err: Final = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
"""For everything else: progress, hints, errors."""

_WIDEST: Final = 100_000
"""The width in characters of what is no terminal, such as a file or a pipe."""

Settings = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A configuration key; may be given again."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show logs, and tracebacks of errors.")]

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]

_verbose = False


def print_table(table: Table) -> None:
    """Print a table as an answer. Only a terminal cuts its cells, to its width."""
    console = out if out.is_terminal else Console(file=out.file, width=_WIDEST, highlight=False, emoji=False)
    console.print(table, soft_wrap=True)


def set_verbose(verbose: bool) -> None:
    """Show logs and tracebacks of failed commands if `verbose`, else only warnings of Penstock."""
    global _verbose
    _verbose = verbose
    # Logs of other packages during an interruption are useless: the command reports the outcome.
    level = logging.INFO if verbose else logging.CRITICAL + 1
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", force=True)
    for package in ("penstock", "penstock_broker"):
        logging.getLogger(package).setLevel(logging.DEBUG if verbose else logging.WARNING)
    logging.getLogger("penstock.client.librdkafka").propagate = verbose


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the fields of each dataclass among its parameters as options."""
    own = inspect.signature(command, eval_str=True).parameters
    groups = {
        name: inspect.signature(each.annotation, eval_str=True).parameters
        for name, each in own.items()
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }

    @wraps(command)
    def grouped(**given: Any) -> None:
        for name, fields in groups.items():
            given[name] = own[name].annotation(**{field: given.pop(field) for field in fields})
        command(**given)

    options = chain.from_iterable(groups[name].values() if name in groups else (each,) for name, each in own.items())
    # typer reads the signature. Options without a default may follow others only as keywords.
    flat = inspect.Signature([each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options])
    vars(grouped)["__signature__"] = flat
    return grouped


def parsed_settings(settings: list[str] | None, option: str = "--config", servers: str | None = None) -> dict[str, Any]:
    """Return `key=value` texts of an option as a mapping.

    Ends with wrong usage for other texts.

    Args:
        settings: the texts.
        option: name of the option, for messages.
        servers: the value of `--bootstrap-servers`, which has precedence.
    """
    parsed: dict[str, Any] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"expected KEY=VALUE, got {setting!r}", param_hint=option)
        parsed[key.strip()] = value.strip()
    return parsed if servers is None else {**parsed, "bootstrap.servers": servers}


def parsed_time(text: str) -> int:
    """Return a time such as 2030-01-31T12:00 in ms since the epoch.

    The time is in this machine's zone unless it names one. Raises ValueError for other texts.
    """
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def parsed_commit(text: str, option: str) -> int | datetime:
    """Return a commit: an epoch, or a time in this machine's zone unless it names one.

    Ends with wrong usage for other texts; option: the name of the option, for the message.
    """
    try:
        return int(text) if text.isdigit() else datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"expected an epoch or a time such as 2030-01-31T12:00, got {text!r}", param_hint=option
        ) from error


def print_json(answer: Any) -> None:
    """Print an answer of a command as JSON."""
    sys.stdout.write(orjson.dumps(answer).decode() + "\n")
    sys.stdout.flush()


def report(error: BaseException) -> None:
    """Report a command's failure on standard error, in one line.

    With -v, its traceback is shown too.
    """
    if _verbose:
        err.print_exception(show_locals=False)
    text = str(error) or type(error).__name__
    err.print(f"[bold red]penstock:[/] {_escaped(text)}")
    for note in vars(error).get("__notes__", ()):  # such as the lines of a user's function that failed
        err.print(_escaped(note))
    if not _verbose and not isinstance(error, StreamsError):
        err.print("This error is unexpected; -v shows where it comes from.")


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Defer Ctrl-C: it only changes the result of the yielded function to True.

    An exception could get lost between C and Python.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
