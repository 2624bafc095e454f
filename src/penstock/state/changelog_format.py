"""The format of Kafka Streams' changelog topics: conversion between a store's changes and records, byte for byte.

A change is a key and a value as the layers of a store have them, and the context of the record that caused it. Most
differences are small: the segment in front of a window's or session's key is ours alone; a timestamp and headers kept
with a value belong to the record, not to its value; a buffer puts the due times into the values of its records. No I/O,
no serdes. `change_logging_store` collects the changes; `build.restore_store` applies the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from penstock.errors import ProcessorStateError
from penstock.record import Headers, RecordBatch
from penstock.state.api import RecordContext
from penstock.state.buffered_change import Origins, pack_change, unpack_change, with_origins
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
"""Marks the value layout of a `suppress` buffer: its third version."""

_PRIOR_ORIGIN, _OLD_ORIGIN = "vh.prior", "vh.old"

_TIME_FIRST = b"\x00"
_NO_TIME = bytes(TIMESTAMP_SIZE)


class ChangelogRecord(msgspec.Struct, frozen=True, gc=False):  # gc: as RecordContext
    """A record of a changelog topic.

    Args:
        value: None deletes the key.
        timestamp: in ms; None for the time of writing.
    """

    key: bytes
    value: bytes | None
    timestamp: int | None
    headers: Headers = ()


Entries = tuple[list[bytes], list[bytes | None]]
"""The keys and values of entries; a value of None is a delete."""


class ChangelogFormat(Protocol):
    """Converts changes of one kind of store to changelog records, and back."""

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change (value of None: a delete) caused by the record of `context`."""
        ...

    def entries(self, records: RecordBatch) -> Entries:
        """Return the keys and values of `records`, which all have a key.

        Raises ProcessorStateError for a record that cannot belong to such a store.
        """
        ...


@dataclass(frozen=True)
class ChangelogValues:
    """The prefix of a store's values that belongs to the record.

    Args:
        timestamped: whether values start with a timestamp (ms).
        with_headers: whether values start with headers, in front of the timestamp.
        logs_headers: whether records carry the headers of the record causing the change although the store drops them.
    """

    timestamped: bool = False
    with_headers: bool = False
    logs_headers: bool = False

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a value under `key`, in the format of the changelog."""
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
        """Return the values of the entries of `records`."""
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
    """The same keys in both (Kafka classes: ChangeLoggingKeyValueBytesStore and its subclasses).

    Also for versioned stores, whose changes are versions: the record's timestamp is the start of the version's
    validity.
    """

    values: ChangelogValues

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        return self.values.record(key, value, context)

    def entries(self, records: RecordBatch) -> Entries:
        """Return the entries of `records`."""
        return list(records.keys), self.values.of(records)


@dataclass(frozen=True)
class SegmentedFormat:
    """Entry keys with a segment before the record's key.

    Kafka classes: ChangeLoggingWindowBytesStore, ChangeLoggingSessionBytesStore and their subclasses.

    Args:
        suffix_size: bytes of a key after the user's key.
        time_of: returns the time (ms) that determines the segment.
    """

    values: ChangelogValues
    suffix_size: int
    segment_interval_ms: int
    time_of: Callable[[bytes], int]

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        return self.values.record(key[SEGMENT_SIZE:], value, context)

    def entries(self, records: RecordBatch) -> Entries:
        """Return the entries of `records`."""
        keys: list[bytes] = list(records.keys)
        if min(map(len, keys), default=self.suffix_size) < self.suffix_size:
            raise _unfit(min(keys, key=len), f"a key that ends in {self.suffix_size} bytes of window or session")
        interval, time_of = self.segment_interval_ms, self.time_of
        return [pack_segment(time_of(key) // interval) + key for key in keys], self.values.of(records)


@dataclass(frozen=True)
class ChangeBufferFormat:
    """The buffer of `suppress` (Kafka class: InMemoryTimeOrderedKeyValueChangeBuffer).

    In the record, the time of an update follows its value; in the entry, it precedes the key. A delete has no time: the
    key of its entry is the user's.
    """

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        time, plain = key[:TIMESTAMP_SIZE], key[TIMESTAMP_SIZE:]
        if value is None:
            return ChangelogRecord(plain, None, None)
        return ChangelogRecord(plain, value + time, None, BUFFER_HEADERS)

    def entries(self, records: RecordBatch) -> Entries:
        """Return the entries of `records`."""
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for row, (key, value) in enumerate(zip(records.keys, records.values, strict=True)):
            if value is None:
                keys.append(key)
                values.append(None)
                continue
            headers = records.headers_at(row)
            if dict(headers).get("v") != b"\x03":
                raise _unfit(key, "the header v=3: another version of Kafka Streams wrote it")
            update, time = _split_time(key, value)
            keys.append(time + key)
            values.append(self._update_of(update, headers))
        return keys, values

    def _update_of(self, update: bytes, headers: Headers) -> bytes:
        """Return the value of an entry, from the value of a record without its time, and the headers of the record."""
        return update


@dataclass(frozen=True)
class ChangeBufferWithHeadersFormat(ChangeBufferFormat):
    """The buffer of `suppress` that keeps headers (Kafka class: InMemoryTimeOrderedKeyValueChangeBuffer).

    The origins of the earlier values of an update are headers of the record, that of the prior value only if it is not
    the old one's. An update of another record has no origins: it gets those that Kafka gives it.
    """

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        if value is None:
            return super().record(key, value, context)
        change = unpack_change(value)
        written = super().record(key, pack_change(change._replace(origins=None)), context)
        prior, old = change.origins or (None, None)
        named = ((_PRIOR_ORIGIN, None if change.old_is_prior else prior), (_OLD_ORIGIN, old))
        headers = (*BUFFER_HEADERS, *((name, origin) for name, origin in named if origin is not None))
        return msgspec.structs.replace(written, headers=headers)

    def _update_of(self, update: bytes, headers: Headers) -> bytes:
        change, given = unpack_change(update), dict(headers)
        old = given.get(_OLD_ORIGIN)
        same = change.old_value == change.prior_value and _PRIOR_ORIGIN not in given
        return pack_change(with_origins(change, Origins(old if same else given.get(_PRIOR_ORIGIN), old)))


@dataclass(frozen=True)
class RecordBufferFormat:
    """The buffer of a join with a versioned table (Kafka class: RocksDBTimeOrderedKeyValueBuffer).

    A byte before the key marks it as starting with the time, and a time, always 0, follows the value.
    """

    def record(self, key: bytes, value: bytes | None, context: RecordContext) -> ChangelogRecord:
        """Return the record of a change."""
        return ChangelogRecord(_TIME_FIRST + key, None if value is None else value + _NO_TIME, None)

    def entries(self, records: RecordBatch) -> Entries:
        """Return the entries of `records`."""
        rows = list(zip(records.keys, records.values, strict=True))
        for key, _ in rows:
            if not key.startswith(_TIME_FIRST):
                raise _unfit(key, "a key that begins with a byte of 0 and the time")
        values = [None if value is None else _split_time(key, value)[0] for key, value in rows]
        return [key[len(_TIME_FIRST) :] for key, _ in rows], values


def changelog_format(supplier: StoreSupplier, values: ChangelogValues) -> ChangelogFormat:
    """Return the changelog format of stores of `supplier`; `values` describes the prefix of their values."""
    match supplier:
        case WindowBytesStoreSupplier(segment_interval_ms=interval):
            return SegmentedFormat(values, WINDOW_SUFFIX_SIZE, interval, window_start_of)
        case SessionBytesStoreSupplier(segment_interval_ms=interval):
            return SegmentedFormat(values, SESSION_SUFFIX_SIZE, interval, _session_end)
        case TimeOrderedBufferBytesStoreSupplier():
            return ChangeBufferWithHeadersFormat() if values.with_headers else ChangeBufferFormat()
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
