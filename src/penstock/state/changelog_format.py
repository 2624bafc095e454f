"""What changelog topics of Kafka Streams hold: the record that a change of a store is there, and the entry that such a
record stands for, byte for byte.

A change is key and value as the layers of a store have them, and the context of the record that caused it. Most of the
differences are small: the segment before a key of a window or session is ours alone; a timestamp and the headers that
are kept with a value belong to the record, not to its value; a buffer says in the value of its records when they are
due. No I/O, no serdes. `change_logging_store` collects the changes; `build.restore_store` applies the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from penstock.errors import ProcessorStateError
from penstock.record import Headers, RecordBatch
from penstock.state.api import RecordContext
from penstock.state.headers_layout import pack_headers, unpack_headers
from penstock.state.layouts import (
    SEGMENT_SIZE,
    SESSION_SUFFIX_SIZE,
    TIMESTAMP_SIZE,
    WINDOW_SUFFIX_SIZE,
    join_timestamps,
    pack_segment,
    session_of,
    timestamp_of,
    window_start_of,
)
from penstock.state.suppliers import (
    SessionBytesStoreSupplier,
    StoreSupplier,
    TimeOrderedBufferBytesStoreSupplier,
    TimeOrderedKeyValueBytesStoreSupplier,
    WindowBytesStoreSupplier,
)

BUFFER_HEADERS: Headers = (("v", b"\x03"),)
"""Says how the values of a buffer of `suppress` are laid out: its third version."""

_TIME_FIRST = b"\x00"
_NO_TIME = bytes(TIMESTAMP_SIZE)


class ChangelogRecord(msgspec.Struct, frozen=True, gc=False):  # gc: as RecordContext
    """A record of a changelog topic. value of None: the key is deleted. timestamp: ms, None for the time of writing."""

    key: bytes
    value: bytes | None
    timestamp: int | None
    headers: Headers = ()


Entries = tuple[list[bytes], list[bytes | None]]
"""The keys of entries and their values, None for a delete."""


class ChangelogFormat(Protocol):
    """How the changes of one kind of store are written to a changelog topic, and read from it."""

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change (value of None: a delete) that the record of `context` caused."""
        ...

    def entries(self, records: RecordBatch) -> Entries:
        """Return the keys and values that `records` stand for, all of them with a key; raises ProcessorStateError for
        one that cannot be of such a store."""
        ...


@dataclass(frozen=True)
class ChangelogValues:
    """What the values of a store begin with, but which belongs to the record.

    timestamped: a timestamp (ms). with_headers: headers, before all. logs_headers: the headers of the record that
    causes a change are written, though the store does not keep them.
    """

    timestamped: bool = False
    with_headers: bool = False
    logs_headers: bool = False

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a value under `key`, in the form of the changelog."""
        timestamp, headers = context.timestamp, context.headers
        if not (self.logs_headers or self.with_headers):
            headers = ()
        if value is not None and self.with_headers:
            headers, at = unpack_headers(value)
            value = value[at:]
        if value is not None and self.timestamped:
            timestamp, value = timestamp_of(value), value[TIMESTAMP_SIZE:]
        return ChangelogRecord(key, value, timestamp, headers)

    def of(self, records: RecordBatch) -> list[bytes | None]:
        """Return the values of the entries that `records` stand for."""
        values: list[bytes | None] = list(records.values)
        if self.timestamped:
            values = join_timestamps(records.timestamps, values)
        if self.with_headers:
            values = [
                None if value is None else pack_headers(records.headers_at(row)) + value
                for row, value in enumerate(values)
            ]
        return values


@dataclass(frozen=True)
class KeyValueFormat:
    """Keys are the same in both (Kafka classes: ChangeLoggingKeyValueBytesStore and those that extend it).

    So is it for versioned stores, whose changes are versions: the time of the record is that from which it is valid.
    """

    values: ChangelogValues

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        return self.values.record(key, value, context)

    def entries(self, records: RecordBatch) -> Entries:
        """Return the entries that `records` stand for."""
        return list(records.keys), self.values.of(records)


@dataclass(frozen=True)
class SegmentedFormat:
    """An entry's key is a segment and the key of the record (Kafka classes: ChangeLoggingWindowBytesStore,
    ChangeLoggingSessionBytesStore and those that extend them).

    suffix_size: bytes of a key behind the user's key. time_of: gives the time (ms) that says the segment.
    """

    values: ChangelogValues
    suffix_size: int
    segment_interval_ms: int
    time_of: Callable[[bytes], int]

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        return self.values.record(key[SEGMENT_SIZE:], value, context)

    def entries(self, records: RecordBatch) -> Entries:
        """Return the entries that `records` stand for."""
        keys: list[bytes] = list(records.keys)
        if min(map(len, keys), default=self.suffix_size) < self.suffix_size:
            raise _unfit(min(keys, key=len), f"a key that ends in {self.suffix_size} bytes of window or session")
        interval, time_of = self.segment_interval_ms, self.time_of
        return [pack_segment(time_of(key) // interval) + key for key in keys], self.values.of(records)


@dataclass(frozen=True)
class ChangeBufferFormat:
    """The buffer of `suppress`: in the record the time of an update stands behind its value, in the entry before its
    key (Kafka class: InMemoryTimeOrderedKeyValueChangeBuffer). A delete has no time: its entry's key is the user's."""

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        time, plain = key[:TIMESTAMP_SIZE], key[TIMESTAMP_SIZE:]
        if value is None:
            return ChangelogRecord(plain, None, None)
        return ChangelogRecord(plain, value + time, None, BUFFER_HEADERS)

    def entries(self, records: RecordBatch) -> Entries:
        """Return the entries that `records` stand for."""
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for row, (key, value) in enumerate(zip(records.keys, records.values, strict=True)):
            if value is None:
                keys.append(key)
                values.append(None)
                continue
            if records.headers_at(row) != BUFFER_HEADERS:
                raise _unfit(key, "the header v=3: another version of Kafka Streams wrote it")
            update, time = _split_time(key, value)
            keys.append(time + key)
            values.append(update)
        return keys, values


@dataclass(frozen=True)
class RecordBufferFormat:
    """The buffer of a join with a table as of a time: a byte before the key says that it begins with the time, and the
    value has a time behind it that is always 0 (Kafka class: RocksDBTimeOrderedKeyValueBuffer)."""

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        return ChangelogRecord(_TIME_FIRST + key, None if value is None else value + _NO_TIME, None)

    def entries(self, records: RecordBatch) -> Entries:
        """Return the entries that `records` stand for."""
        rows = list(zip(records.keys, records.values, strict=True))
        for key, _ in rows:
            if not key.startswith(_TIME_FIRST):
                raise _unfit(key, "a key that begins with a byte of 0 and the time")
        values = [None if value is None else _split_time(key, value)[0] for key, value in rows]
        return [key[len(_TIME_FIRST) :] for key, _ in rows], values


def changelog_format(supplier: StoreSupplier, values: ChangelogValues) -> ChangelogFormat:
    """Return how the changes of a store of `supplier` are written, whose values begin with what `values` says."""
    match supplier:
        case WindowBytesStoreSupplier(segment_interval_ms=interval):
            return SegmentedFormat(values, WINDOW_SUFFIX_SIZE, interval, window_start_of)
        case SessionBytesStoreSupplier(segment_interval_ms=interval):
            return SegmentedFormat(values, SESSION_SUFFIX_SIZE, interval, _session_end)
        case TimeOrderedBufferBytesStoreSupplier():
            return ChangeBufferFormat()
        case TimeOrderedKeyValueBytesStoreSupplier():
            return RecordBufferFormat()
        case _:
            return KeyValueFormat(values)


def _session_end(key: bytes) -> int:
    return session_of(key)[0]


def _split_time(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    if len(value) < TIMESTAMP_SIZE:
        raise _unfit(key, f"a value that ends in {TIMESTAMP_SIZE} bytes of time")
    return value[:-TIMESTAMP_SIZE], value[-TIMESTAMP_SIZE:]


def _unfit(key: bytes, expected: str) -> ProcessorStateError:
    return ProcessorStateError(
        f"Cannot restore from the changelog record with key {key!r:.100}: expected {expected}. Is it the "
        "changelog topic of this store, and was it written by Kafka Streams 4 or by Penstock?"
    )
