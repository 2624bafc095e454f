"""Collects the changelog records of a task's stores, for hosts that write them: the last one per key and commit; of a
versioned store every version.

The records are created when a store is written, below its cache, because only then the record that causes the write is
known. What a commit removes because it has expired never comes here, because such records expire in a changelog topic
anyway. Their bytes are the business of `changelog_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap

from penstock.record import Headers, RecordBatch
from penstock.state.api import BufferedBytesStore, RecordContext
from penstock.state.changelog_format import ChangelogFormat, ChangelogRecord
from penstock.state.wrapped import WrappedBytesStore


class ChangeLog:
    """The changelog records of a task since its last commit."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        """Collect those of the stores in `topics`, which names the changelog topic of each."""
        self._topics = topics
        self._records: dict[tuple[str, bytes, int], ChangelogRecord] = {}
        self._versions = 0

    def logs(self, store_name: str) -> bool:
        """Return whether the changes of a store are collected."""
        return store_name in self._topics

    def add(self, store_name: str, records: Iterable[ChangelogRecord]) -> None:
        """Take records of a store, each in place of the one with the same key."""
        logged = self._records
        for record in records:
            place = store_name, record.key, 0
            logged.pop(place, None)
            logged[place] = record

    def add_version(self, store_name: str, record: ChangelogRecord) -> None:
        """Take a record of a versioned store: all are needed, since one may be refused that another comes before."""
        self._versions += 1
        self._records[store_name, record.key, self._versions] = record

    def take(self) -> list[tuple[str, ChangelogRecord]]:
        """Give up topic and record of all changes, in the order of the last writes."""
        taken = [(self._topics[place[0]], record) for place, record in self._records.items()]
        self._records.clear()
        self._versions = 0
        return taken

    def take_batches(self, now_ms: int) -> dict[str, RecordBatch]:
        """Give up the records of all changes by topic, as columns, each topic in the order of the last writes; a record
        without a timestamp gets `now_ms`, the time of writing."""
        rows: dict[str, list[tuple[bytes, bytes | None, int, int, Headers]]] = {}
        for topic, record in self.take():
            own = rows.setdefault(topic, [])
            time = now_ms if record.timestamp is None else max(record.timestamp, 0)
            own.append((record.key, record.value, time, len(own), record.headers))
        return {topic: RecordBatch.of(own) for topic, own in rows.items()}


class StoreChangeLog:
    """Puts the changes of one store into the log of its task."""

    def __init__(
        self, name: str, format: ChangelogFormat, context: Callable[[], RecordContext], change_log: ChangeLog
    ) -> None:
        """Serve the store `name`, whose changelog has `format`; `context` gives the record that causes a write."""
        self._name = name
        self._format = format
        self._context = context
        self._change_log = change_log

    def put(self, key: bytes, value: bytes | None) -> None:
        """Note the write of `value` under `key` (None deletes) with the context of now."""
        self._change_log.add(self._name, [self._format.record(key, value, self._context())])

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None
    ) -> None:
        """Note a write for each of `keys`, with the context at its place or, without contexts, that of now."""
        given = [self._context()] * len(keys) if contexts is None else contexts
        self._change_log.add(self._name, starmap(self._format.record, zip(keys, values, given, strict=True)))

    def put_version(self, key: bytes, value: bytes | None, valid_from: int) -> None:
        """Note a version that is valid from `valid_from` (ms)."""
        record = self._format.record(key, value, RecordContext(valid_from, ()))
        self._change_log.add_version(self._name, record)


class ChangeLoggingStore(WrappedBytesStore):
    """Tells every write of the store below to its changelog (Kafka class: ChangeLoggingKeyValueBytesStore)."""

    def __init__(self, below: BufferedBytesStore, log: StoreChangeLog) -> None:
        """Write to `below` first, then to `log`."""
        super().__init__(below)
        self._log = log

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        super().put(key, value)
        self._log.put(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each of `values` under the key at its place; None deletes."""
        super().put_many(keys, values, contexts)
        self._log.put_many(keys, values, contexts)
