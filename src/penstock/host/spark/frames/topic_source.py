"""Topics as DataFrames: a Python data source of Spark that reads committed records, for streams and for batches.

Options and columns are those of Spark's own source for Kafka, which is a separate package: `kafka.bootstrap.servers`
and other client keys `kafka.…`, `subscribe` (topics, separated by commas), `startingOffsets` (earliest or latest). The
offset that Spark logs is the position in each partition, so a batch that runs again has the same records. `data_frames`
has the topics of an application that lead to DataFrames, and their queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, UnknownTopicOrPartitionError
from penstock.host.commits.purging import RecordPurge
from penstock.host.packing.pickling import dump
from penstock.host.spark.versions import StreamReader, stream_reader
from penstock.record import RecordBatch, TopicPartition
from penstock_broker.common.clock import elapsed_milliseconds

FORMAT = "penstock"
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns of a topic in Spark; timestampType is 0, for the time that the writer set."""

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
_CLIENT_PREFIX = "kafka."
_EARLIEST, _LATEST = "earliest", "latest"


class TopicRange(InputPartition):
    """Records of one partition of a topic.

    Args:
        partition: the partition.
        start: first offset.
        end: offset after the last record.
    """

    def __init__(self, partition: TopicPartition, start: int, end: int) -> None:
        super().__init__(None)
        self.partition = partition
        self.start = start
        self.end = end


class TopicDataSource(DataSource):
    """Reads topics; `spark.dataSource.register(TopicDataSource)`, then `spark.readStream.format("penstock")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns, see COLUMNS."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader of a streaming query. Raises ConfigError for a missing or invalid option."""
        return stream_reader(TopicStreamReader(*_options(self.options)))

    def reader(self, schema: StructType) -> TopicReader:
        """Return the reader of a batch of the current records. Raises ConfigError as `streamReader`."""
        return TopicReader(*_options(self.options))


def _options(options: Mapping[str, str]) -> tuple[Mapping[str, Any], list[str], str]:
    """Return the settings of the client, the topics, and the start position."""
    settings = {key[len(_CLIENT_PREFIX) :]: value for key, value in options.items() if key.startswith(_CLIENT_PREFIX)}
    topics = [topic.strip() for topic in options.get("subscribe", "").split(",") if topic.strip()]
    begin = options.get("startingOffsets", _EARLIEST)
    if not topics or "bootstrap.servers" not in settings:
        raise ConfigError(
            f'The source {FORMAT} needs the options "kafka.bootstrap.servers" and "subscribe": the topics, with commas.'
        )
    if begin not in (_EARLIEST, _LATEST):
        raise ConfigError(f"Invalid value {begin!r} for the option startingOffsets: expected {_EARLIEST} or {_LATEST}.")
    return settings, topics, begin


class _Topics:
    """Topics of brokers, their offsets and records.

    Spark's processes unpickle it.

    Args:
        settings: of the client.
        topics: names of the topics.
        begin: start position, earliest or latest.
    """

    def __init__(self, settings: Mapping[str, Any], topics: list[str], begin: str) -> None:
        self._settings = dump(dict(settings))
        self._topics = topics
        self._begin = begin

    def first_offsets(self) -> dict[str, list[int]]:
        """Return the start offsets."""
        return self.last_offsets() if self._begin == _LATEST else self._offsets(last=False)

    def last_offsets(self) -> dict[str, list[int]]:
        """Return the current ends of committed records."""
        return self._offsets(last=True)

    def _offsets(self, last: bool) -> dict[str, list[int]]:
        admin = _admin(self._settings)
        known = admin.topics()
        missing = [topic for topic in self._topics if topic not in known]
        if missing:
            admin.topic_ids(missing)  # raises for a topic that exists but is not visible to this user
            raise UnknownTopicOrPartitionError(f"Topics to read do not exist: {', '.join(missing)}.")
        partitions = [TopicPartition(topic, number) for topic in self._topics for number in range(known[topic])]
        found = admin.end_offsets(partitions, read_committed=True) if last else admin.beginning_offsets(partitions)
        return {topic: [found[TopicPartition(topic, n)] for n in range(known[topic])] for topic in self._topics}

    def admin(self) -> ConfluentAdmin:
        """Return the admin client of the process."""
        return _admin(self._settings)

    def read(self, each: TopicRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range, in order."""
        fetcher = _fetcher(self._settings)
        for batch in fetcher.fetch(each.partition, each.start, each.end, read_committed=True):
            yield _frame(each.partition, batch)


def _ranges(start: Mapping[str, list[int]], end: Mapping[str, list[int]]) -> list[TopicRange]:
    """Return the ranges between two offsets. A partition added in the meantime begins at 0."""
    found = []
    for topic, ends in end.items():
        starts = start.get(topic, [])
        for number, (first, last) in enumerate(zip([*starts, *[0] * (len(ends) - len(starts))], ends, strict=True)):
            if first < last:
                found.append(TopicRange(TopicPartition(topic, number), first, last))
    return found


class TopicStreamReader(StreamReader):
    """Reads topics from their start position on. Nothing is opened before the first call.

    Args:
        settings: of the client.
        topics: names of the topics.
        begin: start position, earliest or latest.
    """

    def __init__(self, settings: Mapping[str, Any], topics: list[str], begin: str) -> None:
        self._topics = _Topics(settings, topics, begin)
        self._fixed: dict[str, list[int]] | None = None

    def first_offset(self) -> dict[str, Any]:
        """Return the start offset."""
        return self._topics.first_offsets()

    def fix_end(self) -> None:
        """Fix the current ends of the topics as the last offsets to read."""
        self._fixed = self._topics.last_offsets()

    def next_offset(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the ends of the topics."""
        return self._fixed if self._fixed is not None else self._topics.last_offsets()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TopicRange]:
        """Return one Spark partition for each topic partition with new records."""
        return _ranges(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition."""
        assert isinstance(partition, TopicRange)
        return self._topics.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: positions are in Spark's checkpoint."""

    def stop(self) -> None:
        """Do nothing: clients end with the process."""


class InternalTopicReader(TopicStreamReader):
    """Reads an application's topic as its only reader, and deletes read records.

    It begins at the first record.

    Args:
        settings: of the client.
        topic: name of the topic.
        interval_ms: interval between deletions, in ms.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, interval_ms: int) -> None:
        super().__init__(settings, [topic], _EARLIEST)
        self._interval_ms = interval_ms
        self._purge: RecordPurge | None = None

    def commit(self, end: dict[str, Any]) -> None:
        """Delete the records before `end` from time to time, because that batch is committed."""
        if self._purge is None:
            self._purge = RecordPurge(self._interval_ms, elapsed_milliseconds)
        positions = {TopicPartition(topic, n): offset for topic, ends in end.items() for n, offset in enumerate(ends)}
        self._purge.purge(self._topics.admin(), positions)


class TopicReader(DataSourceReader):
    """Reads the content of topics at the time of the read. Nothing is opened before.

    Args:
        settings: of the client.
        topics: names of the topics.
        begin: start position, earliest or latest.
    """

    def __init__(self, settings: Mapping[str, Any], topics: list[str], begin: str) -> None:
        self._topics = _Topics(settings, topics, begin)

    def partitions(self) -> list[TopicRange]:
        """Return one Spark partition for each topic partition with records."""
        return _ranges(self._topics.first_offsets(), self._topics.last_offsets())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition."""
        assert isinstance(partition, TopicRange)
        return self._topics.read(partition)


def _frame(partition: TopicPartition, batch: RecordBatch) -> pa.RecordBatch:
    count = len(batch)
    headers = [[{"key": key, "value": value} for key, value in batch.headers_at(index)] for index in range(count)]
    columns = [
        pa.array(batch.keys, pa.binary()),
        pa.array(batch.values, pa.binary()),
        pa.array([partition.topic] * count, pa.string()),
        pa.array([partition.partition] * count, pa.int32()),
        pa.array(batch.offsets, pa.int64()),
        pa.array(batch.timestamps * 1000, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([0] * count, pa.int32()),
        pa.array(headers, _HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


@lru_cache(maxsize=8)
def _admin(settings: bytes) -> ConfluentAdmin:
    return ConfluentAdmin(StreamsConfig(cloudpickle.loads(settings)))


@lru_cache(maxsize=8)
def _fetcher(settings: bytes) -> ConfluentFetcher:
    return ConfluentFetcher(StreamsConfig(cloudpickle.loads(settings)))
