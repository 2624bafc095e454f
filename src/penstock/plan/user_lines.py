"""Lines of the user's program: of nodes and stores, functions and failures."""

from __future__ import annotations

import inspect
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

_OWN = __name__.partition(".")[0]
_NOT_CALLED = frozenset((_OWN, "penstock_broker", "pyspark", "py4j"))
"""Packages that call the functions of users."""
_LINES = 8


def calling_line() -> str | None:
    """Return the file and line of the innermost call from outside this package.

    The format is `program.py:12`; None if absent.
    """
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == _OWN:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def at_line() -> str:
    """Return the innermost call from outside this package in brackets, for an error; no text if absent."""
    line = calling_line()
    return "" if line is None else f" ({line})"


def function_line(function: Callable[..., Any]) -> str:
    """Return the name of a user's function, with its file and first line."""
    own = inspect.unwrap(function)
    code = getattr(own, "__code__", None) or getattr(type(own).__call__, "__code__", None)
    return repr(own) if code is None else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def made_at(line: str | None) -> str:
    """Return the suffix for the name of a node or store made at `line`.

    It is empty if the line is unknown.
    """
    return "" if line is None else f" (created at {line})"


def failing_line(error: BaseException) -> str | None:
    """Return the line of the user's program that raised `error`, in traceback format.

    None if absent. The innermost line is often in a library that the user's function calls, so lines of installed
    packages do not count. In an installed program, it is the innermost line of the first called package.
    """
    called = _called(error)
    if not called:
        return None
    first = called[0][1]
    own = [line for line, _ in called if line.line and not is_installed(Path(line.filename))]
    found = (own or [line for line, package in called if package == first])[-1]
    return f'File "{found.filename}", line {found.lineno}, in {found.name}: {found.line}'


def running_line(frame: FrameType) -> str | None:
    """Return the line of the user's program that a thread runs now, as `program.py:12`; None if absent.

    frame: the innermost one of the thread.
    """
    each: FrameType | None = frame
    while each is not None:
        path = each.f_code.co_filename
        is_own = each.f_globals.get("__name__", "").partition(".")[0] in _NOT_CALLED
        if not is_own and not path.startswith("<") and not is_installed(Path(path)):
            return f"{path}:{each.f_lineno}"
        each = each.f_back
    return None


def called_lines(error: BaseException) -> str:
    """Return the lines that led to `error`, in traceback format.

    They are lines of the user and of libraries. Of many lines, only the first ones, which are the user's, and the last
    ones are returned.
    """
    lines = traceback.format_list([line for line, _ in _called(error)])
    if len(lines) > 2 * _LINES:
        lines = [*lines[:_LINES], f"  [{len(lines) - 2 * _LINES} lines are left out]\n", *lines[-_LINES:]]
    return "".join(lines).rstrip()


def _called(error: BaseException) -> list[tuple[traceback.FrameSummary, str]]:
    """Return the lines that led to `error` with their packages, except Penstock's and Spark's workers'."""
    trace = error.__traceback__
    return [
        (line, package)
        for (frame, _), line in zip(traceback.walk_tb(trace), traceback.extract_tb(trace), strict=True)
        if (package := frame.f_globals.get("__name__", "").partition(".")[0]) not in _NOT_CALLED
        and not line.filename.startswith("<frozen")
    ]


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    resolved = path.resolve()
    return any(resolved.is_relative_to(place) for place in _installed())


@lru_cache(maxsize=1)
def _installed() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    places = (paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], site.getusersitepackages())
    return tuple(Path(place).resolve() for place in (*places, *site.getsitepackages()))
