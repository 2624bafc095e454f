"""Plain PySpark: transformWithState by key as Spark's guide shows it, and the native groupBy().count().

Both read the topic through a Python data source like Penstock's own (Spark's connector for Kafka is no part of
PySpark), with lines as rows, bounded by the same rule for the size of a micro-batch, and write the counts to a topic
through a Python data source, at least once (for each micro-batch, since Python data sources take no streams in the
mode "update"). The words are split by Spark itself. State is in Spark's RocksDB store.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StructType

from benchmarks.measuring import JVM_WARM_SECONDS, Measurement, watch
from benchmarks.topics import PARTITIONS, client_config
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.producer import ConfluentProducer
from penstock.host.spark.planner.quota import QuotaLimits, first_quota, next_quota, positions_within
from penstock.plan.partitioning import partition_for
from penstock.record import TopicPartition

_TARGET_MS: Final = 2000  # as Penstock has it by default
_BATCHES: Final = 8  # at least, so that there is something to measure between the first and the last
_LINE_BYTES: Final = 80
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


class _Range(InputPartition):
    def __init__(self, partition: int, start: int, end: int) -> None:
        super().__init__(None)
        self.partition = partition
        self.start = start
        self.end = end


class LineReader(DataSourceStreamReader):
    """Reads lines of a topic: offsets are a position for each partition."""

    def __init__(self, options: dict[str, str]) -> None:
        """Take the options `bootstrap`, `topic` and `lines`."""
        self._bootstrap = options["bootstrap"]
        self._topic = options["topic"]
        self._lines = int(options["lines"])
        self._limits = QuotaLimits(max(self._lines * _LINE_BYTES // _BATCHES, _LINE_BYTES), _TARGET_MS)
        self._quota = first_quota(self._limits)
        self._line_bytes: dict[str, float] = {}
        self._planned: tuple[float, int, int] | None = None  # when, up to which line, how many
        self._ends: dict[TopicPartition, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Return the begin."""
        return {str(partition): 0 for partition in range(PARTITIONS)}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Return the end of the next micro-batch, bounded as Penstock bounds an epoch."""
        positions = {TopicPartition(self._topic, int(partition)): offset for partition, offset in start.items()}
        if self._ends is None:
            admin = ConfluentAdmin(client_config(self._bootstrap))
            ends = admin.end_offsets(list(positions))
            admin.close()
            self._ends = {tp: min(end, self._lines // PARTITIONS) for tp, end in ends.items()}
        now = time.monotonic()
        if self._planned is not None and sum(positions.values()) == self._planned[1]:
            began, _, read = self._planned
            self._quota = next_quota(self._quota, read * _LINE_BYTES, int((now - began) * 1000), self._limits)
            self._line_bytes = {self._topic: float(_LINE_BYTES)}
        planned = positions_within(positions, self._ends, self._line_bytes, self._quota)
        self._planned = now, sum(planned.values()), sum(planned.values()) - sum(positions.values())
        return {str(tp.partition): offset for tp, offset in planned.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return one range for each partition of the topic."""
        return [_Range(int(partition), start[partition], offset) for partition, offset in end.items()]

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: Spark keeps the offsets."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch the lines of a range."""
        assert isinstance(partition, _Range)
        fetcher = ConfluentFetcher(client_config(self._bootstrap))
        source = TopicPartition(self._topic, partition.partition)
        for batch in fetcher.fetch(source, partition.start, partition.end, read_committed=True):
            yield pa.RecordBatch.from_arrays([pa.array(batch.values, pa.binary()).cast(pa.string())], names=["value"])
        fetcher.close()


class LineSource(DataSource):
    """Lines of a topic as rows of one column."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "benchmark-lines"

    def schema(self) -> str:
        """Return the one column."""
        return "value string"

    def streamReader(self, schema: StructType) -> LineReader:  # noqa: N802  # Spark's name
        """Return the reader."""
        return LineReader(dict(self.options))


class CountWriter(DataSourceArrowWriter):
    """Writes rows of (word, count) to a topic, at least once."""

    def __init__(self, options: dict[str, str]) -> None:
        """Take the options `bootstrap` and `topic`."""
        self._bootstrap = options["bootstrap"]
        self._topic = options["topic"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Produce all rows and wait until the broker has them."""
        producer = ConfluentProducer(client_config(self._bootstrap))
        for rows in iterator:
            words, counts = rows.columns[0].to_pylist(), rows.columns[1].to_pylist()
            for word, count in zip(words, counts, strict=True):
                key = word.encode()
                producer.send(self._topic, key, count.to_bytes(8), partition_for(key, PARTITIONS))
        producer.close()
        return WriterCommitMessage()


class CountSink(DataSource):
    """Counts to a topic."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "benchmark-counts"

    def writer(self, schema: StructType, overwrite: bool) -> CountWriter:
        """Return the writer."""
        return CountWriter(dict(self.options))


class Count(StatefulProcessor):
    """Counts the rows of a key, as the guide of transformWithState does."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state of the key."""
        self._count = handle.getValueState("count", "count bigint")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803  # Spark's name
    ) -> Iterator[Any]:
        """Add the rows of one key in this micro-batch and give the new count."""
        state = self._count.get()
        before = 0 if state is None else state[0]
        count = before + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(word=key[0], count=count)

    def close(self) -> None:
        """Release nothing."""


def _by_state(words: DataFrame) -> DataFrame:
    return words.groupBy("word").transformWithState(Count(), "word string, count bigint", "Update", "None")


def _native(words: DataFrame) -> DataFrame:
    return words.groupBy("word").count()


def measure_transform_with_state(**arguments: Any) -> Measurement:
    """Count with transformWithState; see `_measure`."""
    return _measure("c", "PySpark transformWithState", _by_state, **arguments)


def measure_native(**arguments: Any) -> Measurement:
    """Count with groupBy().count(); see `_measure`."""
    return _measure("d", "Spark's native groupBy().count()", _native, **arguments)


def _measure(
    letter: str,
    name: str,
    count: Any,
    bootstrap: str,
    input_topic: str,
    output_topic: str,
    text: str,
    lines: int,
    words_per_line: int,
) -> Measurement:
    """Count the first `lines` lines of the input topic and return the rate from the first warm micro-batch to the
    last."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        builder = SparkSession.builder.master(f"local[{len(os.sched_getaffinity(0))}]").appName("benchmark")
        for key, value in _SETTINGS.items():
            builder = builder.config(key, value)
        spark = builder.config("spark.sql.warehouse.dir", directory).getOrCreate()
        try:
            spark.dataSource.register(LineSource)
            spark.dataSource.register(CountSink)
            source = spark.readStream.format(LineSource.name()).option("bootstrap", bootstrap)
            rows = source.option("topic", input_topic).option("lines", str(lines)).load()
            words = rows.select(f.explode(f.split(f.lower("value"), " ")).alias("word"))

            def write(counts: DataFrame, _: int) -> None:
                sink = counts.write.format(CountSink.name()).mode("append").option("bootstrap", bootstrap)
                sink.option("topic", output_topic).save()

            sink = count(words).writeStream.foreachBatch(write).outputMode("update")
            query = sink.option("checkpointLocation", str(Path(directory) / "checkpoint")).start()

            def progress() -> int:
                if query.exception() is not None:
                    raise RuntimeError(str(query.exception())[:2000])
                return sum(each.numInputRows for each in query.recentProgress)

            window = watch(progress, lines, warm_seconds=JVM_WARM_SECONDS)
            query.stop()
        finally:
            spark.stop()
    return Measurement.of_window(letter, name, text, words_per_line, window, "RocksDB state, at least once")
