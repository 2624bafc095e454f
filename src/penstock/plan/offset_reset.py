"""AutoOffsetReset: where a source begins to read a topic of which the application has no position yet (KIP-1106)."""

from __future__ import annotations

EARLIEST = "earliest"
LATEST = "latest"
NONE = "none"
_BY_DURATION = "by_duration:"


class AutoOffsetReset:
    """Makes the values that `offset_reset` takes, which are texts (Kafka class: AutoOffsetReset)."""

    @staticmethod
    def earliest() -> str:
        """Return the value to begin at the first record."""
        return EARLIEST

    @staticmethod
    def latest() -> str:
        """Return the value to begin behind the last record."""
        return LATEST

    @staticmethod
    def none() -> str:
        """Return the value to fail where there is no position."""
        return NONE

    @staticmethod
    def by_duration(duration_ms: int) -> str:
        """Return the value to begin at the first record that is not older than `duration_ms`; raises ValueError for a
        negative duration."""
        if duration_ms < 0:
            raise ValueError("Duration cannot be negative")
        return f"{_BY_DURATION}{duration_ms}"


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
