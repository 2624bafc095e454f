"""Windows of time, `Windowed` keys, windows of n records, the kinds of windows for operators, and emit strategies.

Plain values without state; the processors apply windows to records. Times are ms since the epoch. The error messages
are Kafka's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from penstock_broker.common.durations import Duration, milliseconds

K = TypeVar("K")
VR = TypeVar("VR")

LONG_MAX = (1 << 63) - 1
"""The end of a window that never closes (Java: Long.MAX_VALUE)."""

# ---------- one window


class Window:
    """A span of time from `start` to `end` (Kafka class: Window).

    Windows of different classes are never equal.

    Args:
        start: in ms; ValueError if negative.
        end: in ms; ValueError if before the start.
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        if start < 0:
            raise ValueError("Window startMs time cannot be negative.")
        if end < start:
            raise ValueError("Window endMs time cannot be smaller than window startMs time.")
        self.start = start
        self.end = end

    @abstractmethod
    def overlap(self, other: Window) -> bool:
        """Return whether both windows overlap; raises ValueError for a window of another class."""
        raise NotImplementedError

    def _check_class(self, other: Window) -> None:
        if type(self) is not type(other):
            raise ValueError(f"Cannot compare windows of different type. Other window has type {type(other).__name__}.")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __repr__(self) -> str:
        return f"Window{{startMs={self.start}, endMs={self.end}}}"


class TimeWindow(Window):
    """A window from `start` up to, but not including, `end` (Kafka class: TimeWindow).

    Args:
        start: in ms; ValueError if negative.
        end: in ms; ValueError unless after the start.
    """

    __slots__ = ()

    def __init__(self, start: int, end: int) -> None:
        if not 0 <= start < end:
            super().__init__(start, end)
            raise ValueError("Window endMs must be greater than window startMs.")
        self.start = start  # a hot path: programs create millions of windows
        self.end = end

    def overlap(self, other: Window) -> bool:
        """Return whether both windows overlap; raises ValueError for a window of another class."""
        self._check_class(other)
        return self.start < other.end and other.start < self.end

    @staticmethod
    def of_size(start: int, size: int) -> TimeWindow:
        """Return the window of `size` ms from `start`; its end is at most LONG_MAX."""
        return TimeWindow(start, min(start + size, LONG_MAX))


class SessionWindow(Window):
    """A window from `start` to `end`, both included (Kafka class: SessionWindow)."""

    __slots__ = ()

    def overlap(self, other: Window) -> bool:
        """Return whether both windows overlap; raises ValueError for a window of another class."""
        self._check_class(other)
        return not (other.end < self.start or self.end < other.start)


class UnlimitedWindow(Window):
    """A window from `start` on, without an end (Kafka class: UnlimitedWindow).

    Args:
        start: in ms; ValueError if negative.
    """

    __slots__ = ()

    def __init__(self, start: int) -> None:
        super().__init__(start, LONG_MAX)

    def overlap(self, other: Window) -> bool:
        """Return True, as both are endless; raises ValueError for a window of another class."""
        self._check_class(other)
        return True


class Windowed(NamedTuple, Generic[K]):
    """A key within a window: the key of every windowed table (Kafka class: Windowed)."""

    key: K
    window: Window

    def __str__(self) -> str:
        return f"[{'null' if self.key is None else self.key}@{self.window.start}/{self.window.end}]"


@dataclass(frozen=True, slots=True)
class CountWindow(Generic[VR]):
    """The latest window of a key in the store of `KGroupedStream.count_windows`.

    Args:
        count: number of records in the window.
        is_full: whether the window is complete, so that the next record begins another one.
        aggregate: the aggregate of the window, which of a ready aggregation is its state; None without one.
    """

    count: int
    is_full: bool
    aggregate: VR | None


# ---------- kinds of windows


class Windows:
    """Windows at fixed places in time: those of this library, or your own class (Kafka class: Windows).

    Your own class has the two attributes and the method below, and can be pickled.

    Attributes:
        size_ms: the size of a window.
        grace_period_ms: the time after its end during which a window accepts late records.
    """

    size_ms: int
    grace_period_ms: int

    @abstractmethod
    def windows_for(self, timestamp: int) -> Mapping[int, Window]:
        """Return the windows that contain `timestamp` (ms) by start, in the order of their updates."""
        raise NotImplementedError(f"{type(self).__name__} must define windows_for(self, timestamp).")


def _check_milliseconds(**arguments: Any) -> None:
    for name, value in arguments.items():
        if milliseconds(value, name) is not value:
            raise TypeError(f"Expected {name} as a whole number of milliseconds, got {value!r}.")


@dataclass(frozen=True)
class TimeWindows(Windows):
    """Windows of one size: tumbling, or hopping by less than their size (Kafka class: TimeWindows).

    They are aligned to the epoch: a window starts at every multiple of `advance_ms`.
    """

    size_ms: int
    advance_ms: int
    grace_period_ms: int

    def __post_init__(self) -> None:
        _check_milliseconds(size=self.size_ms, advance=self.advance_ms, grace=self.grace_period_ms)
        if self.size_ms <= 0:
            raise ValueError("Window size (sizeMs) must be larger than zero.")
        if not 0 < self.advance_ms <= self.size_ms:
            raise ValueError(
                "Window advancement interval should be more than zero and less than window duration "
                f"which is {self.size_ms} ms, but given advancement interval is: {self.advance_ms} ms"
            )
        if self.grace_period_ms < 0:
            raise ValueError("Grace period must not be negative.")

    @staticmethod
    def of_size_with_no_grace(size_ms: Duration) -> TimeWindows:
        """Return tumbling windows of `size_ms` that accept no late records.

        Raises ValueError unless the size is positive.
        """
        size = milliseconds(size_ms, "size")
        return TimeWindows(size, size, 0)

    @staticmethod
    def of_size_and_grace(size_ms: Duration, grace_ms: Duration) -> TimeWindows:
        """Return tumbling windows of `size_ms` that accept records until `grace_ms` after their end.

        Raises ValueError for an invalid size or grace period.
        """
        size = milliseconds(size_ms, "size")
        return TimeWindows(size, size, milliseconds(grace_ms, "grace"))

    def advance_by(self, advance_ms: Duration) -> TimeWindows:
        """Return hopping windows of this size that begin every `advance_ms`.

        Raises ValueError unless 0 < advance_ms <= size.
        """
        return replace(self, advance_ms=milliseconds(advance_ms, "advance"))

    def windows_for(self, timestamp: int) -> dict[int, Window]:
        """Return the windows that contain `timestamp` (ms) by their starts, ascending."""
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return {
            start: TimeWindow.of_size(start, self.size_ms) for start in range(first, timestamp + 1, self.advance_ms)
        }


@dataclass(frozen=True)
class UnlimitedWindows(Windows):
    """One window from `start_ms` on, which never closes (Kafka class: UnlimitedWindows)."""

    start_ms: int = 0
    size_ms: int = field(default=LONG_MAX, init=False)
    grace_period_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        _check_milliseconds(start=self.start_ms)
        if self.start_ms < 0:
            raise ValueError("Window start time (startMs) cannot be negative.")

    @staticmethod
    def of() -> UnlimitedWindows:
        """Return the window of all times since the epoch."""
        return UnlimitedWindows()

    def start_on(self, start_ms: int) -> UnlimitedWindows:
        """Return the window from `start_ms` on; raises ValueError if it is negative."""
        return UnlimitedWindows(start_ms)

    def windows_for(self, timestamp: int) -> dict[int, Window]:
        """Return the window; empty for an earlier time."""
        return {self.start_ms: UnlimitedWindow(self.start_ms)} if timestamp >= self.start_ms else {}


@dataclass(frozen=True)
class SlidingWindows:
    """Windows of records within a maximum time difference (Kafka class: SlidingWindows).

    A window begins and ends with a record. Both ends are included.
    """

    time_difference_ms: int
    grace_period_ms: int

    def __post_init__(self) -> None:
        _check_milliseconds(time_difference=self.time_difference_ms, grace=self.grace_period_ms)
        if self.time_difference_ms < 0:
            raise ValueError("Window time difference must not be negative.")
        if self.grace_period_ms < 0:
            raise ValueError("Window grace period must not be negative.")

    @staticmethod
    def of_time_difference_with_no_grace(time_difference_ms: Duration) -> SlidingWindows:
        """Return windows of `time_difference_ms` that accept no late records.

        Raises ValueError if it is negative.
        """
        return SlidingWindows(milliseconds(time_difference_ms, "time_difference"), 0)

    @staticmethod
    def of_time_difference_and_grace(time_difference_ms: Duration, grace_ms: Duration) -> SlidingWindows:
        """Return windows of `time_difference_ms` that accept records until `grace_ms` after their end.

        Raises ValueError for negative arguments.
        """
        return SlidingWindows(milliseconds(time_difference_ms, "time_difference"), milliseconds(grace_ms, "grace"))


@dataclass(frozen=True)
class SessionWindows:
    """Windows of consecutive records with gaps of at most `inactivity_gap_ms` (Kafka class: SessionWindows)."""

    inactivity_gap_ms: int
    grace_period_ms: int

    def __post_init__(self) -> None:
        _check_milliseconds(inactivity_gap=self.inactivity_gap_ms, grace=self.grace_period_ms)
        if self.inactivity_gap_ms < 0:
            raise ValueError("Gap time cannot be negative.")
        if self.grace_period_ms < 0:
            raise ValueError("Grace period cannot be negative.")

    @staticmethod
    def of_inactivity_gap_with_no_grace(inactivity_gap_ms: Duration) -> SessionWindows:
        """Return sessions that end after `inactivity_gap_ms` without a record; raises ValueError if negative."""
        return SessionWindows(milliseconds(inactivity_gap_ms, "inactivity_gap"), 0)

    @staticmethod
    def of_inactivity_gap_and_grace(inactivity_gap_ms: Duration, grace_ms: Duration) -> SessionWindows:
        """Return sessions that end after `inactivity_gap_ms` without a record, with a grace period.

        They accept late records until `grace_ms` after their end. Raises ValueError for negative arguments.
        """
        return SessionWindows(milliseconds(inactivity_gap_ms, "inactivity_gap"), milliseconds(grace_ms, "grace"))


@dataclass(frozen=True)
class JoinWindows:
    """The maximum time difference of two joined records (Kafka class: JoinWindows).

    A record at t joins those of the other stream from t - before_ms to t + after_ms, both included. One of the two may
    be negative.
    """

    before_ms: int
    after_ms: int
    grace_period_ms: int

    def __post_init__(self) -> None:
        _check_milliseconds(before=self.before_ms, after=self.after_ms, grace=self.grace_period_ms)
        if self.before_ms + self.after_ms < 0:
            raise ValueError("Window interval (ie, beforeMs+afterMs) must not be negative.")
        if self.grace_period_ms < 0:
            raise ValueError("Grace period must not be negative.")

    @staticmethod
    def of_time_difference_with_no_grace(time_difference_ms: Duration) -> JoinWindows:
        """Return windows of `time_difference_ms` to both sides, without grace; raises ValueError if negative."""
        time_difference = milliseconds(time_difference_ms, "time_difference")
        return JoinWindows(time_difference, time_difference, 0)

    @staticmethod
    def of_time_difference_and_grace(time_difference_ms: Duration, grace_ms: Duration) -> JoinWindows:
        """Return windows of `time_difference_ms` to both sides with `grace_ms` for late records.

        Raises ValueError for negative arguments.
        """
        time_difference = milliseconds(time_difference_ms, "time_difference")
        return JoinWindows(time_difference, time_difference, milliseconds(grace_ms, "grace"))

    def before(self, time_difference_ms: Duration) -> JoinWindows:
        """Return these windows with another span before a record; raises ValueError if they become empty."""
        return replace(self, before_ms=milliseconds(time_difference_ms, "time_difference"))

    def after(self, time_difference_ms: Duration) -> JoinWindows:
        """Return these windows with another span after a record; raises ValueError if they become empty."""
        return replace(self, after_ms=milliseconds(time_difference_ms, "time_difference"))

    @property
    def size_ms(self) -> int:
        """The span of time that a record joins with."""
        return self.before_ms + self.after_ms

    def __str__(self) -> str:
        return f"JoinWindows{{beforeMs={self.before_ms}, afterMs={self.after_ms}, graceMs={self.grace_period_ms}}}"


# ---------- when results are emitted


class EmitStrategy(Enum):
    """The time at which the result of a window is emitted (Kafka class: EmitStrategy, KIP-825)."""

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"

    @staticmethod
    def on_window_update() -> EmitStrategy:
        """Return the strategy that emits a result at each update."""
        return EmitStrategy.ON_WINDOW_UPDATE

    @staticmethod
    def on_window_close() -> EmitStrategy:
        """Return the strategy that emits one result when the window closes."""
        return EmitStrategy.ON_WINDOW_CLOSE
