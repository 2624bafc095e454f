"""The serdes of windowed keys, byte for byte Kafka's, and `WindowedSerdes`, their factory.

A time window is written as the key and 8 bytes of its start; readers must know its size, or its calendar. A
session is written as the key, 8 bytes of its end and 8 of its start.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from penstock.calendar_windows import CalendarWindows
from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.windows import LONG_MAX, SessionWindow, TimeWindow, Window, Windowed
from penstock_broker.common.durations import Duration, milliseconds

_TIME = struct.Struct(">q")
_END_AND_START = struct.Struct(">qq")


class WindowedSerde(Serde):
    """The key by an inner serde, and the window in fixed size (Kafka class: WindowedSerializer)."""

    window_size: int
    """Size of a window in bytes."""

    def __init__(self, inner: Serde) -> None:
        self.inner = inner

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde:
        """Return this serde with defaults for the missing serdes of its inner one."""
        inner = self.inner.with_defaults(key_serde, value_serde)
        if inner is self.inner:
            return self
        resolved = copy(self)
        resolved.inner = inner
        return resolved

    @abstractmethod
    def _write_window(self, window: Window) -> bytes:
        """Serialise the window."""
        raise NotImplementedError

    @abstractmethod
    def _read_window(self, data: bytes) -> Window:
        """Deserialise the window."""
        raise NotImplementedError

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the keys."""
        return (self.inner,)

    @property
    def uses_headers(self) -> bool:
        """Whether the key serde uses the headers."""
        return self.inner.uses_headers

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the Windowed; raises TypeError for any other type."""
        if not isinstance(value, Windowed):
            raise TypeError(
                f"Cannot write to {topic!r}: expected a Windowed, got {type(value).__name__} {value!r:.100}; "
                "name another serde or convert the key."
            )
        return self.inner.serialize(topic, value.key, headers) + self._write_window(value.window)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Deserialise the Windowed, or None for empty bytes, as Kafka does.

        Raises SerializationError if `data` is too short for a window.
        """
        if not data:
            return None
        split = len(data) - self.window_size
        if split < 0:
            raise SerializationError(
                f"Cannot read {data!r} from {topic!r}: a windowed key has at least {self.window_size} bytes."
            )
        return Windowed(self.inner.deserialize(topic, data[:split], headers), self._read_window(data[split:]))

    def serialize_column(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> list[bytes | None]:
        """Serialise each Windowed; None stays None. Windows shared by many keys are written once."""
        if set(map(type, values)) != {Windowed}:
            return super().serialize_column(topic, values, headers)
        keys = self.inner.serialize_column(topic, [key for key, _ in values], headers)
        if None in keys:
            return super().serialize_column(topic, values, headers)
        windows = _remembered(self._write_window)
        return [key + windows(window) for key, (_, window) in zip(keys, values, strict=True)]

    def deserialize_column(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> list[Any]:
        """Deserialise each Windowed; None stays None. Windows shared by many keys are read once."""
        size = self.window_size
        if any(item is None or len(item) < size for item in data):
            return super().deserialize_column(topic, data, headers)
        keys = self.inner.deserialize_column(topic, [item[:-size] for item in data], headers)  # type: ignore[index]  # no item is None
        windows = _remembered(self._read_window)
        return [Windowed(key, windows(item[-size:])) for key, item in zip(keys, data, strict=True)]  # type: ignore[index]  # as above


def _remembered(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `function` with a cache for one column: it has far fewer windows than rows."""
    known: dict[Any, Any] = {}

    def call(argument: Any) -> Any:
        result = known.get(argument)
        if result is None:
            result = known[argument] = function(argument)
        return result

    return call


class TimeWindowedSerde(WindowedSerde):
    """Keys of time windows of one size, which readers must know (Kafka class: WindowedSerdes.TimeWindowedSerde).

    Args:
        inner: the serde of the keys.
        window_size_ms: size of the windows that are read; they end at the largest time at the latest.
    """

    window_size = _TIME.size

    def __init__(self, inner: Serde, window_size_ms: int = LONG_MAX) -> None:
        super().__init__(inner)
        self.window_size_ms = window_size_ms

    def _write_window(self, window: Window) -> bytes:
        return _TIME.pack(window.start)

    def _read_window(self, data: bytes) -> Window:
        return TimeWindow.of_size(_TIME.unpack(data)[0], self.window_size_ms)


class CalendarWindowedSerde(WindowedSerde):
    """Keys of calendar windows, with the bytes of TimeWindowedSerde; the calendar has the ends.

    Args:
        inner: the serde of the keys.
        windows: the windows that are read.

    Raises:
        TypeError: the windows are not those of a calendar.
    """

    window_size = _TIME.size

    def __init__(self, inner: Serde, windows: CalendarWindows) -> None:
        super().__init__(inner)
        if not isinstance(windows, CalendarWindows):
            raise TypeError(
                f"Expected CalendarWindows, got {windows!r}: write CalendarWindows.days(zone, grace), for example. "
                "WindowedSerdes.time_windowed is for the keys of other windows."
            )
        self.windows = windows

    def _write_window(self, window: Window) -> bytes:
        return _TIME.pack(window.start)

    def _read_window(self, data: bytes) -> Window:
        return self.windows.window_from(_TIME.unpack(data)[0])


class SessionWindowedSerde(WindowedSerde):
    """Keys of sessions (Kafka class: WindowedSerdes.SessionWindowedSerde).

    Args:
        inner: the serde of the keys.
    """

    window_size = _END_AND_START.size

    def __init__(self, inner: Serde) -> None:
        super().__init__(inner)

    def _write_window(self, window: Window) -> bytes:
        return _END_AND_START.pack(window.end, window.start)

    def _read_window(self, data: bytes) -> Window:
        end, start = _END_AND_START.unpack(data)
        return SessionWindow(start, end)


class WindowedSerdes:
    """Creates the serdes of windowed keys (Kafka class: WindowedSerdes)."""

    @staticmethod
    def time_windowed(inner: Serde, window_size_ms: Duration = LONG_MAX) -> TimeWindowedSerde:
        """Return the serde of keys of time windows (Kafka: timeWindowedSerdeFrom).

        window_size_ms: size of the windows (ms, or a timedelta); without it, read windows have no end. TypeError for
        others.
        """
        return TimeWindowedSerde(inner, milliseconds(window_size_ms, "window_size_ms"))

    @staticmethod
    def calendar_windowed(inner: Serde, windows: CalendarWindows) -> CalendarWindowedSerde:
        """Return the serde of keys of calendar windows, whose bytes are those of `time_windowed`.

        windows: the windows that are read; they determine the ends. TypeError for windows of other classes.
        """
        return CalendarWindowedSerde(inner, windows)

    @staticmethod
    def session_windowed(inner: Serde) -> SessionWindowedSerde:
        """Return the serde of session keys (Kafka: sessionWindowedSerdeFrom)."""
        return SessionWindowedSerde(inner)
