"""How users write a length of time: as whole milliseconds, or as a datetime.timedelta where Java has a Duration."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = int | timedelta
"""A length of time: milliseconds, or a timedelta, truncated to milliseconds."""

_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(duration: Duration, name: str) -> int:
    """Return `duration` in ms; raises TypeError, which calls it `name`, unless it is an int or a timedelta."""
    if isinstance(duration, timedelta):
        return duration // _MILLISECOND
    if type(duration) is not int and not _is_whole(duration):
        raise TypeError(f"Expected {name} as a timedelta or a whole number of milliseconds, got {duration!r}.")
    return duration


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
