"""Stores that keep the history of values (Kafka classes: MeteredVersionedKeyValueStore, RocksDBVersionedStore).

The latest version of a key is a separate entry and never expires. Every older version is an entry with the start and
end of its validity, in the segment of the end, so that it expires when it is no longer readable. A key without a value
from some time on has a version that ends there, or an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, cast

from penstock.record import Int64Array
from penstock.state.api import BaseView
from penstock.state.change_logging_store import StoreChangeLog
from penstock.state.guarded import GuardedReads
from penstock.state.layouts import (
    LATEST_PREFIX,
    SEGMENT_SIZE,
    TIMESTAMP_SIZE,
    VERSION_SUFFIX_SIZE,
    after,
    after_prefix,
    pack_segment,
    pack_timestamp,
    pack_version,
    timestamp_of,
    version_of,
)
from penstock.state.segmented import SegmentedStore
from penstock.state.state_serdes import StateSerdes
from penstock.state.suppliers import VersionedBytesStoreSupplier
from penstock.state.table import StoreTable
from penstock.state.typed_store import TypedStore
from penstock.state.uncommitted import UncommittedStore
from penstock.state.versioned_api import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    VersionedRecord,
)
from penstock.windows import LONG_MAX

_NO_VALUE = b"\x00"
_VALUE = b"\x01"

_LATEST, _HISTORY = "latest", "history"
"""The names of the parts for readers."""


class _Version(NamedTuple):
    """A version before the latest, from the key of its entry; data of None: no value."""

    entry_key: bytes
    valid_from: int
    valid_to: int
    data: bytes | None


class TypedVersionedKeyValueStore(TypedStore, StoreTable):
    """A versioned store of objects (implements VersionedKeyValueStore and EngineVersionedKeyValueStore).

    Args:
        serdes: the serdes of the store.
        supplier: the description of the store.
        latest: the latest versions, below `history`.
        history: the uncommitted writes of older versions.
        log: receives every version, also late ones, as in Kafka.
    """

    kind_name = "versioned key-value"
    _calls: ClassVar[Mapping[str, str]] = {**TypedStore._calls, "get": "get", "put": "put", "delete": "delete"}

    def __init__(
        self,
        serdes: StateSerdes,
        supplier: VersionedBytesStoreSupplier,
        latest: UncommittedStore,
        history: SegmentedStore,
        log: StoreChangeLog | None,
    ) -> None:
        super().__init__(serdes, history, None, persistent=True)
        self._log = log
        self._latest = latest
        self._history = history
        self._history_retention = supplier.history_retention_ms
        self._interval = supplier.segment_interval_ms

    # ---------- interface for users

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Store the version of `key` valid from `timestamp` (ms); None deletes the key.

        Returns the end of its validity: PUT_RETURN_CODE_VALID_TO_UNDEFINED for the latest version,
        PUT_RETURN_CODE_NOT_PUT if it is older than the history. Raises TypeError for a None key.
        """
        return self.put_serialized(self._serialize_key(key), self._serdes.serialize_value(value), timestamp)

    def put_serialized(self, key: bytes, data: bytes | None, timestamp: int) -> int:
        """Like `put`, with key and value as bytes."""
        if self._log is not None:
            self._log.put_version(key, data, timestamp)
        return self._put(key, data, timestamp) if self._accepts(timestamp) else PUT_RETURN_CODE_NOT_PUT

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Delete `key` from `timestamp` (ms) on; return the version that was valid then.

        Returns None if it had no version then or the delete is late.
        """
        serialized = self._serialize_key(key)
        if self._log is not None:
            self._log.put_version(serialized, None, timestamp)
        if not self._accepts(timestamp):
            return None
        before = self.get_version(key, timestamp)
        self._put(serialized, None, timestamp)
        return _plain(before)

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest version of `key`, or the version valid at `as_of` (ms).

        Returns None if absent, or if `as_of` is before the history and the latest version is later.
        """
        return _plain(self.get_version(key, as_of))

    # ---------- interface for queries

    @property
    def oldest_known(self) -> int:
        """The oldest time (ms) at which all versions are known; before it, only latest versions are."""
        return self._history.observed_time - self._history_retention

    def get_version(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Like `get`, but the record includes the end of its validity."""
        serialized = self._serialize_key(key)
        latest = self._latest.get(LATEST_PREFIX + serialized)
        if latest is not None and (as_of is None or timestamp_of(latest) <= as_of):
            return self._record(latest[TIMESTAMP_SIZE:], timestamp_of(latest), None)
        if as_of is None or as_of < self.oldest_known:
            return None
        found = self._first_that_ends_after(serialized, as_of)
        if found is None or found.valid_from > as_of or found.data is None:
            return None
        return self._record(found.data, found.valid_from, found.valid_to)

    def versions(
        self, key: Any, time_from: int | None, time_to: int | None, ascending: bool
    ) -> Iterator[VersionedRecord]:
        """Return an iterator over the versions of `key` valid between two times (ms).

        The versions are in the history and were valid at some time from `time_from` to `time_to`, None for an open end;
        the latest comes first unless `ascending`. The current version is always in the history.
        """
        serialized = self._serialize_key(key)
        first, last = -1 if time_from is None else time_from, LONG_MAX if time_to is None else time_to
        found: list[VersionedRecord] = []
        if last >= self.oldest_known:
            found += [
                self._record(version.data, version.valid_from, version.valid_to)
                for version in self._versions_that_end_after(serialized, max(first, -1))
                if version.data is not None and version.valid_from <= last
            ]
        latest = self._latest.get(LATEST_PREFIX + serialized)
        if latest is not None and timestamp_of(latest) <= last:
            found.append(self._record(latest[TIMESTAMP_SIZE:], timestamp_of(latest), None))
        return iter(found if ascending else reversed(found))

    def all_versions(self) -> Iterator[tuple[Any, VersionedRecord]]:
        """Yield all keys and their readable versions, as `get_version` returns them, in no order."""
        for segment in self._history.segments(0, LONG_MAX):
            for entry_key, value in self._history.range(segment, after_prefix(segment), False):
                if value != _NO_VALUE:
                    key = self._serdes.deserialize_key(entry_key[SEGMENT_SIZE:-VERSION_SUFFIX_SIZE])
                    valid_to, valid_from = version_of(entry_key)
                    yield key, self._record(value[1:], valid_from, valid_to)
        yield from self.all()

    def all(self) -> Iterator[tuple[Any, VersionedRecord]]:
        """Return an iterator over all keys and their latest versions, in serialised key order."""
        self._check_open()
        for key, latest in self._latest.range(LATEST_PREFIX, after_prefix(LATEST_PREFIX), False):
            plain = self._serdes.deserialize_key(key[len(LATEST_PREFIX) :])
            yield plain, self._record(latest[TIMESTAMP_SIZE:], timestamp_of(latest), None)

    def over(self, reads: Callable[[str], GuardedReads]) -> Self:
        """Return a view of the store for readers, see `TypedStore`."""
        shown = super().over(reads)
        shown._latest = cast("UncommittedStore", reads(_LATEST))  # readers only read
        shown._history = cast("SegmentedStore", reads(_HISTORY))
        return shown

    def _parts(self) -> Mapping[str, Any]:
        """Return the stores of bytes for readers, by name."""
        return {**super()._parts(), _LATEST: self._latest, _HISTORY: self._history}

    # ---------- interface for the task

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Put the versions of changelog records of `timestamps` (ms), in order."""
        for key, value, timestamp in zip(keys, values, timestamps.tolist(), strict=True):
            self.put_serialized(key, value, timestamp)

    # ---------- helpers

    def _accepts(self, timestamp: int) -> bool:
        if timestamp < self.oldest_known:
            self._history.count_dropped(1)
            return False
        return True

    def _record(self, data: bytes, timestamp: int, valid_to: int | None) -> VersionedRecord:
        return VersionedRecord(self._serdes.deserialize_value(data), timestamp, valid_to)

    def _put(self, key: bytes, data: bytes | None, timestamp: int) -> int:
        self._history.observe(timestamp)
        latest = self._latest.get(LATEST_PREFIX + key)
        if latest is not None and timestamp >= timestamp_of(latest):
            if timestamp > timestamp_of(latest):
                self._insert(key, timestamp_of(latest), timestamp, latest[TIMESTAMP_SIZE:])
            return self._put_latest(key, data, timestamp)
        following = self._first_that_ends_after(key, timestamp)
        if following is not None:
            return self._put_before(following, key, data, timestamp)
        if latest is not None:
            self._insert(key, timestamp, timestamp_of(latest), data)
            return timestamp_of(latest)
        if data is None and not self._ends_at(key, timestamp):
            self._insert(key, timestamp, timestamp, None)  # an empty version: no other entry records the delete
        return self._put_latest(key, data, timestamp)

    def _put_latest(self, key: bytes, data: bytes | None, timestamp: int) -> int:
        self._latest.put(LATEST_PREFIX + key, None if data is None else pack_timestamp(timestamp) + data)
        return PUT_RETURN_CODE_VALID_TO_UNDEFINED

    def _put_before(self, following: _Version, key: bytes, data: bytes | None, timestamp: int) -> int:
        """Put a version before `following`, the first that ends later: inside it, or in a gap."""
        if following.valid_from > timestamp:
            self._insert(key, timestamp, following.valid_from, data)
            return following.valid_from
        if following.valid_from < timestamp:
            self._history.put(following.entry_key, None)
            self._insert(key, following.valid_from, timestamp, following.data)
        self._insert(key, timestamp, following.valid_to, data)
        return following.valid_to

    def _insert(self, key: bytes, valid_from: int, valid_to: int, data: bytes | None) -> None:
        entry_key = pack_segment(valid_to // self._interval) + key + pack_version(valid_to, valid_from)
        self._history.put(entry_key, _NO_VALUE if data is None else _VALUE + data)

    def _first_that_ends_after(self, key: bytes, time: int) -> _Version | None:
        return next(self._versions_that_end_after(key, time), None)

    def _versions_that_end_after(self, key: bytes, time: int) -> Iterator[_Version]:
        """Yield the versions of `key` before the latest that end after `time` (ms), oldest first."""
        first, last = key + pack_version(time + 1, 0), after(key + pack_version(LONG_MAX, LONG_MAX))
        size = SEGMENT_SIZE + len(key) + VERSION_SUFFIX_SIZE
        for segment in self._history.segments(time + 1, LONG_MAX):
            for entry_key, value in self._history.range(segment + first, segment + last, False):
                if len(entry_key) == size:  # longer keys may contain the same bytes
                    valid_to, valid_from = version_of(entry_key)
                    yield _Version(entry_key, valid_from, valid_to, None if value == _NO_VALUE else value[1:])

    def _ends_at(self, key: bytes, time: int) -> bool:
        found = self._first_that_ends_after(key, time - 1)
        return found is not None and found.valid_to == time


def _plain(record: VersionedRecord | None) -> VersionedRecord | None:
    """Return `record` without the end of its validity."""
    return None if record is None else VersionedRecord(record.value, record.timestamp)


def versions_of(view: BaseView) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield start of validity (ms), key and value of each version of a store.

    A value of None is a delete. Ends of versions come first, as deletes: a version that starts at that time is yielded
    later.
    """
    for entry_key, _ in view.range(None, LATEST_PREFIX, False):
        yield version_of(entry_key)[0], entry_key[SEGMENT_SIZE:-VERSION_SUFFIX_SIZE], None
    for entry_key, value in view.range(None, LATEST_PREFIX, False):
        data = None if value == _NO_VALUE else value[1:]
        yield version_of(entry_key)[1], entry_key[SEGMENT_SIZE:-VERSION_SUFFIX_SIZE], data
    for entry_key, value in view.range(LATEST_PREFIX, None, False):
        yield timestamp_of(value), entry_key[len(LATEST_PREFIX) :], value[TIMESTAMP_SIZE:]
