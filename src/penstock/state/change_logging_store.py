"""Collects the changelog records of a task's stores, for hosts that write them.

It keeps the last record per key and commit; of a versioned store, every version.

The records are created when a store is written, below its cache, because only there the record causing the write is
known. Entries that a commit removes because of their expiry never appear here: such records expire in a changelog topic
anyway. `changelog_format` defines the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap

from penstock.record import Headers, RecordBatch
from penstock.state.api import RecordContext
from penstock.state.bytes_store import BufferedBytesStore
from penstock.state.changelog_format import ChangelogFormat, ChangelogRecord
from penstock.state.wrapped import WrappedBytesStore


class ChangeLog:
    """The changelog records of a task since its last commit.

    Args:
        topics: the changelog topic of each collected store.
    """

    def __init__(self, topics: Mapping[str, str]) -> None:
        self._topics = topics
        self._records: dict[tuple[str, bytes, int], ChangelogRecord] = {}
        self._versions = 0

    def logs(self, store_name: str) -> bool:
        """Return whether the changes of a store are collected."""
        return store_name in self._topics

    def add(self, store_name: str, records: Iterable[ChangelogRecord]) -> None:
        """Add records of a store; each replaces the one with the same key."""
        logged = self._records
        for record in records:
            place = store_name, record.key, 0
            logged.pop(place, None)
            logged[place] = record

    def add_version(self, store_name: str, record: ChangelogRecord) -> None:
        """Add a record of a versioned store.

        All are kept, since a record may be rejected if another comes first.
        """
        self._versions += 1
        self._records[store_name, record.key, self._versions] = record

    def take(self) -> list[tuple[str, ChangelogRecord]]:
        """Remove and return topic and record of all changes, ordered by last write."""
        taken = [(self._topics[place[0]], record) for place, record in self._records.items()]
        self._records.clear()
        self._versions = 0
        return taken

    def take_batches(self, now_ms: int) -> dict[str, RecordBatch]:
        """Remove and return the records of all changes by topic, as columns.

        They are ordered by last write. A record without a timestamp gets `now_ms`, the time of writing.
        """
        rows: dict[str, list[tuple[bytes, bytes | None, int, int, Headers]]] = {}
        for topic, record in self.take():
            own = rows.setdefault(topic, [])
            time = now_ms if record.timestamp is None else max(record.timestamp, 0)
            own.append((record.key, record.value, time, len(own), record.headers))
        return {topic: RecordBatch.of(own) for topic, own in rows.items()}


class StoreChangeLog:
    """Adds the changes of one store to the task's log.

    Args:
        name: the name of the store.
        format: the format of its changelog.
        context: returns the record that causes a write.
        change_log: the task's log.
    """

    def __init__(
        self, name: str, format: ChangelogFormat, context: Callable[[], RecordContext], change_log: ChangeLog
    ) -> None:
        self._name = name
        self._format = format
        self._context = context
        self._change_log = change_log

    def put(self, key: bytes, value: bytes | None) -> None:
        """Log the write of `value` under `key` (None deletes) with the current context."""
        self._change_log.add(self._name, [self._format.record(key, value, self._context())])

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None
    ) -> None:
        """Log a write for each key, with its context or, without contexts, the current one."""
        given = [self._context()] * len(keys) if contexts is None else contexts
        self._change_log.add(self._name, starmap(self._format.record, zip(keys, values, given, strict=True)))

    def put_version(self, key: bytes, value: bytes | None, valid_from: int) -> None:
        """Log a version that is valid from `valid_from` (ms)."""
        record = self._format.record(key, value, RecordContext(valid_from, ()))
        self._change_log.add_version(self._name, record)


class ChangeLoggingStore(WrappedBytesStore):
    """Reports every write of the store below to its changelog (Kafka class: ChangeLoggingKeyValueBytesStore).

    Args:
        below: the store, written first.
        log: the changelog, written second.
    """

    def __init__(self, below: BufferedBytesStore, log: StoreChangeLog) -> None:
        super().__init__(below)
        self._log = log

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        super().put(key, value)
        self._log.put(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each value under its key; None deletes."""
        super().put_many(keys, values, contexts)
        self._log.put_many(keys, values, contexts)
