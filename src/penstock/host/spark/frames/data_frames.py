"""The queries between an application and Spark's DataFrames.

They write rows to the topics that the application reads, and pass records of its output topics to user functions.

**In**: one query for each `stream_from`, with `foreachBatch`. A batch is shuffled to one writer for each partition of
the topic, which writes its rows in one transaction together with the number of the batch (see
`client.confluent.transactions`). The owner of the numbers is the id of the query, which Spark keeps in its checkpoint.
So a batch that runs again is written once, however its rows were split. The number of partitions seen by its first
attempt is stored, because the topic may have grown since. **Out**: one query for each `to_spark` reads the topic as
`topic_source` does.

The checkpoints of these queries are below the application's checkpoint, so that they are deleted or copied with it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import cloudpickle
import numpy as np
import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, NumericType, StringType

from penstock.background import in_background
from penstock.client.api import Admin, NewTopic
from penstock.client.confluent.at_least_once import AtLeastOnceWriter
from penstock.client.confluent.sending import EpochWriter
from penstock.client.confluent.transactions import TransactionalWriter
from penstock.client.kept_clients import keep_open
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.packing.pickling import dump
from penstock.host.spark.checkpoints.documents import parsed, unsealed
from penstock.host.spark.checkpoints.hadoop import hadoop_uri
from penstock.host.spark.checkpoints.markers import move_markers
from penstock.host.spark.frames import topic_source
from penstock.host.spark.frames.batch_numbers import first_number, numbered_from
from penstock.host.spark.protocol.application_description import FAILURE_KEY_BYTES
from penstock.host.spark.protocol.failures import QueryFailedError, encode_failure, failure_of_exception
from penstock.host.spark.protocol.transactions import guarantee_of, make_commits_topic
from penstock.host.spark.session import STOP_SECONDS, make_active, open_for_calls
from penstock.host.spark.versions import map_in_arrow, repartition_by_id, stream_reader
from penstock.host.storage.files import Files
from penstock.host.storage.sealed_files import digest_of, is_sealed, sealed
from penstock.plan.internal_topics import RECORDS_STAY
from penstock.plan.partitioning import murmur2_column
from penstock.plan.subtopology import BuiltTopology, DataFrameSink, DataFrameSource
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock_broker.common.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

_HEADERS = "array<struct<key: string, value: binary>>"
_ROW = f"partition int, task int, number bigint, key binary, value binary, timestamp bigint, headers {_HEADERS}"
_POSITIVE = 0x7FFFFFFF
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class _Target:
    """The topic for the rows of one DataFrame, with the settings of its writers.

    Args:
        topic: name of the topic.
        partitions: its number of partitions.
        transactional: whether rows are written in transactions.
        config: the pickled configuration.
        failure_key: see `failures`.
    """

    topic: str
    partitions: int
    transactional: bool
    config: bytes
    failure_key: bytes


class BatchPartitions:
    """Stores the number of partitions of each batch for one topic.

    So all attempts of a batch use the same number.

    Args:
        files: the directory for that number.
        topic: the topic.
        partitions: its current number of partitions.
    """

    def __init__(self, files: Files, topic: str, partitions: int) -> None:
        self._files = files
        self._path = f"{topic}.batch"
        self._partitions = partitions

    def of(self, batch: int) -> int:
        """Return the number of partitions for `batch`.

        The first answer for a batch is durable before it is returned.
        """
        data = self._files.read(self._path)
        name = f"{self._files.uri}/{self._path}"
        known: dict[str, int] = {} if data is None else parsed(unsealed(data, name) if is_sealed(data) else data, name)
        if known.get("batch") != batch:
            known = {"batch": batch, "partitions": self._partitions}
            self._files.write(self._path, sealed(orjson.dumps(known)))
        return known["partitions"]


class DataFrameQueries:
    """Starts, watches and stops the DataFrame queries of one application, if it has any.

    Args:
        built: the topology.
        config: of the application.
        files: the directory for the checkpoints of the queries.
        clock: the clock for batch numbers; None for that of the machine.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig, files: Files, clock: Clock | None = None) -> None:
        self._sources = built.data_frame_sources
        self._sinks = built.data_frame_sinks
        self._config = config
        self._files = files
        self._clock = clock or SystemClock()
        self._running: dict[str, StreamingQuery] = {}
        self._failure_key = secrets.token_bytes(FAILURE_KEY_BYTES)

    def session(self) -> SparkSession | None:
        """Return the session of the DataFrames, or None without DataFrames.

        Raises StreamsError for an object that is not a streaming DataFrame of Spark.
        """
        found: SparkSession | None = None
        for topic, source in self._sources.items():
            frame = source.data_frame
            if not isinstance(frame, DataFrame) or not frame.isStreaming:
                raise StreamsError(
                    f"stream_from takes a streaming DataFrame of Spark, such as spark.readStream returns, for {topic}; "
                    f"got {'a DataFrame that does not stream' if isinstance(frame, DataFrame) else repr(frame)}."
                )
            found = frame.sparkSession
        return found

    def start_sources(self, admin: Admin, parallelism: int, to_end: bool) -> None:
        """Create missing topics, and start the queries that write rows to them.

        Running queries are left alone.

        Args:
            admin: a client of the brokers.
            parallelism: partitions of new topics if the program does not set them.
            to_end: return after the present rows are written and the queries have ended.

        Raises:
            ConfigError: exactly_once_v2 is set, and the brokers do not support transactions.
            StreamsError: a DataFrame has unsuitable columns, or its query failed.
        """
        known = self.create_topics(admin, parallelism)
        if not self._sources:
            return
        transactional, _ = guarantee_of(self._config, str(self._config.required("application.id")))
        config = dump(self._config)
        for topic, source in self._sources.items():
            if not self._runs(topic):
                target = _Target(topic, known[topic], transactional, config, self._failure_key)
                partitions = BatchPartitions(self._files, topic, known[topic])
                owner: Future[str] = Future()  # the id of the query, unknown until it has started
                rows = columns(source.data_frame, topic)
                function = _writing_batches(target, partitions, self._files.below(topic), owner)
                owner.set_result(self._start(topic, rows, function, to_end).id)
        if to_end:
            self._wait(self._sources)

    def start_sinks(self, spark: SparkSession) -> None:
        """Start the queries that pass records to functions. Running queries are left alone."""
        for topic, sink in self._sinks.items():
            if not self._runs(topic):
                self._start_sink(spark, topic, sink, to_end=False)

    def run_sinks_to_end(self, spark: SparkSession) -> None:
        """Pass the present records to their functions; raises StreamsError if one fails."""
        for topic, sink in self._sinks.items():
            self._start_sink(spark, topic, sink, to_end=True)
        self._wait(self._sinks)

    def _start_sink(self, spark: SparkSession, topic: str, sink: DataFrameSink, to_end: bool) -> None:
        function = numbered_from(first_number(self._files, topic, self._clock), sink.function)
        self._start(topic, self._read(spark, topic), function, to_end)

    def create_topics(self, admin: Admin, parallelism: int) -> Mapping[str, int]:
        """Create missing topics, and missing partitions of marker topics.

        Arguments are as of `start_sources`. Returns the number of partitions of each topic.
        """
        if not self._sources and not self._sinks:
            return {}
        known = admin.topics()
        wanted: Mapping[str, DataFrameSource | DataFrameSink] = {**self._sources, **self._sinks}
        replication = self._config["replication.factor"]
        new = [
            NewTopic(topic, each.partitions or parallelism, replication, RECORDS_STAY)
            for topic, each in wanted.items()
            if topic not in known
        ]
        there = {**known, **{topic.name: topic.partitions for topic in new}}
        admin.create_topics(new)
        for topic in self._sources:
            commits = commits_topic_of_source(topic)
            make_commits_topic(admin, known, commits, there[topic], self._config)
            if commits in known:
                partitions = [TopicPartition(commits, number) for number in range(known[commits])]
                move_markers(admin, str(self._config.required("application.id")), partitions)
        return there

    def _wait(self, topics: Iterable[str]) -> None:
        while any(self._runs(topic) for topic in topics):
            time.sleep(_LOOK_SECONDS)
        self.check()

    def check(self) -> None:
        """Raise StreamsError if a query has failed."""
        for topic, query in self._running.items():
            exception = None if query.isActive else query.exception()
            if exception is not None:
                raise failure_of_exception(f"between {topic} and a DataFrame", exception, self._failure_key)[0]

    def forget_lost(self) -> None:
        """Discard the queries of a JVM that is gone."""
        self._running.clear()

    def stop(self) -> None:
        """Stop all queries. A running batch is abandoned, and runs again at the next start.

        A query that does not end within STOP_SECONDS, because a user function does not return, is left running.
        """
        # In the background, because a query waits for the function that processes its batch.
        ends = {topic: in_background("penstock-data-frames", query.stop) for topic, query in self._running.items()}
        self._running.clear()
        deadline = time.monotonic() + STOP_SECONDS
        for topic, ended in ends.items():
            try:
                ended.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                _log.warning(
                    "The query between %s and a DataFrame does not end: the function that processes its batch has not "
                    "returned in %.0f s. It keeps running, and the next start runs the batch again.",
                    topic,
                    STOP_SECONDS,
                )

    def _read(self, spark: SparkSession, topic: str) -> DataFrame:
        settings = self._config.client_config()
        interval_ms = self._config["repartition.purge.interval.ms"]

        class BoundTopicDataSource(topic_source.TopicDataSource):
            """A data source with built-in settings.

            Options would appear in plans, and may contain secrets.
            """

            def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
                return stream_reader(topic_source.InternalTopicReader(settings, topic, interval_ms))

            @classmethod
            def name(cls) -> str:
                return f"{topic_source.FORMAT}-{topic}"

        make_active(spark)
        spark.dataSource.register(BoundTopicDataSource)
        return spark.readStream.format(BoundTopicDataSource.name()).load()

    def _runs(self, topic: str) -> bool:
        return topic in self._running and self._running[topic].isActive

    def _start(
        self, topic: str, frame: DataFrame, function: Callable[[DataFrame, int], None], to_end: bool
    ) -> StreamingQuery:
        open_for_calls(frame.sparkSession)
        log = self._files.below(topic)
        writer = frame.writeStream.foreachBatch(_behind_the_log(log, function)).queryName(topic)
        writer = writer.option("checkpointLocation", hadoop_uri(log))
        query = self._running[topic] = (writer.trigger(availableNow=True) if to_end else writer).start()
        return query


def commits_topic_of_source(topic: str) -> str:
    """Return the internal commits topic for the rows of DataFrames in `topic`.

    Its offsets are the batches that the partitions of `topic` have.
    """
    return f"{topic}-commits"


def _behind_the_log(log: Files, function: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Delay each call of `function` until the query's checkpoint `log` is on disk.

    Spark does not sync its writes there, and after a power failure it would plan a batch again under the same number.
    """
    last_sync_ns = 0

    def call(batch: DataFrame, number: int) -> None:
        nonlocal last_sync_ns
        last_sync_ns = log.sync_since(last_sync_ns)
        function(batch, number)

    return call


# ---------------------------------------- rows to topics


def columns(frame: DataFrame, topic: str, *further: Column) -> DataFrame:
    """Return the rows of `frame` in the columns for `topic`, with `further` ones.

    Key and value are bytes, and the timestamp is in ms. Missing headers are empty, a missing partition is null.

    Raises:
        StreamsError: the value is missing, key or value are not strings or binary, or timestamps are numbers.
    """
    types = {field.name: field.dataType for field in frame.schema}
    bytes_like = all(isinstance(types[name], StringType | BinaryType) for name in ("key", "value") if name in types)
    if not bytes_like or "value" not in types:
        raise StreamsError(
            f"The DataFrame for {topic} must have a column value, and may have a column key, each a string or binary; "
            f"it is {frame.schema.simpleString()}. Make them, for example with "
            'data_frame.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value").'
        )

    if isinstance(types.get("timestamp"), NumericType):
        raise StreamsError(
            f"The DataFrame for {topic} has timestamps of the type {types['timestamp'].simpleString()}, of which "
            "Spark would make seconds: expected a timestamp. Make it of ms, for example with "
            'data_frame.withColumn("timestamp", f.timestamp_millis("timestamp")).'
        )

    def column(name: str, otherwise: Column) -> Column:
        return f.col(name) if name in types else otherwise

    null = f.lit(None)
    # The offset log of the query has the time of the batch, so a batch that runs again has the same time.
    timestamp = column("timestamp", f.current_timestamp()).cast("timestamp")
    return frame.select(
        column("key", null).cast("binary").alias("key"),
        f.col("value").cast("binary").alias("value"),
        f.unix_millis(timestamp).alias("timestamp"),
        # Not null: for each row, Spark's Arrow writer looks at all null arrays since the last one that is not null.
        f.coalesce(column("headers", null).cast(_HEADERS), f.array().cast(_HEADERS)).alias("headers"),
        column("partition", null).cast("int").alias("partition"),
        *further,
    )


def _writing_batches(
    now: _Target, partitions: BatchPartitions, log: Files, owner: Future[str]
) -> Callable[[DataFrame, int], None]:
    """Return the batch function of the query with the checkpoint `log`.

    The marker of a batch has a digest of its offsets. So if Spark's log was damaged, and another batch has the number
    of a written one, the query fails with an error.
    """

    def write(batch: DataFrame, number: int) -> None:
        target = replace(now, partitions=partitions.of(number))
        digest = digest_of(log.read(f"offsets/{number}") or b"")
        rows = map_in_arrow(batch, partial(_with_partitions, target), _ROW)
        shuffled = repartition_by_id(rows, target.partitions, "partition")
        written = map_in_arrow(shuffled, partial(_write_rows, target, number, owner.result(), digest), "records bigint")
        written.collect()

    return write


def _with_partitions(target: _Target, frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows with their partitions.

    Task and number restore the order of the rows after the shuffle.
    """
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    number = 0
    for frame in frames:
        count = frame.num_rows
        rows = [
            pa.array(partitions_of(frame, target.topic, target.partitions), pa.int32()),
            pa.array([task] * count, pa.int32()),
            pa.array(range(number, number + count), pa.int64()),
            *(frame.column(name) for name in ("key", "value", "timestamp", "headers")),
        ]
        yield pa.RecordBatch.from_arrays(rows, ["partition", "task", "number", "key", "value", "timestamp", "headers"])
        number += count


def partitions_of(frame: pa.RecordBatch, topic: str, partitions: int) -> list[int]:
    """Return the partition of each row; the same for each repetition of a row.

    It is the given partition, else that of the key as with Kafka's default partitioner, else that of the value.

    Raises:
        StreamsError: `topic` does not have a given partition.
    """
    rows = zip(frame["key"].to_pylist(), frame["value"].to_pylist(), strict=True)
    hashes = murmur2_column([(value or b"") if key is None else key for key, value in rows])
    usual = ((hashes & np.uint32(_POSITIVE)) % np.uint32(partitions)).tolist()
    given = frame["partition"].to_pylist()
    chosen = [own if asked is None else asked for asked, own in zip(given, usual, strict=True)]
    for partition in chosen:
        if not 0 <= partition < partitions:
            raise StreamsError(
                f"A row for {topic} has the partition {partition}; the topic has partitions 0 to {partitions - 1}."
            )
    return chosen


def _write_rows(
    target: _Target, batch: int, owner: str, digest: str, frames: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the received rows, one transaction per partition. Yields the number of written rows."""
    rows = [row for frame in frames for row in frame.to_pylist()]
    rows.sort(key=lambda row: (row["partition"], row["task"], row["number"]))
    written = 0
    for partition, group in groupby(rows, key=lambda row: int(row["partition"])):
        own = list(group)
        output = [PartitionBatch(target.topic, partition, _batch(own))]
        try:
            if _writer(target, partition).write(batch, owner, output, note=digest):
                written += len(own)
        except StreamsError as error:
            raise QueryFailedError(encode_failure(error, ""), target.failure_key) from error
    yield pa.RecordBatch.from_arrays([pa.array([written], pa.int64())], ["records"])


def _batch(rows: Sequence[Mapping[str, Any]]) -> RecordBatch:
    return RecordBatch.of(
        [
            (row["key"], row["value"], row["timestamp"], 0, tuple((h["key"], h["value"]) for h in row["headers"] or ()))
            for row in rows
        ]
    )


@keep_open(most=64)
def _writer(target: _Target, partition: int) -> EpochWriter:
    """Return the writer of a partition, kept open for the next batches."""
    config: StreamsConfig = cloudpickle.loads(target.config)
    if not target.transactional:
        return AtLeastOnceWriter(config)
    commits = commits_topic_of_source(target.topic)
    return TransactionalWriter(
        config,
        transactional_id=f"{target.topic}-{partition}",
        group=commits,
        marker=TopicPartition(commits, partition),
        before_commit=_nothing,
    )


def _nothing(batch: int) -> None:
    """Do nothing before a commit: these commits have no crash point."""
