"""The differences between Spark versions, and substitutes for features that older versions lack.

No other module checks the version. The features are determined once, when this module is loaded, from the version of
the installed pyspark. The query's source and sink, and the source of topics, are written against the protocols
`StreamReader` and `StreamWriter`; this module adapts them to the classes of the installed Spark.
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
"""The offset of a source as plain data; Spark stores it as JSON."""

_HASH_SEED = 42
"""The seed of Spark's hash of the column that it partitions rows by."""


@dataclass(frozen=True)
class SparkFeatures:
    """The features of a Spark version that the host depends on.

    Args:
        admission_control: Spark asks a Python source for the offset after a given one, and asks again until the source
            reaches an end that it fixed itself (`SupportsTriggerAvailableNow`).
        arrow_stream_writer: Spark passes Arrow data to a Python sink.
        repartition_by_id: Spark has `DataFrame.repartitionById`.
        connect: the client of Spark Connect can open another session at its server (`newSession`).
        checkpoint_package: Java package of the managers of checkpoint files.
    """

    admission_control: bool
    arrow_stream_writer: bool
    repartition_by_id: bool
    connect: bool
    checkpoint_package: str


def features_of(version: str) -> SparkFeatures:
    """Return the features of `version`, such as "4.1.2"."""
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    streaming = "org.apache.spark.sql.execution.streaming"
    return SparkFeatures(
        admission_control=release >= (4, 2),
        arrow_stream_writer=release >= (4, 1),
        repartition_by_id=release >= (4, 1),
        connect=release >= (4, 3),
        checkpoint_package=f"{streaming}.checkpointing" if release >= (4, 1) else streaming,
    )


FEATURES: Final = features_of(pyspark.__version__)
"""The features of the installed Spark."""


# ---------------------------------------- sources


class StreamReader(Protocol):
    """A streaming source of the host, independent of the Spark version."""

    def first_offset(self) -> Offset:
        """Return the start offset of a new query."""

    def fix_end(self) -> None:
        """Fix the current end of the input as the last offset to read."""

    def next_offset(self, start: Offset) -> Offset:
        """Return the end of the batch after `start`, or `start` if no batch is due."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the input partitions of the batch between two offsets."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Called in a worker."""

    def commit(self, end: Offset) -> None:
        """Called after the batch that ends at `end` was committed."""

    def stop(self) -> None:
        """Release all resources. Called in the process that plans the source."""


def stream_reader(reader: StreamReader) -> DataSourceStreamReader:
    """Adapt `reader` to the stream reader class of the installed Spark."""
    return _AdmittedReader(reader) if FEATURES.admission_control else _TrackingReader(reader)


class _Reader(DataSourceStreamReader):
    """The methods that all Spark versions call in the same way."""

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
        """The reader for a Spark that passes the start offset of the next batch."""

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
            self._reader.fix_end()

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  # Spark's name
            return self._reader.next_offset(start)


class _TrackingReader(_Reader):
    """The reader for a Spark that asks for the latest offset only.

    One process holds the reader of a query from start to end, and Spark asks for an offset only after it has committed
    the previous batch. So the next batch begins at the end of the last batch that was planned.
    """

    def __init__(self, reader: StreamReader) -> None:
        super().__init__(reader)
        self._reached: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        return self._reached_offset()

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802  # the signature before Spark 4.2
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
    """A sink of the query's rows, independent of the Spark version."""

    def write(self, rows: Iterator[Row]) -> WriterCommitMessage:
        """Write the rows of one partition. Called in a worker."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit a batch; `messages` are the results of its writers."""


def stream_writer(writer: StreamWriter) -> DataSourceStreamWriter:
    """Adapt `writer` to the stream writer class of the installed Spark."""
    return _ArrowWriter(writer) if FEATURES.arrow_stream_writer else _RowWriter(writer)


class _CommittingWriter:
    """The methods that all Spark versions call in the same way."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Do nothing: remains of a batch are skipped, or are garbage."""


if FEATURES.arrow_stream_writer:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    class _ArrowWriter(_CommittingWriter, DataSourceStreamArrowWriter):
        """The writer for a Spark that passes Arrow data to a sink."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return self._writer.write(read_rows(iterator))


class _RowWriter(_CommittingWriter, DataSourceStreamWriter):
    """The writer for a Spark that creates an object for each row."""

    def write(self, iterator: Iterator[SparkRow]) -> WriterCommitMessage:
        return self._writer.write(read_spark_rows(iterator))


# ---------------------------------------- steps of a query


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Return `frame.mapInArrow(function, schema)`, without a warning of pyspark.

    The warning says that pandas 3 is not fully supported; Penstock uses no pandas data frames.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(function, schema)


def repartition_by_id(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Return `frame` with each row in partition number `column`, from 0 to `partitions` - 1."""
    if FEATURES.repartition_by_id:
        return frame.repartitionById(partitions, column)
    numbers = f.array(*(f.lit(number) for number in hashed_into(partitions)))
    return frame.repartition(partitions, f.get(numbers, f.col(column)))


@lru_cache(maxsize=64)
def hashed_into(partitions: int) -> list[int]:
    """Return one number per partition that `repartition(partitions, column)` maps to that partition.

    Spark computes the hash of the column, an int, modulo the number of partitions.
    """
    found: dict[int, int] = {}
    for number in count():
        hashed = mmh3.hash(number.to_bytes(4, "little"), _HASH_SEED)
        found.setdefault(hashed % partitions, number)
        if len(found) == partitions:
            return [found[partition] for partition in range(partitions)]
    raise AssertionError("the numbers do not end")


# ---------------------------------------- DataFrames of users


def readable_by_libraries(frame: DataFrame) -> DataFrame:
    """Make `frame` readable by pyarrow, polars and DuckDB, and return it.

    They call its method `__arrow_c_stream__`, which collects all rows. Spark before 4.2 has no such method, and the one
    of 4.2 and 4.3 fails for timestamp columns. Frames derived from `frame` have Spark's own method.
    """
    setattr(frame, "__arrow_c_stream__", partial(_collected, frame))  # noqa: B010  # mypy knows no such attribute
    return frame


def _collected(frame: DataFrame, requested_schema: object = None) -> object:
    return frame.toArrow().__arrow_c_stream__(requested_schema)
