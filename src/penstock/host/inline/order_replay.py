"""Replays the order trace of a host (`penstock.trace.order`) in this process, without a broker.

The same tasks process the same records in the same order and commit at the same points. The output is byte-equal to
that of the host.

A trace is a directory: one folder per task (`<sub-topology>_<partition>`) with the file `lane`, its number among all
tasks, the file `cache`, the size of its record cache in bytes, and a file for each commit, whose names sort in order of
commits. Tasks live for one commit, as they do on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.record import RecordBatch, TopicPartition
from penstock.state.memory import MemoryBase
from penstock.task.environment import TaskEnvironment
from penstock.task.order_trace import TracedCommit, TracedRange
from penstock.task.punctuation import EpochSchedules
from penstock.task.stream_task import StreamTask
from penstock.task.task_checkpoint import TaskCheckpoint

LANE_FILE, CACHE_FILE = "lane", "cache"

ReadRecords = Callable[[TopicPartition, int, int], RecordBatch]
"""Returns records as bytes, given a partition, a first offset and a count."""


class TracedTask(NamedTuple):
    """A task of a trace. cache_bytes: size of its record cache. commits: files by the names of its commits."""

    task: TaskId
    lane: int
    cache_bytes: int
    commits: Mapping[str, Path]


def read_trace(directory: Path) -> list[TracedTask]:
    """Return the tasks of a trace by lane; raises StreamsError if `directory` has no trace."""
    found = []
    for folder in directory.iterdir() if directory.is_dir() else ():
        commits = {path.name: path for path in folder.iterdir() if path.name not in (LANE_FILE, CACHE_FILE)}
        lane = int((folder / LANE_FILE).read_text())
        cache_bytes = int((folder / CACHE_FILE).read_text())
        found.append(TracedTask(TaskId.parse(folder.name), lane, cache_bytes, commits))
    if not found:
        raise StreamsError(
            f"{directory} has no order trace: run the application with penstock.trace.order={directory} first."
        )
    return sorted(found, key=lambda traced: traced.lane)


class OrderReplay:
    """Runs the tasks of a trace again.

    Args:
        topology: the topology of the trace.
        config: the configuration of the application.
        directory: the directory of the trace.
        records: returns the records of the topics that the topology reads from a broker.
        partitions: the number of partitions of each topic that it writes; those of repartition topics follow from the
            trace.

    Raises:
        StreamsError: the directory has no trace.
    """

    def __init__(
        self,
        topology: BuiltTopology,
        config: StreamsConfig,
        directory: Path,
        records: ReadRecords,
        partitions: Mapping[str, int],
    ) -> None:
        self._topology = topology
        self._config = config
        self._records = records
        self._traced = read_trace(directory)
        self._subtopologies = {spec.id: spec for spec in topology.subtopologies}
        self._partitions = {**partitions, **self._repartition_counts()}
        self._bases = {traced.task: MemoryBase() for traced in self._traced}
        self._checkpoints: dict[TaskId, TaskCheckpoint] = {}
        self._lanes: dict[tuple[TopicPartition, int], list[RecordBatch]] = {}
        self.output: dict[TopicPartition, list[RecordBatch]] = {}

    def run(self) -> None:
        """Replay every commit; the result is in `output`, by partition, in batches as bytes."""
        for name in sorted({name for traced in self._traced for name in traced.commits}):
            for traced in self._traced:
                if name in traced.commits:
                    self._replay(traced, TracedCommit.decode(traced.commits[name].read_bytes()), name)

    def store_entries(self, task: TaskId, store_name: str) -> Iterator[tuple[bytes, bytes]]:
        """Return the final entries of a store of `task`, as bytes in key order."""
        return self._bases[task].view(store_name).range(None, None, False)

    def _replay(self, traced: TracedTask, commit: TracedCommit, name: str) -> None:
        checkpoint = self._checkpoints.get(traced.task, TaskCheckpoint())
        task = StreamTask(
            self._subtopologies[traced.task.subtopology],
            traced.task,
            self._config,
            self._bases[traced.task],
            self._partitions,
            checkpoint,
            commit.wall_clock,
            TaskEnvironment(schedules=EpochSchedules(checkpoint.schedules), cache_bytes=traced.cache_bytes),
        )
        for lane in dict.fromkeys((taken.partition, taken.lane) for taken in commit.ranges):
            batches = [self._read(taken) for taken in commit.ranges if (taken.partition, taken.lane) == lane]
            task.add_records(*lane[0], RecordBatch.concat(batches), lane[1])
        task.initialize()
        task.process()
        task.advance_wall_clock(commit.wall_clock)
        task.emit_held_results()
        done = task.prepare_commit()
        task.committed(done.changes, name.encode())
        task.close()
        self._checkpoints[traced.task] = done.checkpoint
        for topic, partition, batch, _ in done.output:
            to = TopicPartition(topic, partition)
            if topic in self._topology.repartition_topics:
                self._lanes.setdefault((to, traced.lane), []).append(batch)
            else:
                self.output.setdefault(to, []).append(batch)

    def _read(self, taken: TracedRange) -> RecordBatch:
        if taken.partition.topic not in self._topology.repartition_topics:
            return self._records(taken.partition, taken.first_offset, taken.records)
        written = self._lanes.get((taken.partition, taken.lane), [])
        joined = RecordBatch.concat(written)
        batch = joined.slice(taken.first_offset, taken.first_offset + taken.records)
        if len(batch) < taken.records:
            raise StreamsError(
                f"The trace takes {taken.records} records of {taken.partition} from offset {taken.first_offset} of "
                f"lane {taken.lane}, which has {len(joined)}: the trace is incomplete, or belongs to another program."
            )
        return batch

    def _repartition_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for spec in self._topology.subtopologies:
            tasks = sum(traced.task.subtopology == spec.id for traced in self._traced)
            counts |= {topic: tasks for topic in spec.source_topics if topic in self._topology.repartition_topics}
        return counts
