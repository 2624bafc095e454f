"""Where in the user's program a node or a store was made, or a function is."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

_OWN = __name__.partition(".")[0]


def calling_line() -> str | None:
    """Return the file and the line of the innermost call from outside this package, as `program.py:12`; None if
    there is none."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == _OWN:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def function_line(function: Callable[..., Any]) -> str:
    """Return the name of a function of the user's, its file and its first line."""
    own = inspect.unwrap(function)
    code = getattr(own, "__code__", None) or getattr(type(own).__call__, "__code__", None)
    return repr(own) if code is None else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def made_at(line: str | None) -> str:
    """Return what follows the name of a node or a store that was made at `line`; nothing if the line is not known."""
    return "" if line is None else f" (created at {line})"
