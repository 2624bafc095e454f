"""The values of auto.offset.reset in the configuration and in AutoOffsetReset (KIP-1106)."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.config.definition import reader
from penstock.errors import ConfigError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
NONE: Final = "none"
BY_DURATION: Final = "by_duration:"

_ISO_8601: Final = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,3})?)S)?)?"
)
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def duration_of(offset_reset: str) -> int | None:
    """Return the duration (ms) of a value such as `by_duration:PT24H`; None for any other.

    AutoOffsetReset writes whole milliseconds instead, such as `by_duration:1000`.
    """
    text = offset_reset.removeprefix(BY_DURATION)
    if text == offset_reset:
        return None
    if text.isdecimal():
        return int(text)
    found = _ISO_8601.fullmatch(text)
    if found is None:
        return None
    return sum(round(float(number or 0) * _MS[unit]) for unit, number in found.groupdict().items())


@reader("earliest, latest, none, or by_duration: with a duration of ISO 8601, such as by_duration:PT24H")
def offset_reset(name: str, value: Any) -> str:
    """Return an offset reset, names in lower case; raises ConfigError for anything else."""
    text = str(value)
    if text.lower() in (EARLIEST, LATEST, NONE):
        return text.lower()
    if duration_of(text) is not None:
        return text
    raise ConfigError(
        f"Invalid value {value!r} for configuration {name}: expected one of {EARLIEST}, {LATEST}, {NONE}, or "
        f"{BY_DURATION}DURATION, such as {BY_DURATION}PT24H."
    )
