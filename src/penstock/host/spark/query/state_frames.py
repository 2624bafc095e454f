"""State as Spark DataFrames, from the checkpoint: the entries of a store, the manifests, and the live segments.

A frame shows the newest manifest at its creation, however often it is evaluated; after the segments of that manifest
are deleted, it can no longer be evaluated. One Spark task for each partition of a store reads it from the segments,
with a database that lives as long as the task. The session comes from the caller: this module does not import pyspark
before it returns a frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.config import StreamsConfig
from penstock.errors import StateStoreNotAvailableError
from penstock.extras import load
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.protocol.application_description import dump_for_workers, load_in_worker
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.spark.query.state_reader import STANDBY_MAP_BYTES
from penstock.plan.subtopology import TaskId
from penstock.state.api import StateStore, StoreBuilder
from penstock.state.lmdb import LmdbBase
from penstock.state.query.columns import StateColumns
from penstock.state.restoring import ReadFile
from penstock.state.segment_log import log_from_json
from penstock.state.segments import SegmentInfo, decode
from penstock.task.standby_task import StandbyTask, clocks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MANIFESTS = (
    "epoch bigint, planned timestamp, committed timestamp, generation bigint, records_in bigint, bytes_in bigint, "
    "records_out bigint, tasks int, segments int, offsets map<string, array<bigint>>"
)
_SEGMENTS = (
    "task string, segment string, kind string, sequence bigint, file_bytes bigint, content_bytes bigint, "
    "entries bigint, deletes bigint"
)


@dataclass(frozen=True)
class StateScan:
    """The data that workers need to read a store.

    Args:
        checkpoint: URI of the checkpoint.
        epoch: of the manifest.
        store: builder of the store.
        config: of the application.
        tasks: the tasks of the store, each with its entry in the manifest.
    """

    checkpoint: str
    epoch: int
    store: StoreBuilder
    config: StreamsConfig
    tasks: tuple[tuple[TaskId, TaskEntry], ...]

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the entries of the store of task `number`; raises StateStoreNotAvailableError for deleted segments."""
        with self.opened(number) as store:
            yield from StateColumns(store).batches(self.tasks[number][0].partition, store)

    @contextmanager
    def opened(self, number: int) -> Iterator[Any]:
        """Open the store of task `number` for a block; raises StateStoreNotAvailableError for deleted segments."""
        task, entry = self.tasks[number]
        with TemporaryDirectory(prefix="penstock-state-") as directory:
            standby = StandbyTask(
                task, {self.store.name: self.store}, self.config, LmdbBase(directory, map_bytes=STANDBY_MAP_BYTES)
            )
            try:
                standby.update(log_from_json(dict(entry.segments)), self._reader(str(task)))
                yield standby.snapshot().store(self.store.name)
            finally:
                standby.close()

    def clocks(self, number: int) -> Mapping[str, int]:
        """Return the persistent values of the stores of task `number` besides entries."""
        task, entry = self.tasks[number]
        if not entry.head:
            return {}
        last = log_from_json(dict(entry.segments)).deltas[-1]
        return clocks_of(decode(self._reader(str(task))(last), last.id))

    def _reader(self, task: str) -> ReadFile:
        files, name = Checkpoint(self.checkpoint), self.store.name

        def read(info: SegmentInfo) -> bytes:
            data = files.read_segment(task, info.id.hex())
            if data is None:
                raise StateStoreNotAvailableError(
                    f"The state of store {name} as of epoch {self.epoch} is no longer in {files.uri}: segment "
                    f"{info.id.hex()} of task {task} was deleted. Create the DataFrame again, or keep more with "
                    "penstock.manifests.retained."
                )
            return data

        return read


def store_frame(session: SparkSession, scan: StateScan, example: StateStore) -> DataFrame:
    """Return the entries of the store of `scan`.

    The frame has one Spark partition for each partition of the store.

    Args:
        session: the session to read in.
        scan: the store.
        example: the store of any task, for the columns.
    """
    data = dump_for_workers(scan)

    def read(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for frame in frames:
            for number in frame.column(0).to_pylist():
                yield from load_in_worker(data).batches(number)

    count = len(scan.tasks)
    frame = session.range(0, count, 1, count).mapInArrow(read, StateColumns(example).ddl)
    readable: DataFrame = load("penstock.host.spark.versions", "A DataFrame").readable_by_libraries(frame)
    return readable


def manifest_frame(session: SparkSession, manifests: Iterable[Manifest]) -> DataFrame:
    """Return a row for each of `manifests`: times, figures and state of the epoch."""
    rows = [
        (
            each.epoch,
            each.planned_ms,
            each.committed_ms,
            each.generation,
            sum(figures.records for figures in each.input.values()),
            sum(figures.bytes for figures in each.input.values()),
            each.records_out,
            len(each.tasks),
            sum(len(entry.segments["deltas"]) + len(entry.segments["snapshots"]) for entry in each.tasks.values()),
            {topic: list(offsets) for topic, offsets in each.offsets.items()},
        )
        for each in manifests
    ]
    raw = session.createDataFrame(rows, _MANIFESTS.replace("timestamp", "bigint"))
    return raw.selectExpr(
        "epoch",
        "timestamp_millis(planned) AS planned",
        "timestamp_millis(committed) AS committed",
        *(column.split()[0] for column in _MANIFESTS.split(", ")[3:9]),
        "offsets",
    )


def segment_frame(session: SparkSession, manifest: Manifest) -> DataFrame:
    """Return a row for each live segment of `manifest`."""
    rows: list[tuple[Any, ...]] = []
    for task, entry in manifest.tasks.items():
        log = log_from_json(dict(entry.segments))
        rows += [
            (
                task,
                info.id.hex(),
                info.kind.value,
                info.sequence,
                info.file_bytes,
                info.content_bytes,
                info.entries,
                info.deletes,
            )
            for info in (*log.snapshots, *log.deltas)
        ]
    return session.createDataFrame(rows, _SEGMENTS)
