"""AutoOffsetReset: the first position of a source without a committed offset (KIP-1106)."""

from __future__ import annotations

from penstock.config.offset_reset import BY_DURATION, EARLIEST, LATEST, NONE, duration_of
from penstock_broker.common.durations import Duration, milliseconds


class OffsetReset(str):
    """A string of AutoOffsetReset; its class distinguishes it from a positional name."""

    __slots__ = ()


class AutoOffsetReset:
    """Makes the strings for `offset_reset` (Kafka class: AutoOffsetReset)."""

    @staticmethod
    def earliest() -> OffsetReset:
        """Return the value that starts at the first record."""
        return OffsetReset(EARLIEST)

    @staticmethod
    def latest() -> OffsetReset:
        """Return the value that starts after the last record."""
        return OffsetReset(LATEST)

    @staticmethod
    def none() -> OffsetReset:
        """Return the value that fails without a committed offset."""
        return OffsetReset(NONE)

    @staticmethod
    def by_duration(duration_ms: Duration) -> OffsetReset:
        """Return the value that starts at the first record not older than `duration_ms`.

        Raises ValueError for a negative duration.
        """
        checked_ms = milliseconds(duration_ms, "duration")
        if checked_ms < 0:
            raise ValueError("Duration cannot be negative")
        return OffsetReset(f"{BY_DURATION}{checked_ms}")


def check_offset_reset(offset_reset: str | None) -> None:
    """Raise ValueError unless `offset_reset` is None or a known value."""
    if offset_reset in (None, EARLIEST, LATEST, NONE) or duration_of(str(offset_reset)) is not None:
        return
    raise ValueError(
        f"Unknown offset reset {offset_reset!r}: expected one of {EARLIEST}, {LATEST}, {NONE}, or "
        "AutoOffsetReset.by_duration(...)."
    )
