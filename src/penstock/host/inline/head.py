"""The first records of a stream, for notebooks.

The inline host reads the source topics from the beginning until it has enough records. Rules: it neither writes,
commits nor creates anything on brokers or disk. One task processes the records of all partitions, by timestamp; global
tables are read first. Every read has a limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, overload

from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.client.keys import check_client_keys
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.extras import load
from penstock.host.deployment.topics import check_source_topics, resolve_patterns, source_topics
from penstock.host.inline.inline_host import InlineHost
from penstock.notebook import TEXT, Forms, table
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorSupplier, SimpleSupplier
from penstock.record import Headers, Record, TopicPartition
from penstock.serdes import Serde
from penstock.tabular import Tabular
from penstock_broker.common.clock import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

K = TypeVar("K")
V = TypeVar("V")

APPLICATION_ID: Final = "penstock-head"
"""The default application.id; no state is kept under it."""

_SHOWN: Final = 100
"""Number of records shown in a notebook, enough for users and pages."""

_KEPT: Final = 50_000
"""Maximum number of buffered records over all partitions."""


class Head(Tabular, Generic[K, V]):
    """The first records of a stream, as a list of Record or a table.

    The table has the columns `key` (with `window_start` and `window_end` for windowed keys), `value`, `timestamp` and
    `headers`.

    Args:
        records: the records.
        read: description of the input read for them.
        key_serde: the key serde of the stream, None if unknown.
        value_serde: the value serde of the stream, None if unknown.
    """

    # It is not a Sequence, which polars would read as a list of objects instead of a table.

    def __init__(
        self, records: Sequence[Record[K, V]], read: str, key_serde: Serde | None, value_serde: Serde | None
    ) -> None:
        self._records = list(records)
        self._read = read
        self._serdes = key_serde, value_serde

    @overload
    def __getitem__(self, index: int) -> Record[K, V]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record[K, V]]: ...
    def __getitem__(self, index: int | slice) -> Record[K, V] | list[Record[K, V]]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record[K, V]]:
        return iter(self._records)

    def _arrow_reader(self) -> pa.RecordBatchReader:
        columns = load("penstock.state.query.columns", "A table")
        own = columns.columns_of(self._records, *self._serdes)
        batches = columns.record_batches(own, self._entries())
        return load("pyarrow", "A table").RecordBatchReader.from_batches(columns.schema_of(own), batches)

    def _title(self) -> str:
        return "Head"

    def _table(self, limit: int) -> Forms:
        columns = load("penstock.state.query.columns", "A table")
        own = columns.columns_of(self._records, *self._serdes)
        facts = {"records": str(len(self)), "read": self._read}
        return table(self._title(), facts, columns.first_rows(own, self._entries(), max(limit, _SHOWN)))

    def _entries(self) -> Iterator[tuple[Any, Record[K, V]]]:
        return ((record.key, record) for record in self._records)

    def __repr__(self) -> str:
        return self._table(_SHOWN)[TEXT]()


class _Collector(Processor[Any, Any, Any, Any]):
    """Keeps the first records that reach it."""

    def __init__(self, records: list[Record[Any, Any]], limit: int) -> None:
        self._records = records
        self._limit = limit

    def process(self, record: Record[Any, Any]) -> None:
        """Keep the record, unless the limit is reached."""
        if len(self._records) < self._limit:
            self._records.append(record)


def first_records(
    ending_in: Callable[[ProcessorSupplier], Topology],
    limit: int,
    config: StreamsConfig | Mapping[str, Any] | None,
    max_records: int,
) -> tuple[list[Record[Any, Any]], str]:
    """Return the first records at the end of a topology, with its input as text.

    Args:
        ending_in: returns the topology whose last processor is created by a supplier.
        limit: maximum number of records to return.
        config: the configuration, with bootstrap.servers.
        max_records: maximum number of records to read, and to read from each global table.

    Raises:
        ValueError: `limit` or `max_records` is below 1.
        ConfigError: bootstrap.servers is missing, or a value is invalid.
        TopologyError: the topology cannot be built.
        StreamsError: a source topic is missing, no broker answers, a DataFrame is the source, or a processor fails.
    """
    for name, number in (("n", limit), ("max_records", max_records)):
        if number < 1:
            raise ValueError(f"{name} must be 1 or more, got {number}.")
    given = config.given() if isinstance(config, StreamsConfig) else dict(config or {})
    checked = StreamsConfig({"application.id": APPLICATION_ID, **given})
    check_client_keys(checked)
    checked.required("bootstrap.servers")
    records: list[Record[Any, Any]] = []
    built = ending_in(SimpleSupplier(partial(_Collector, records, limit))).build(checked.required("application.id"))
    with closing(ConfluentAdmin(checked)) as admin, closing(ConfluentFetcher(checked)) as fetcher:
        partitions = admin.topics()
        built = resolve_patterns(built, partitions, frozenset(), checked)
        _check_no_data_frame(built)
        check_source_topics(built, partitions, str(checked["bootstrap.servers"]))
        whole = () if built.global_topology is None else built.global_topology.source_topics
        others = source_topics(built) - set(whole)
        inputs = [_Input(admin, fetcher, {topic: partitions[topic]}) for topic in whole]
        inputs.append(_Input(admin, fetcher, {topic: partitions[topic] for topic in sorted(others)}))
        host = InlineHost(built, checked, SystemClock())
        try:
            for row in chain.from_iterable(each.rows(max_records) for each in inputs):
                _pipe(host, row)
                if len(records) == limit:
                    break
        finally:
            host.close()
    return records, ", ".join(str(each) for each in inputs)


def _check_no_data_frame(built: BuiltTopology) -> None:
    for topic in source_topics(built) & built.data_frame_sources.keys():
        raise StreamsError(
            f"Topic {topic} is filled from a DataFrame when the application runs: look at that, with DataFrame.show()."
        )


class _Row(NamedTuple):
    """A record of a topic as bytes; timestamp in ms."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


def _pipe(host: InlineHost, row: _Row) -> None:
    try:
        host.pipe(row.partition.topic, row.key, row.value, row.timestamp, row.headers)
    except Exception as error:
        error.add_note(f"This was the record at offset {row.offset} of {row.partition}.")
        raise
    host.take_output()  # changelogs, which are not needed


class _Input:
    """Topics that are read together, from the beginning to their end offsets at the start.

    Args:
        admin: returns the offsets of the partitions.
        fetcher: reads the records.
        topics: the number of partitions of each topic.
    """

    def __init__(self, admin: ConfluentAdmin, fetcher: ConfluentFetcher, topics: Mapping[str, int]) -> None:
        partitions = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
        self._fetcher = fetcher
        self._begins = admin.beginning_offsets(partitions)
        self._ends = admin.end_offsets(partitions, read_committed=True)
        self._taken = dict.fromkeys(topics, 0)

    def rows(self, limit: int) -> Iterator[_Row]:
        """Yield up to `limit` records, merging the partitions by timestamp."""
        kept = max(_KEPT // max(len(self._begins), 1), 1)
        merged = heapq.merge(*(self._rows(each, kept) for each in self._begins), key=lambda row: row.timestamp)
        for row in islice(merged, limit):
            self._taken[row.partition.topic] += 1
            yield row

    def _rows(self, partition: TopicPartition, kept: int) -> Iterator[_Row]:
        """Yield the records of a partition; `kept`: maximum number in memory.

        The fetcher reads one range at a time, so no range stays open.
        """
        start, end = self._begins[partition], self._ends[partition]
        while start < end:
            with closing(self._fetcher.fetch(partition, start, end, read_committed=True)) as batches:
                batch = next(batches, None)
            if batch is None:  # only control records are left
                return
            batch = batch.slice(0, kept)
            offsets, timestamps = batch.offsets.tolist(), batch.timestamps.tolist()
            for index, offset in enumerate(offsets):
                key, value = batch.keys[index], batch.values[index]
                yield _Row(partition, offset, key, value, timestamps[index], batch.headers_at(index))
            start = offsets[-1] + 1

    def __str__(self) -> str:
        known = dict.fromkeys(self._taken, 0)
        for partition, begin in self._begins.items():
            known[partition.topic] += self._ends[partition] - begin
        return ", ".join(f"{taken} of about {known[topic]} in {topic}" for topic, taken in self._taken.items())
