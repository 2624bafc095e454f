"""The source of the query: returns epochs, fetches records and runs level 0.

It is a Python data source of Spark; `planner` plans its epochs. Two kinds of process run it. One long-lived process per
query creates the `EpochReader`: it plans (`next_offset`), makes the input partitions (`partitions`), and deletes
obsolete files (`commit`); its clients and caches live as long as the query. Workers run `read`: each takes one input
partition, which contains the controls of some tasks and the ranges of topics that they read, of later levels too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import StreamsError
from penstock.host.packing.record_blobs import encode_batch
from penstock.host.spark.clients import open_checkpoint
from penstock.host.spark.planner.epoch_planner import EpochPartition, EpochPlanner
from penstock.host.spark.planner.task_controls import OffsetRange
from penstock.host.spark.protocol.application_description import ApplicationDescription, load_description
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.failures import QueryFailedError, encode_failure
from penstock.host.spark.protocol.rows import CONTROL, DATA, SCHEMA_DDL, Row, write_rows
from penstock.host.spark.versions import StreamReader, stream_reader
from penstock.host.spark.worker.global_state import global_stores
from penstock.host.spark.worker.reading import check_topics, read_range
from penstock.host.spark.worker.stage import ended_by_failure, prepare_worker, run_task
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch

FORMAT = "penstock-source"


class SourceBase(DataSource):
    """The data source; `source_class` adds the description."""

    description: bytes

    @classmethod
    def name(cls) -> str:
        """Return the name of the source in the query."""
        return FORMAT

    def schema(self) -> str:
        """Return the schema of a row; see `rows`."""
        return SCHEMA_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader."""
        return stream_reader(EpochReader(self.description))


def source_class(description_bytes: bytes) -> type[SourceBase]:
    """Return the data source of one run.

    A class created here is pickled by value, together with the description.
    """

    class PenstockSource(SourceBase):
        description = description_bytes

    return PenstockSource


class EpochReader(StreamReader):
    """Plans epochs and reads their partitions; see the module docstring.

    Args:
        description: of the application, as bytes. Nothing is opened before it is needed.
    """

    def __init__(self, description: bytes) -> None:
        self._description = description
        self._epoch_planner: EpochPlanner | None = None

    def first_offset(self) -> dict[str, Any]:
        """Return the start of this run: after the last manifest. Each run is a new query to Spark."""
        start = load_description(self._description).start
        assert start is not None, "the description of a run has a topology version"
        return start.to_json()

    def fix_end(self) -> None:
        """Fix the end offsets at which the query stops."""
        with self._errors_told():
            self._planner().fix_ends()

    def next_offset(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the end of the next epoch, or `start` if no epoch is due."""
        with self._errors_told():
            return self._planner().next_epoch(EpochOffset.from_json(start)).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[EpochPartition]:
        """Return the input partitions of the epoch that ends at `end`."""
        if start == end:
            return []
        with self._errors_told():
            return self._planner().partitions(EpochOffset.from_json(start), EpochOffset.from_json(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Report that the epoch that ends at `end` is committed."""
        with self._errors_told():
            self._planner().committed(EpochOffset.from_json(end))

    def stop(self) -> None:
        """Release the clients."""
        if self._epoch_planner is not None:
            self._epoch_planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch the ranges of `partition` and run its tasks of level 0."""
        assert isinstance(partition, EpochPartition)
        prepare_worker()
        description = load_description(self._description)
        rows = ended_by_failure(description, 0, _partition_rows(description, partition))
        return write_rows(rows, description.placement.partitions_after(0))

    def _planner(self) -> EpochPlanner:
        if self._epoch_planner is None:
            self._epoch_planner = EpochPlanner(load_description(self._description))
        return self._epoch_planner

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        """Pass errors of the block to the driver unchanged."""
        try:
            yield
        except StreamsError as error:
            key = load_description(self._description).failure_key
            raise QueryFailedError(encode_failure(error, ""), key) from error


def _partition_rows(description: ApplicationDescription, partition: EpochPartition) -> Iterator[Row]:
    places, sink_level = description.placement.places, description.placement.sink_level
    if partition.sink is not None:
        for number in range(description.placement.sink_partitions):
            yield Row(CONTROL, sink_level, number, 0, 0, partition.sink.encode())
    ranges: dict[TaskId, list[OffsetRange]] = {}
    for each in partition.ranges:
        ranges.setdefault(each.task, []).append(each)
    with global_stores(description, open_checkpoint(description.checkpoint), partition.global_control) as stores:
        for task, control in partition.controls:
            level, number, _ = places[task]
            inputs = _fetched(description, ranges.get(task, []), control.planned_ms)
            if level == 0:
                yield from run_task(description, task, control, inputs, stores)
            else:
                yield Row(CONTROL, level, number, 0, 0, control.encode())
                yield from _passed_on(description, level, number, inputs)
    check_topics(description, {each.partition.topic for each in partition.ranges})


def _fetched(
    description: ApplicationDescription, ranges: list[OffsetRange], planned_ms: int
) -> Iterator[PartitionBatch]:
    for each in ranges:
        for batch in read_range(description, each.partition, each.start, each.end, planned_ms):
            yield PartitionBatch(*each.partition, batch)


def _passed_on(
    description: ApplicationDescription, level: int, number: int, inputs: Iterator[PartitionBatch]
) -> Iterator[Row]:
    """Yield the records of topics that feed a later level.

    A partition of a topic has only the lane 0.
    """
    sequence = 0
    for each in inputs:
        for blob in encode_batch(each.topic, each.partition, each.batch, description.config["penstock.row.max.bytes"]):
            yield Row(DATA, level, number, 0, sequence, blob)
            sequence += 1
