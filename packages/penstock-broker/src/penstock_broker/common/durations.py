"""Conversion of users' durations and timestamps to milliseconds.

A duration is a whole number of milliseconds, or a datetime.timedelta where Java has a Duration. A timestamp is a whole
number of milliseconds since the epoch, and where a program names a moment also a datetime.
"""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

Duration: TypeAlias = int | timedelta
"""A duration: milliseconds, or a timedelta, truncated to milliseconds."""

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LATEST_MS = 2**63 - 1
"""The largest timestamp in Kafka."""


def milliseconds(duration: Duration, name: str) -> int:
    """Return `duration` in ms.

    Raises TypeError, with `name` in its message, unless it is an int or a timedelta.
    """
    if isinstance(duration, timedelta):
        return duration // _MILLISECOND
    if type(duration) is not int and not _is_whole(duration):
        example = f"seconds={duration:g}" if isinstance(duration, float) else "minutes=5"
        raise TypeError(
            f"Expected {name} as a timedelta or a whole number of milliseconds, got {duration!r}: write "
            f"timedelta({example}), for example."
        )
    return duration


def timestamp_ms(time: Any, name: str) -> int:
    """Return a timestamp as a 64-bit int; integers of numpy are accepted too.

    Raises TypeError, with `name` in its message, for any other type, such as the float seconds of time.time(), and
    ValueError for more than 64 bits.
    """
    if time.__class__ is int and -LATEST_MS - 1 <= time <= LATEST_MS:
        return time
    try:
        number = None if isinstance(time, bool) else operator.index(time)
    except TypeError:
        number = None
    if number is None:
        hint = ": write int(1000 * seconds) for float seconds" if isinstance(time, float) else ""
        raise TypeError(f"Expected {name} as a whole number of ms since the epoch, got {time!r}{hint}.")
    if not -LATEST_MS - 1 <= number <= LATEST_MS:
        raise ValueError(f"Expected {name} as a whole number of ms since the epoch, of 64 bits, got {time!r}.")
    return number


def moment_ms(moment: Any, name: str) -> int:
    """Return a datetime, truncated to milliseconds, or a timestamp as a 64-bit int.

    Raises, with `name` in its message, ValueError for a datetime without a time zone and for more than 64 bits, and
    TypeError for any other type.
    """
    if not isinstance(moment, datetime):
        return timestamp_ms(moment, f"{name} as a datetime with a time zone, or")
    if moment.utcoffset() is None:  # its time differs between machines
        raise ValueError(
            f"Expected {name} as a datetime with a time zone, got {moment!r}: write moment.astimezone() if it is in "
            "the zone of this machine, or moment.replace(tzinfo=UTC) if it is in UTC."
        )
    return int((moment - _EPOCH) // _MILLISECOND)


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
