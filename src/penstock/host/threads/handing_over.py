"""Hands over an application from another host, through its changelog topics and offsets.

An instance, or Kafka Streams in Java, then continues from there. The content of the topics is compared with the state,
and only differences are written: deletes and changes, after the existing records. So copies of the stores on the disks
of instances stay valid, and finished work is not repeated. The offsets are committed last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice, zip_longest
from typing import Final

import orjson

from penstock.client.api import Admin, Fetcher, OffsetAndMetadata, Producer
from penstock.errors import ProcessorStateError
from penstock.host.api import STATE_ELSEWHERE
from penstock.host.commits.committing import offsets_of
from penstock.host.deployment.internal_topics import make_internal_topics
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.lost_topics import topic_entries, used_topics
from penstock.host.storage.task_state import TaskState
from penstock.host.storage.temporary_base import temporary_base
from penstock.host.threads.takeover import unfit_topics
from penstock.plan.subtopology import TaskId
from penstock.record import NO_TIMESTAMP, RecordBatch, TopicPartition
from penstock.state.api import Base, BaseView, Entries, StoreBuilder
from penstock.state.build import changelog_records
from penstock.state.changelog_format import ChangelogRecord
from penstock.state.layouts import TIMESTAMP_SIZE, after, pack_timestamp, timestamp_of
from penstock.state.suppliers import VersionedBytesStoreSupplier
from penstock.task.changelog_copy import ChangelogCopy

_CHUNK: Final = 20_000
"""The number of records compared at a time."""


class HandingOver:
    """Hands over the tasks of one application.

    Args:
        layout: the tasks of the application.
        admin: an admin client.
        fetcher: reads changelogs.
        producer: a producer without transactions.
    """

    def __init__(self, layout: Layout, admin: Admin, fetcher: Fetcher, producer: Producer) -> None:
        self._layout = layout
        self._admin = admin
        self._fetcher = fetcher
        self._producer = producer
        self._group = str(layout.config.required("application.id"))

    def blockers(self, states: Mapping[TaskId, TaskState]) -> Iterator[str]:
        """Yield the blockers to handing over: topics of other stores, or progress since the state."""
        yield from unfit_topics(self._layout, self._admin.topics(), self._admin, self._fetcher)
        positions = {partition: at for state in states.values() for partition, at in state.positions.items()}
        fetched = {partition: at for state in states.values() for partition, at in state.fetched.items()}
        for partition, found in sorted(self._admin.committed_offsets(self._group, list(positions)).items()):
            if found.metadata == STATE_ELSEWHERE:
                known, since = fetched[partition], "Spark has gone on since. Take a savepoint of its last commit, or to"
            else:
                known, since = positions[partition], "an instance has gone on since. To"
            if found.metadata and found.offset > known:  # without metadata, a person has set it
                yield (
                    f"The group {self._group} has read {partition} up to offset {found.offset}, and this state is of "
                    f"offset {known}: {since} go back to this state, delete the offsets of the group first: penstock "
                    f"groups delete {self._group}"
                )

    def write(self, states: Mapping[TaskId, TaskState]) -> int:
        """Create missing topics, write differences and commit offsets. Return the number of records written. Can be
        repeated after an error.

        Raises StreamsError if topics have other partitions, or if the metadata of a task exceeds the limit for offset
        metadata; ProcessorStateError for a changelog of another kind of store; KafkaError if brokers do not answer.
        """
        for task, state in states.items():
            offsets_of(task, state.positions, state.clocks)
        make_internal_topics(self._layout, self._admin, self._admin.topics())
        used = {task: used_topics(self._layout.topology, self._layout.spec(task)) for task in states}
        ids = self._admin.topic_ids(frozenset().union(*used.values()))
        written = 0
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for task, state in sorted(states.items()):
            written += self.write_changelogs(task, state)
            positions = dict(state.positions)
            for partition, records in state.waiting.items():
                positions[partition], sent = self._hand_waiting(partition, records)
                written += sent
            self._producer.flush()
            topics = topic_entries(ids, used[task])
            offsets.update(offsets_of(task, positions, state.clocks, topics))
        self._admin.commit_offsets(self._group, offsets)
        return written

    def write_changelogs(self, task: TaskId, state: TaskState) -> int:
        """Write the records that the changelogs of `task` lack, and return their number. Raises as `write`."""
        written = 0
        for partition, record in self._changes(task, state):
            self._send(partition, record)
            written += 1
        self._producer.flush()
        return written

    def _changes(self, task: TaskId, state: TaskState) -> Iterator[tuple[TopicPartition, ChangelogRecord]]:
        """Yield the records that the changelogs of `task` lack of its state."""
        changelogs = self._layout.followed_changelogs(task)
        if not changelogs:
            return
        stores, now_ms = self._layout.spec(task).stores, max(state.clocks.stream_time, 0)
        with state.entries() as wanted, temporary_base() as there, temporary_base() as scratch:
            self._restore(stores, changelogs, there)
            for name, partition in changelogs.items():
                records = partial(self._records, stores[name], now_ms)
                for record in differences(stores[name], records, there, wanted, now_ms, scratch):
                    yield partition, record

    def _records(self, builder: StoreBuilder, now_ms: int, entries: Entries) -> Iterator[ChangelogRecord]:
        return changelog_records(builder, self._layout.config, entries.view(builder.name), now_ms, temporary_base)

    def _restore(
        self, stores: Mapping[str, StoreBuilder], changelogs: Mapping[str, TopicPartition], base: Base
    ) -> None:
        """Bring `base` to the ends of `changelogs`."""
        copy = ChangelogCopy(stores, changelogs, self._layout.config, base)
        partitions = list(changelogs.values())
        begins, ends = self._admin.beginning_offsets(partitions), self._admin.end_offsets(partitions)
        for store, partition in changelogs.items():
            start, end = begins[partition], ends[partition]
            try:
                for batch in self._fetcher.fetch(partition, start, end, read_committed=True):
                    copy.apply(store, batch, int(batch.offsets[-1]) + 1)
            except ProcessorStateError as error:
                raise ProcessorStateError(f"Store {store}, {partition}: {error}") from error

    def _hand_waiting(self, partition: TopicPartition, waiting: Callable[[], Iterable[RecordBatch]]) -> tuple[int, int]:
        """Write the waiting records of a repartition topic, unless they already follow the committed offset. Return the
        offset of the first record, and the number of records written."""
        (begin,) = self._admin.beginning_offsets([partition]).values()
        (end,) = self._admin.end_offsets([partition]).values()
        committed = self._admin.committed_offsets(self._group, [partition])
        start = committed[partition].offset if partition in committed else begin
        if begin <= start <= end:
            batches = self._fetcher.fetch(partition, start, end, read_committed=True)
            if all(there == wanted for there, wanted in zip_longest(_rows(batches), _rows(waiting()))):
                return start, 0
        written = 0
        for record in _rows(waiting()):
            self._send(partition, record)
            written += 1
        return end, written

    def _send(self, partition: TopicPartition, record: ChangelogRecord) -> None:
        self._producer.send(
            partition.topic, record.key, record.value, partition.partition, record.timestamp, record.headers
        )


def differences(
    builder: StoreBuilder,
    records: Callable[[Entries], Iterator[ChangelogRecord]],
    there: Entries,
    wanted: Entries,
    now_ms: int,
    scratch: Base,
) -> Iterator[ChangelogRecord]:
    """Yield the records that turn the entries of a store from `there` into `wanted`.

    Deletes come first, because the last record of duplicates determines how their numbering continues.

    Args:
        builder: the builder of the store.
        records: returns the changelog records of entries.
        there: entries of the changelog.
        wanted: entries of the state.
        now_ms: timestamp of deletes (ms).
        scratch: holds digests of the compared records.
    """
    retention_ms = _history_retention_ms(builder)
    versioned = retention_ms is not None
    old, new = f"{builder.name} before", f"{builder.name} after"
    for side, entries in ((old, there), (new, wanted)):
        for chunk in _chunks(records(entries)):
            scratch.apply({side: {_place(each, versioned): _digest(each) for each in chunk}}, b"")
    if retention_ms is not None:
        yield from _versions_taken_back(builder.name, records, there, wanted, retention_ms, scratch)
    else:
        kept = scratch.view(new)
        for place, _ in scratch.view(old).range(None, None, False):
            if kept.get(place) is None:
                yield ChangelogRecord(place, None, now_ms)
    for chunk in _chunks(records(wanted)):
        known = scratch.view(old).multi_get([_place(each, versioned) for each in chunk])
        yield from (each for each, digest in zip(chunk, known, strict=True) if digest != _digest(each))


def _history_retention_ms(builder: StoreBuilder) -> int | None:
    """Return the history retention (ms) of a versioned store, None for other stores."""
    supplier = builder.supplier
    return supplier.history_retention_ms if isinstance(supplier, VersionedBytesStoreSupplier) else None


def _versions_taken_back(
    name: str,
    records: Callable[[Entries], Iterator[ChangelogRecord]],
    there: Entries,
    wanted: Entries,
    retention_ms: int,
    scratch: Base,
) -> Iterator[ChangelogRecord]:
    """Yield the ends of versions that are `there`, but no longer in `wanted`. A delete at the exact time of a version
    removes it completely. A version older than the history has expired, even without a later value. Raises
    ProcessorStateError for a version in whose place another is wanted: no record makes a store forget a version."""
    known, right = f"{name} known versions", f"{name} right versions"
    newest = NO_TIMESTAMP
    for side, entries in ((known, there), (right, wanted)):
        newest = NO_TIMESTAMP
        for chunk in _chunks(records(entries)):
            newest = max(newest, *map(_time, chunk))
            versions = {_of_key(each.key, _time(each)): _marked(each.value) for each in chunk}
            scratch.apply({side: versions}, b"")
    oldest = newest - retention_ms  # of the wanted history
    for record in records(there):
        time = max(_time(record), oldest)  # earlier times are no longer queried
        if _valid(scratch.view(known), record.key, time)[0] != _time(record):
            continue  # another version is valid then
        begin, value = _valid(scratch.view(right), record.key, time)
        if begin >= _time(record):
            continue  # the newer version is written after these, if missing
        if value == _marked(None):
            if record.value is not None:
                yield ChangelogRecord(record.key, None, time, record.headers)
        else:
            raise ProcessorStateError(
                f"The changelog of store {name} has a version of key {record.key!r:.100} as of {_time(record)} ms that "
                "this state does not have, and a changelog cannot take versions back. Delete the topic (penstock "
                "topics delete) and the state directories of instances in Java, then export again: the export makes "
                "the topic again."
            )


def _valid(versions: BaseView, key: bytes, time: int) -> tuple[int, bytes]:
    """Return the beginning (ms) and the `_marked` value of the version valid at `time`. The beginning is NO_TIMESTAMP
    if no version is valid."""
    found = next(versions.range(_of_key(key, 0), after(_of_key(key, time)), True), None)
    return (NO_TIMESTAMP, _marked(None)) if found is None else (timestamp_of(found[0][-TIMESTAMP_SIZE:]), found[1])


def _of_key(key: bytes, time: int) -> bytes:
    """Return the position of a version in the order of keys and times."""
    return len(key).to_bytes(4, "big") + key + pack_timestamp(time)


def _marked(value: bytes | None) -> bytes:
    return b"" if value is None else b"=" + value


def _time(record: ChangelogRecord) -> int:
    return record.timestamp or 0


def _place(record: ChangelogRecord, versioned: bool) -> bytes:
    """Return the key that a later record must share to replace `record`."""
    return pack_timestamp(_time(record)) + record.key if versioned else record.key


def _digest(record: ChangelogRecord) -> bytes:
    value = None if record.value is None else record.value.hex()
    headers = [[name, None if data is None else data.hex()] for name, data in record.headers]
    return blake2b(orjson.dumps([value, record.timestamp, headers]), digest_size=16).digest()


def _chunks(records: Iterator[ChangelogRecord]) -> Iterator[Sequence[ChangelogRecord]]:
    while chunk := list(islice(records, _CHUNK)):
        yield chunk


def _rows(batches: Iterable[RecordBatch]) -> Iterator[ChangelogRecord]:
    for batch in batches:
        columns = batch.keys, batch.values, batch.timestamps.tolist()
        for row, (key, value, timestamp) in enumerate(zip(*columns, strict=True)):
            yield ChangelogRecord(key, value, timestamp, batch.headers_at(row))
