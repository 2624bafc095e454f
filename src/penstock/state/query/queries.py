"""What can be asked of a store (interactive queries, version 2; KIP-796): plain values. Times are ms, and both ends of
a range belong to it.

Each query says what its result is. A user's store may answer its own queries: derive them from `Query`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self


class ResultOrder(Enum):
    """In which order entries are wanted (Kafka class: ResultOrder)."""

    ANY = "ANY"
    ASCENDING = "ASCENDING"
    DESCENDING = "DESCENDING"


class Query:
    """Something that can be asked of a store (Kafka class: Query)."""


@dataclass(frozen=True)
class KeyQuery(Query):
    """Asks a key-value store for the value of a key, without its timestamp; None if there is none (Kafka class:
    KeyQuery).

    cache_skipped: leave out what is not committed; answers never have that, so this changes nothing.
    """

    key: Any
    cache_skipped: bool = False

    @classmethod
    def with_key(cls, key: Any) -> Self:
        """Ask for `key`; raises TypeError for None."""
        return cls(_checked(key))

    def skip_cache(self) -> Self:
        """Return a copy that leaves out what is not committed."""
        return replace(self, cache_skipped=True)


@dataclass(frozen=True)
class TimestampedKeyQuery(KeyQuery):
    """Asks a timestamped key-value store for the ValueAndTimestamp of a key, None if there is none (Kafka class:
    TimestampedKeyQuery)."""


@dataclass(frozen=True)
class RangeQuery(Query):
    """Asks a key-value store for an iterator of (key, value) over the keys from `lower` to `upper`, None for an open
    end, in the byte order of the serialised keys (Kafka class: RangeQuery)."""

    lower: Any = None
    upper: Any = None
    order: ResultOrder = ResultOrder.ANY

    @classmethod
    def with_range(cls, lower: Any, upper: Any) -> Self:
        """Ask for the keys from `lower` to `upper`, None for an open end."""
        return cls(lower, upper)

    @classmethod
    def with_lower_bound(cls, lower: Any) -> Self:
        """Ask for the keys from `lower` on; raises TypeError for None."""
        return cls(lower=_checked(lower))

    @classmethod
    def with_upper_bound(cls, upper: Any) -> Self:
        """Ask for the keys up to `upper`; raises TypeError for None."""
        return cls(upper=_checked(upper))

    @classmethod
    def with_no_bounds(cls) -> Self:
        """Ask for all keys."""
        return cls()

    def with_ascending_keys(self) -> Self:
        """Return a copy that asks for the smallest key first."""
        return replace(self, order=ResultOrder.ASCENDING)

    def with_descending_keys(self) -> Self:
        """Return a copy that asks for the largest key first."""
        return replace(self, order=ResultOrder.DESCENDING)


@dataclass(frozen=True)
class TimestampedRangeQuery(RangeQuery):
    """As RangeQuery, of a timestamped store; values are ValueAndTimestamp (Kafka class: TimestampedRangeQuery)."""


@dataclass(frozen=True)
class WindowKeyQuery(Query):
    """Asks a window store for an iterator of (window start, value) over the windows of a key that start from
    `time_from` to `time_to` (Kafka class: WindowKeyQuery). Values of a timestamped store are ValueAndTimestamp."""

    key: Any
    time_from: int | None = None
    time_to: int | None = None

    @staticmethod
    def with_key_and_window_start_range(key: Any, time_from: int, time_to: int) -> WindowKeyQuery:
        """Ask for the windows of `key` that start from `time_from` to `time_to` (ms); raises TypeError for None."""
        return WindowKeyQuery(_checked(key), _checked(time_from), _checked(time_to))


@dataclass(frozen=True)
class WindowRangeQuery(Query):
    """Asks a window store for an iterator of (Windowed, value) over the windows of all keys that start from `time_from`
    to `time_to`, or a session store for the sessions of `key` (Kafka class: WindowRangeQuery)."""

    key: Any = None
    time_from: int | None = None
    time_to: int | None = None

    @staticmethod
    def with_key(key: Any) -> WindowRangeQuery:
        """Ask for the sessions of `key`; raises TypeError for None."""
        return WindowRangeQuery(_checked(key))

    @staticmethod
    def with_window_start_range(time_from: int, time_to: int) -> WindowRangeQuery:
        """Ask for the windows of all keys that start from `time_from` to `time_to` (ms); raises TypeError for None."""
        return WindowRangeQuery(None, _checked(time_from), _checked(time_to))


@dataclass(frozen=True)
class VersionedKeyQuery(Query):
    """Asks a versioned store for the VersionedRecord of a key that is the latest, or was valid at a time; None if there
    is none (Kafka class: VersionedKeyQuery)."""

    key: Any
    as_of_timestamp: int | None = None

    @staticmethod
    def with_key(key: Any) -> VersionedKeyQuery:
        """Ask for the latest version of `key`; raises TypeError for None."""
        return VersionedKeyQuery(_checked(key))

    def as_of(self, timestamp: int) -> VersionedKeyQuery:
        """Return a copy that asks for the version that was valid at `timestamp` (ms); raises TypeError for None."""
        return replace(self, as_of_timestamp=_checked(timestamp))


@dataclass(frozen=True)
class MultiVersionedKeyQuery(Query):
    """Asks a versioned store for an iterator of the VersionedRecords of a key that were valid at some time from
    `time_from` to `time_to`, None for an open end; the latest first, unless ascending order is requested (Kafka class:
    MultiVersionedKeyQuery)."""

    key: Any
    time_from: int | None = None
    time_to: int | None = None
    order: ResultOrder = ResultOrder.ANY

    @staticmethod
    def with_key(key: Any) -> MultiVersionedKeyQuery:
        """Ask for all versions of `key`; raises TypeError for None."""
        return MultiVersionedKeyQuery(_checked(key))

    def from_time(self, time: int | None) -> MultiVersionedKeyQuery:
        """Return a copy that leaves out versions that were replaced before `time` (ms) or at it."""
        return replace(self, time_from=time)

    def to_time(self, time: int | None) -> MultiVersionedKeyQuery:
        """Return a copy that leaves out versions that are valid only after `time` (ms)."""
        return replace(self, time_to=time)

    def with_ascending_timestamps(self) -> MultiVersionedKeyQuery:
        """Return a copy that asks for the oldest version first."""
        return replace(self, order=ResultOrder.ASCENDING)

    def with_descending_timestamps(self) -> MultiVersionedKeyQuery:
        """Return a copy that asks for the latest version first."""
        return replace(self, order=ResultOrder.DESCENDING)


def _checked(value: Any) -> Any:
    if value is None:
        raise TypeError("A query needs a key or a time, got None.")
    return value
