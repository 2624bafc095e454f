"""Readable forms of figures."""

from __future__ import annotations

from typing import Final

NONE: Final = "-"
"""The text for an unknown figure."""

LONGEST: Final = 1_000
"""Most characters shown of users' data."""

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def number(value: float | None) -> str:
    """Return a figure with thousands separators."""
    if value is None:
        return NONE
    return f"{value:,.1f}" if value % 1 and abs(value) < 100 else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a rate per second."""
    return NONE if value is None else f"{number(value)}/s"


def percent(share: float) -> str:
    """Return a share from 0 to 1 as a percentage."""
    return f"{100 * share:.0f} %"


def size(number_of_bytes: float) -> str:
    """Return a number of bytes in its largest unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if number_of_bytes < 1024:
            return f"{number(number_of_bytes)} {unit}"
        number_of_bytes /= 1024
    return f"{number_of_bytes:,.1f} GiB"


def duration(milliseconds: float) -> str:
    """Return a duration in its two largest units."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    parts: list[str] = []
    left = int(milliseconds)
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])
