"""Where in the user's program a node or a store was made."""

from __future__ import annotations

import sys

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


def made_at(line: str | None) -> str:
    """Return what follows the name of a node or a store that was made at `line`; nothing if the line is not known."""
    return "" if line is None else f" (created at {line})"
