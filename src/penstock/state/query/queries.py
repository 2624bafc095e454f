"""Queries of stores (interactive queries, version 2; KIP-796): plain values.

Times are ms, and both ends of a range are inclusive. Each query describes its result. A user-defined store may answer
its own queries: derive them from `Query`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self


class ResultOrder(Enum):
    """The order of entries in a result (Kafka class: ResultOrder)."""

    ANY = "ANY"
    ASCENDING = "ASCENDING"
    DESCENDING = "DESCENDING"


class Query:
    """A query of a store (Kafka class: Query)."""


@dataclass(frozen=True)
class KeyQuery(Query):
    """Queries the value of a key in a key-value store, without timestamp (Kafka class: KeyQuery).

    The result is None if absent.

    Args:
        key: the key.
        cache_skipped: omit uncommitted writes; answers never include them, so this has no effect.
    """

    key: Any
    cache_skipped: bool = False

    @classmethod
    def with_key(cls, key: Any) -> Self:
        """Return a query for `key`; raises TypeError for None."""
        return cls(_checked(key))

    def skip_cache(self) -> Self:
        """Return a copy that omits uncommitted writes."""
        return replace(self, cache_skipped=True)


@dataclass(frozen=True)
class TimestampedKeyQuery(KeyQuery):
    """Queries the ValueAndTimestamp of a key in a timestamped store, or None if absent.

    Kafka class: TimestampedKeyQuery.
    """


@dataclass(frozen=True)
class TimestampedKeyWithHeadersQuery(KeyQuery):
    """Queries the ReadOnlyRecord of a key in a store with headers, or None if absent (KIP-1356).

    On the threads host, `skip_cache` omits the writes in the record cache. Kafka class: TimestampedKeyWithHeadersQuery.
    """


@dataclass(frozen=True)
class RangeQuery(Query):
    """Queries a key range of a key-value store (Kafka class: RangeQuery).

    The result is an iterator of (key, value) over the keys from `lower` to `upper`, None for an open end, in byte order
    of the serialised keys.
    """

    lower: Any = None
    upper: Any = None
    order: ResultOrder = ResultOrder.ANY

    @classmethod
    def with_range(cls, lower: Any, upper: Any) -> Self:
        """Return a query for the keys from `lower` to `upper`, None for an open end."""
        return cls(lower, upper)

    @classmethod
    def with_lower_bound(cls, lower: Any) -> Self:
        """Return a query for the keys from `lower` on; raises TypeError for None."""
        return cls(lower=_checked(lower))

    @classmethod
    def with_upper_bound(cls, upper: Any) -> Self:
        """Return a query for the keys up to `upper`; raises TypeError for None."""
        return cls(upper=_checked(upper))

    @classmethod
    def with_no_bounds(cls) -> Self:
        """Return a query for all keys."""
        return cls()

    def with_ascending_keys(self) -> Self:
        """Return a copy in ascending order of keys."""
        return replace(self, order=ResultOrder.ASCENDING)

    def with_descending_keys(self) -> Self:
        """Return a copy in descending order of keys."""
        return replace(self, order=ResultOrder.DESCENDING)


@dataclass(frozen=True)
class TimestampedRangeQuery(RangeQuery):
    """Like RangeQuery, with ValueAndTimestamp values of a timestamped store (Kafka class: TimestampedRangeQuery)."""


@dataclass(frozen=True)
class TimestampedRangeWithHeadersQuery(RangeQuery):
    """Like RangeQuery, with a ReadOnlyRecordIterator over a store with headers (KIP-1356).

    Kafka class: TimestampedRangeWithHeadersQuery.
    """


@dataclass(frozen=True)
class WindowKeyQuery(Query):
    """Queries an iterator of (window start, value) for a key (Kafka class: WindowKeyQuery).

    It has the windows starting from `time_from` to `time_to`. Values of a timestamped store are ValueAndTimestamp.
    """

    key: Any
    time_from: int | None = None
    time_to: int | None = None

    @classmethod
    def with_key_and_window_start_range(cls, key: Any, time_from: int, time_to: int) -> Self:
        """Return a query for windows of `key` starting from `time_from` to `time_to` (ms).

        Raises TypeError for None.
        """
        return cls(_checked(key), _checked(time_from), _checked(time_to))


@dataclass(frozen=True)
class TimestampedWindowKeyWithHeadersQuery(WindowKeyQuery):
    """Like WindowKeyQuery, with a ReadOnlyRecordIterator over a store with headers (KIP-1356).

    The keys of the records are Windowed. Kafka class: TimestampedWindowKeyWithHeadersQuery.
    """


@dataclass(frozen=True)
class WindowRangeQuery(Query):
    """Queries an iterator of (Windowed, value) (Kafka class: WindowRangeQuery).

    In a window store, it has the windows of all keys starting from `time_from` to `time_to`; in a session store, the
    sessions of `key`.
    """

    key: Any = None
    time_from: int | None = None
    time_to: int | None = None

    @classmethod
    def with_key(cls, key: Any) -> Self:
        """Return a query for the sessions of `key`; raises TypeError for None."""
        return cls(_checked(key))

    @classmethod
    def with_window_start_range(cls, time_from: int, time_to: int) -> Self:
        """Return a query for windows of all keys starting from `time_from` to `time_to` (ms).

        Raises TypeError for None.
        """
        return cls(None, _checked(time_from), _checked(time_to))


@dataclass(frozen=True)
class TimestampedWindowRangeWithHeadersQuery(WindowRangeQuery):
    """Like WindowRangeQuery, with a ReadOnlyRecordIterator over a store with headers (KIP-1356).

    The keys of the records are Windowed. The timestamp of a session's record is the end of the session. Kafka class:
    TimestampedWindowRangeWithHeadersQuery.
    """


@dataclass(frozen=True)
class VersionedKeyQuery(Query):
    """Queries one VersionedRecord of a key, or None if absent (Kafka class: VersionedKeyQuery).

    The version is the latest, or the one valid at a given time.
    """

    key: Any
    as_of_timestamp: int | None = None

    @staticmethod
    def with_key(key: Any) -> VersionedKeyQuery:
        """Return a query for the latest version of `key`; raises TypeError for None."""
        return VersionedKeyQuery(_checked(key))

    def as_of(self, timestamp: int) -> VersionedKeyQuery:
        """Return a copy for the version valid at `timestamp` (ms); raises TypeError for None."""
        return replace(self, as_of_timestamp=_checked(timestamp))


@dataclass(frozen=True)
class MultiVersionedKeyQuery(Query):
    """Queries an iterator of the VersionedRecords of a key (Kafka class: MultiVersionedKeyQuery).

    The versions were valid at some time from `time_from` to `time_to`, None for an open end; the latest comes first,
    unless ascending order is requested.
    """

    key: Any
    time_from: int | None = None
    time_to: int | None = None
    order: ResultOrder = ResultOrder.ANY

    @staticmethod
    def with_key(key: Any) -> MultiVersionedKeyQuery:
        """Return a query for all versions of `key`; raises TypeError for None."""
        return MultiVersionedKeyQuery(_checked(key))

    def from_time(self, time: int | None) -> MultiVersionedKeyQuery:
        """Return a copy without versions replaced at or before `time` (ms)."""
        return replace(self, time_from=time)

    def to_time(self, time: int | None) -> MultiVersionedKeyQuery:
        """Return a copy without versions that become valid after `time` (ms)."""
        return replace(self, time_to=time)

    def with_ascending_timestamps(self) -> MultiVersionedKeyQuery:
        """Return a copy with the oldest version first."""
        return replace(self, order=ResultOrder.ASCENDING)

    def with_descending_timestamps(self) -> MultiVersionedKeyQuery:
        """Return a copy with the latest version first."""
        return replace(self, order=ResultOrder.DESCENDING)


def _checked(value: Any) -> Any:
    if value is None:
        raise TypeError("A query needs a key or a time, got None.")
    return value
