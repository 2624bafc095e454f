"""AutoOffsetReset: where a source begins to read a topic of which the application has no position yet (KIP-1106)."""

from __future__ import annotations

from penstock.config.offset_reset import BY_DURATION, EARLIEST, LATEST, NONE, duration_of
from penstock_broker.common.durations import Duration, milliseconds


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
        return OffsetReset(f"{BY_DURATION}{checked_ms}")


def check_offset_reset(offset_reset: str | None) -> None:
    """Raise ValueError unless `offset_reset` is None or a known place to begin."""
    if offset_reset in (None, EARLIEST, LATEST, NONE) or duration_of(str(offset_reset)) is not None:
        return
    raise ValueError(
        f"Unknown offset reset {offset_reset!r}: expected one of {EARLIEST}, {LATEST}, {NONE}, or "
        "AutoOffsetReset.by_duration(...)."
    )
