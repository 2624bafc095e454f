"""What each version of Spark has, and what stands in for what an older one lacks; nothing else asks for the version.

What a version has is decided once, when this module is loaded, by the number of the installed pyspark. The source and
the sink of the query, and the source of topics, are written against the protocols `StreamReader` and `StreamWriter`;
here they become the classes that this Spark calls.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final, Protocol

import mmh3
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, InputPartition, WriterCommitMessage

from penstock.host.spark.protocol.rows import Row, read_rows, read_spark_rows

Offset = dict[str, Any]
"""The offset of a source as plain data, which Spark keeps as JSON."""

_HASH_SEED = 42
"""The seed with which Spark hashes the column by which it partitions rows."""


@dataclass(frozen=True)
class SparkFeatures:
    """What a version of Spark has of what the host uses.

    admission_control: asks a Python source for the offset after a given one, and again until it is at the end that it
    fixed itself (`SupportsTriggerAvailableNow`). arrow_stream_writer: hands Arrow to a Python sink. repartition_by_id:
    `DataFrame.repartitionById`. checkpoint_package: the Java package of the managers of checkpoint files.
    """

    admission_control: bool
    arrow_stream_writer: bool
    repartition_by_id: bool
    checkpoint_package: str


def features_of(version: str) -> SparkFeatures:
    """Return what `version`, such as "4.1.2", has."""
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    streaming = "org.apache.spark.sql.execution.streaming"
    return SparkFeatures(
        admission_control=release >= (4, 2),
        arrow_stream_writer=release >= (4, 1),
        repartition_by_id=release >= (4, 1),
        checkpoint_package=f"{streaming}.checkpointing" if release >= (4, 1) else streaming,
    )


FEATURES: Final = features_of(pyspark.__version__)
"""What the installed Spark has."""


# ---------------------------------------- sources


class StreamReader(Protocol):
    """A source of a stream as the host writes it."""

    def first_offset(self) -> Offset:
        """Return where a new query begins."""

    def fix_end(self) -> None:
        """Take the end that the input has now as the last to be read."""

    def next_offset(self, start: Offset) -> Offset:
        """Return the end of the batch that begins at `start`, or `start` when there is none yet."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the input partitions of the batch between two offsets."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; called in a worker."""

    def commit(self, end: Offset) -> None:
        """Hear that the batch that ends at `end` is committed."""

    def stop(self) -> None:
        """Release what was opened; called where the source is planned."""


def stream_reader(reader: StreamReader) -> DataSourceStreamReader:
    """Return what this Spark takes as the reader of a stream."""
    return _AdmittedReader(reader) if FEATURES.admission_control else _TrackingReader(reader)


class _Reader(DataSourceStreamReader):
    """What all versions call in the same way."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        return self._reader.first_offset()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def commit(self, end: Offset) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()


if FEATURES.admission_control:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

    class _AdmittedReader(_Reader, SupportsTriggerAvailableNow):
        """The reader for a Spark that passes the offset after which the next one starts."""

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
            self._reader.fix_end()

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  # Spark's name
            return self._reader.next_offset(start)


class _TrackingReader(_Reader):
    """The reader for a Spark that asks for the latest offset alone.

    One process has the reader of a query from its start to its end, and Spark asks for an offset only when the batch
    before is committed: so the next batch begins where the last one that was handed out ends.
    """

    def __init__(self, reader: StreamReader) -> None:
        super().__init__(reader)
        self._reached: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        return self._reached_offset()

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802  # as it was called before Spark 4.2
        return self._reader.next_offset(self._reached_offset())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        partitions = super().partitions(start, end)
        self._reached = end
        return partitions

    def _reached_offset(self) -> Offset:
        if self._reached is None:
            self._reached = self._reader.first_offset()
        return self._reached


# ---------------------------------------- the sink


class StreamWriter(Protocol):
    """A sink of the rows of the query as the host writes it."""

    def write(self, rows: Iterator[Row]) -> WriterCommitMessage:
        """Write the rows of one partition; called in a worker."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit a batch, of which the writers have returned `messages`."""


def stream_writer(writer: StreamWriter) -> DataSourceStreamWriter:
    """Return what this Spark takes as the writer of a stream."""
    return _ArrowWriter(writer) if FEATURES.arrow_stream_writer else _RowWriter(writer)


class _CommittingWriter:
    """What all versions call in the same way."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Do nothing: what a batch left behind is skipped, or garbage."""


if FEATURES.arrow_stream_writer:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    class _ArrowWriter(_CommittingWriter, DataSourceStreamArrowWriter):
        """The writer for a Spark that hands Arrow to a sink."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return self._writer.write(read_rows(iterator))


class _RowWriter(_CommittingWriter, DataSourceStreamWriter):
    """The writer for a Spark that makes an object of each row."""

    def write(self, iterator: Iterator[SparkRow]) -> WriterCommitMessage:
        return self._writer.write(read_spark_rows(iterator))


# ---------------------------------------- steps of a query


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Return `frame.mapInArrow(function, schema)`, without pyspark's warning that pandas 3 is new to it: Penstock
    uses no data frames of pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(function, schema)


def repartition_by_id(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Return `frame` with each row in the partition that `column` names, a number from 0 to before `partitions`."""
    if FEATURES.repartition_by_id:
        return frame.repartitionById(partitions, column)
    numbers = f.array(*(f.lit(number) for number in hashed_into(partitions)))
    return frame.repartition(partitions, f.get(numbers, f.col(column)))


@lru_cache(maxsize=64)
def hashed_into(partitions: int) -> list[int]:
    """Return for each partition a number that Spark's `repartition(partitions, column)` sends there: it takes the
    hash of the column, an int, modulo the partitions."""
    found: dict[int, int] = {}
    for number in count():
        hashed = mmh3.hash(number.to_bytes(4, "little"), _HASH_SEED)
        found.setdefault(hashed % partitions, number)
        if len(found) == partitions:
            return [found[partition] for partition in range(partitions)]
    raise AssertionError("the numbers do not end")


# ---------------------------------------- DataFrames of users


def readable_by_libraries(frame: DataFrame) -> DataFrame:
    """Return `frame`, which pyarrow, polars and DuckDB read by its method `__arrow_c_stream__`: it collects all rows.

    Before 4.2, Spark has no such method, and that of 4.2 and 4.3 fails for columns with timestamps. What operators make
    of `frame` has the method of Spark.
    """
    setattr(frame, "__arrow_c_stream__", partial(_collected, frame))  # noqa: B010  # mypy knows no such attribute
    return frame


def _collected(frame: DataFrame, requested_schema: object = None) -> object:
    return frame.toArrow().__arrow_c_stream__(requested_schema)
