"""AutoOffsetReset: where a source begins to read a topic of which the application has no position yet (KIP-1106)."""

from __future__ import annotations

from penstock.durations import Duration, milliseconds

EARLIEST = "earliest"
LATEST = "latest"
NONE = "none"
_BY_DURATION = "by_duration:"


class OffsetReset(str):
    """A text of AutoOffsetReset; its class sets it apart from a name where either may stand."""

    __slots__ = ()


class AutoOffsetReset:
    """Makes the values that `offset_reset` takes, which are texts (Kafka class: AutoOffsetReset)."""

    @staticmethod
    def earliest() -> OffsetReset:
        """Return the value to begin at the first record."""
        return OffsetReset(EARLIEST)

    @staticmethod
    def latest() -> OffsetReset:
        """Return the value to begin after the last record."""
        return OffsetReset(LATEST)

    @staticmethod
    def none() -> OffsetReset:
        """Return the value to fail where there is no position."""
        return OffsetReset(NONE)

    @staticmethod
    def by_duration(duration_ms: Duration) -> OffsetReset:
        """Return the value to begin at the first record that is not older than `duration_ms`; raises ValueError for a
        negative duration."""
        checked_ms = milliseconds(duration_ms, "duration")
        if checked_ms < 0:
            raise ValueError("Duration cannot be negative")
        return OffsetReset(f"{_BY_DURATION}{checked_ms}")


def duration_of(offset_reset: str) -> int | None:
    """Return the duration (ms) of a value that `by_duration` made, None for any other."""
    text = offset_reset.removeprefix(_BY_DURATION)
    return int(text) if text != offset_reset and text.isdecimal() else None


def check_offset_reset(offset_reset: str | None) -> None:
    """Raise ValueError unless `offset_reset` is None or a known place to begin."""
    if offset_reset in (None, EARLIEST, LATEST, NONE) or duration_of(str(offset_reset)) is not None:
        return
    raise ValueError(
        f"Unknown offset reset {offset_reset!r}: expected one of {EARLIEST}, {LATEST}, {NONE}, or "
        "AutoOffsetReset.by_duration(...)."
    )
