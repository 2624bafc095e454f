"""Copies the histories of topics into the checkpoint, sorted, before their first epoch.

A Spark job shuffles the rows to one writer per partition of the topic, which has them in the order of time: rows of the
same time by `offset`, else in the order of the DataFrame. So each row has a position that never changes, whatever the
DataFrame returns later. If the job is interrupted, the next start runs it again, since no epoch has read any of it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from penstock.client.api import Admin
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.deployment.source_lines import source_of
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.manifests import last_manifest
from penstock.host.spark.checkpoints.stored_history import HistoryChunk, StoredHistory, histories_of, write_index
from penstock.host.spark.frames.change_over import change_over
from penstock.host.spark.frames.data_frames import columns
from penstock.host.spark.frames.history_rows import CHUNKS, ORDER, PLACED, placed_rows, stored_rows
from penstock.host.spark.frames.interruptible import CancellableJobs, interruptible
from penstock.host.spark.protocol.application_description import FAILURE_KEY_BYTES
from penstock.host.spark.protocol.failures import QueryFailedError, encode_failure, error_of_spark, failure_in
from penstock.host.spark.versions import map_in_arrow, repartition_by_id
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topic_history import TopicHistory

_log = logging.getLogger(__name__)

_Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class HistoryLoader:
    """Copies the histories of one application into its checkpoint.

    Args:
        built: the topology.
        config: of the application.
        checkpoint: its checkpoint.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig, checkpoint: Checkpoint) -> None:
        self._built = built
        self._row_max_bytes: int = config["penstock.row.max.bytes"]
        self._checkpoint = checkpoint

    def session(self) -> SparkSession | None:
        """Return the session of the DataFrames, or None without DataFrames.

        Raises StreamsError if a history is neither paths nor a DataFrame that does not stream.
        """
        found: SparkSession | None = None
        for topic, history in self._built.histories.items():
            rows = history.rows
            if isinstance(rows, tuple):
                continue
            if not isinstance(rows, DataFrame) or rows.isStreaming:
                got = "a streaming DataFrame" if isinstance(rows, DataFrame) else repr(rows)
                raise StreamsError(
                    f"stream_from_history takes a DataFrame that does not stream, such as spark.read returns, or paths "
                    f"of Parquet files, for {self._named(topic)}; got {got}."
                )
            found = rows.sparkSession
        return found

    def load(self, admin: Admin, session: Callable[[], SparkSession]) -> None:
        """Copy each history whose topic has no position in the checkpoint yet.

        Args:
            admin: a client of the brokers.
            session: returns the session for the jobs; called only if there is something to copy.

        Raises:
            KafkaError: the brokers do not answer.
            StreamsError: the rows are unsuitable, the change-over does not fit the topic, or the job failed.
            SystemExit, KeyboardInterrupt: this thread was interrupted, and the job is cancelled.
            TaskMigratedError: another program has taken over the checkpoint.
        """
        if not self._built.histories:
            return
        metadata = self._checkpoint.read_metadata()
        last = None if metadata is None else last_manifest(self._checkpoint, metadata)
        begun = set() if metadata is None or last is None else {*metadata.begin, *last.offsets}
        topics = admin.topics()
        wanted = [topic for topic in self._built.histories if topic in topics and topic not in begun]
        for topic in wanted:  # the preparation reports missing topics
            generation = self._checkpoint.take_generation(0 if last is None else last.generation)
            self._copy(admin, session(), topic, topics[topic], generation)

    def _copy(self, admin: Admin, spark: SparkSession, topic: str, partitions: int, generation: int) -> None:
        history = self._built.histories[topic]
        end = change_over(admin, topic, partitions, history, source_of(self._built, topic))
        files = histories_of(self._checkpoint.uri).below(topic)
        files.delete_directory("")  # of an interrupted start
        _log.info("Copying the history of topic %s into the checkpoint.", topic)
        found: list[list[tuple[int, HistoryChunk]]] = [[] for _ in range(partitions)]
        for chunk in self._copied(spark, topic, history, partitions):
            written = HistoryChunk(chunk["file"], chunk["rows"], chunk["last_ms"])
            found[chunk["partition"]].append((chunk["place"], written))
        stored = StoredHistory(topic, end, tuple(tuple(each for _, each in sorted(chunks)) for chunks in found))
        self._checkpoint.check_generation(generation)  # a newer driver writes the history itself
        write_index(files, stored)
        count = sum(each.rows for chunks in stored.chunks for each in chunks)
        _log.info("The history of topic %s has %d records; the topic follows at %s.", topic, count, list(end))

    def _copied(self, spark: SparkSession, topic: str, history: TopicHistory, partitions: int) -> list[Row]:
        """Copy the rows in a job that an interruption of this thread cancels; return the written chunks."""
        owner = spark if isinstance(history.rows, tuple) else history.rows.sparkSession
        jobs = CancellableJobs(owner, f"penstock-history-{secrets.token_hex(8)}")

        def copy() -> list[Row]:
            jobs.begin()
            return self._chunks(self._rows(spark, topic, history), topic, partitions)

        return interruptible(owner, copy, jobs.cancel)

    def _rows(self, spark: SparkSession, topic: str, history: TopicHistory) -> DataFrame:
        """Return the rows before the change-over, with the columns of `columns` and the offset."""
        frame = self._frame(spark, topic, history)
        if "timestamp" not in frame.columns:
            raise StreamsError(
                f"The history for {self._named(topic)} must have a column timestamp, the time of each record; it is "
                f"{frame.schema.simpleString()}. Rename one, for example with "
                'data_frame.withColumnRenamed("event_time", "timestamp").'
            )
        has_offsets = {"partition", "offset"} <= set(frame.columns)
        offset = f.col("offset").cast("bigint") if has_offsets else f.lit(None).cast("bigint")
        try:
            rows = columns(frame, self._named(topic), offset.alias("offset"))
        except AnalysisException as error:
            raise StreamsError(
                f"The history for {self._named(topic)} is {frame.schema.simpleString()}, of which Spark cannot make "
                f"records: {str(error).splitlines()[0]} Expected timestamp as a timestamp, headers as "
                "array<struct<key: string, value: binary>>, partition and offset as numbers, and each of them once."
            ) from error
        return rows.filter(_before(history.at))

    def _frame(self, spark: SparkSession, topic: str, history: TopicHistory) -> DataFrame:
        if not isinstance(history.rows, tuple):
            frame: DataFrame = history.rows
            return frame
        try:
            return spark.read.parquet(*history.rows)
        except AnalysisException as error:
            raise StreamsError(
                f"The files of the history for {self._named(topic)} cannot be read as Parquet: "
                f"{', '.join(history.rows)}. Read others as a DataFrame, such as spark.read.json(...)."
            ) from error

    def _chunks(self, rows: DataFrame, topic: str, partitions: int) -> list[Row]:
        """Run the job that writes the rows; return the written chunks."""
        key = secrets.token_bytes(FAILURE_KEY_BYTES)
        place = partial(_placed, topic, partitions, source_of(self._built, topic))
        placed = map_in_arrow(rows, partial(_failing_with, key, place), PLACED)
        sorted_rows = repartition_by_id(placed, partitions, "partition").sortWithinPartitions(*ORDER)
        store = partial(stored_rows, self._checkpoint.uri, topic, self._row_max_bytes)
        try:
            return map_in_arrow(sorted_rows, partial(_failing_with, key, store), CHUNKS).collect()
        except CapturedException as error:
            told = failure_in(str(error), key)
            if told is not None:
                raise told[0] from told[0].__cause__
            raise error_of_spark(f"of the history of {topic}", str(error)) from error

    def _named(self, topic: str) -> str:
        return f"topic {topic} ({source_of(self._built, topic)})"


def _before(at: int | Mapping[int, int]) -> Column:
    """Return the condition of rows before the change-over. Rows without a timestamp stay, and are refused later."""
    if not isinstance(at, Mapping):
        return f.col("timestamp").isNull() | (f.col("timestamp") < at)
    # not one condition for each partition: Spark fails with a stack overflow if there are a thousand
    first = f.get(f.array(*(f.lit(at[partition]) for partition in range(len(at)))), f.col("partition"))
    return f.coalesce(f.col("offset") < first, f.lit(True))


def _placed(topic: str, partitions: int, source: str, frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    yield from placed_rows(topic, partitions, source, 0 if context is None else context.partitionId(), frames)


def _failing_with(key: bytes, step: _Step, frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run `step`; its errors reach the driver unchanged, signed with `key`."""
    try:
        yield from step(frames)
    except StreamsError as error:
        raise QueryFailedError(encode_failure(error, ""), key) from error
