"""The progress of restores, reported by the workers that rebuild stores.

`restore_watch` reads it in the driver. A worker that restores for longer than a moment regularly writes its progress to
a small file in the checkpoint, which workers on any machine can write to. With a restore listener, a worker also writes
the end of each restore, and the driver deletes the files that it has read. The files are reports, not state: one of
another generation, or of a committed epoch without an end, is ignored, and losing one does no harm.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import orjson

from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.plan.internal_topics import changelog_topic
from penstock.plan.subtopology import ProcessorSpec, SourceSpec, SubtopologySpec, TaskId
from penstock.record import TopicPartition
from penstock.task.global_task import GLOBAL_TASK_ID
from penstock_broker.common.clock import elapsed_milliseconds

_WRITE_MS = 1_000


class StoreRestore(NamedTuple):
    """The progress of one store with one partition.

    Args:
        topic: the topic.
        partition: number of the partition.
        store: name of the store.
        start: offset at the start.
        reached: offset reached.
        end: offset at the end.
        restored: records restored.
    """

    topic: str
    partition: int
    store: str
    start: int
    reached: int
    end: int
    restored: int


class RestoreState(NamedTuple):
    """The progress of a restore.

    Args:
        generation: of the driver.
        epoch: number of the epoch.
        task: id of the task.
        restored: entries restored.
        total: entries to restore.
        done: whether the restore is done.
        stores: its stores, empty if listeners need no report.
    """

    generation: int
    epoch: int
    task: str
    restored: int
    total: int
    done: bool
    stores: Sequence[StoreRestore]

    def encode(self) -> bytes:
        """Return the state as bytes."""
        return orjson.dumps([*self[:-1], list(map(list, self.stores))])

    @staticmethod
    def decode(data: bytes) -> RestoreState | None:
        """Return the state that `encode` wrote, None for other versions or incomplete data."""
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(fields, list) or len(fields) != len(RestoreState._fields):
            return None
        state = RestoreState(*fields)
        return state._replace(stores=[StoreRestore(*store) for store in state.stores])


class RestoreProgress(ABC):
    """The report of one worker about one restore.

    The restore is done at the end of the `with` block. Nothing is reported before `begin`.

    Args:
        description: of the application.
        checkpoint: receives the reports.
        task: name of the task.
        epoch: the epoch to which the task's stores advance.
        is_restore: whether listeners receive the report; the usual advance from epoch to epoch is not a restore.
    """

    def __init__(
        self, description: ApplicationDescription, checkpoint: Checkpoint, task: str, epoch: int, is_restore: bool
    ) -> None:
        self._description = description
        self._is_restore = is_restore
        self._checkpoint = checkpoint
        self._name = f"{task}.{uuid.uuid4().hex}"
        self._state = RestoreState(description.generation, epoch, task, 0, 0, False, ())
        self._told_ms = 0
        self._told = False

    @abstractmethod
    def _stores(self) -> Sequence[StoreRestore]:
        """Return the progress of each store."""

    def _begin(self, total: int) -> None:
        """Start counting: `total` entries are to be restored."""
        self._state = self._state._replace(restored=0, total=total)
        self._told_ms = elapsed_milliseconds()

    def _restored(self, entries: int) -> None:
        """Count `entries` more."""
        self._state = self._state._replace(restored=self._state.restored + entries)
        if elapsed_milliseconds() - self._told_ms >= _WRITE_MS:
            self._tell()

    def _tell(self) -> None:
        self._told_ms, self._told = elapsed_milliseconds(), True
        self._state = self._state._replace(stores=self._stores() if self._is_restore else ())
        self._checkpoint.restores().write(self._name, self._state.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._is_restore and self._description.tells_restores:
            self._state = self._state._replace(done=True)
            self._tell()
        elif self._told:
            self._checkpoint.restores().delete(self._name)


class TaskRestore(RestoreProgress):
    """The rebuild of the base of a task: offsets count the entries of its segments.

    For the arguments see RestoreProgress.
    """

    def __init__(
        self, description: ApplicationDescription, checkpoint: Checkpoint, task: TaskId, epoch: int, is_restore: bool
    ) -> None:
        super().__init__(description, checkpoint, str(task), epoch, is_restore)
        self._partition = task.partition
        self._spec = description.subtopologies[task.subtopology]
        self._counts: Counter[str] = Counter()

    def begin(self, entries: int) -> None:
        """Start counting, or start over: `entries` is the number of entries in the segments."""
        self._counts.clear()
        self._begin(entries)

    def restored(self, entries: Mapping[str, int]) -> None:
        """Count more entries, by store."""
        self._counts.update(entries)
        self._restored(sum(entries.values()))

    def _stores(self) -> Sequence[StoreRestore]:
        reached, end = self._state.restored, self._state.total
        return [
            StoreRestore(topic, self._partition, name, 0, reached, end, self._counts[name])
            for name, topic in _changelog_topics(self._description.application_id, self._spec).items()
        ]


class GlobalRestore(RestoreProgress):
    """The advance of the global stores to the positions of an epoch.

    Offsets are those of their topics.

    Args:
        spec: the sub-topology of the global stores; for the other arguments see RestoreProgress.
    """

    def __init__(
        self,
        description: ApplicationDescription,
        checkpoint: Checkpoint,
        spec: SubtopologySpec,
        epoch: int,
        is_restore: bool,
    ) -> None:
        super().__init__(description, checkpoint, GLOBAL_TASK_ID, epoch, is_restore)
        self._stores_of = _stores_by_topic(spec)
        self._starts: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self._counts: Counter[TopicPartition] = Counter()

    def begin(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Start counting: each partition is read from its start to before its end."""
        self._starts, self._reached, self._ends = dict(starts), dict(starts), ends
        self._begin(sum(max(end - starts[partition], 0) for partition, end in ends.items()))

    def restored(self, partition: TopicPartition, records: int, reached: int) -> None:
        """Count records of a partition; `reached` is the offset of the next one."""
        self._counts[partition] += records
        self._reached[partition] = reached
        self._restored(records)

    def _stores(self) -> Sequence[StoreRestore]:
        return [
            StoreRestore(*tp, store, self._starts[tp], self._reached[tp], end, self._counts[tp])
            for tp, end in self._ends.items()
            for store in self._stores_of.get(tp.topic, ())
        ]


def _changelog_topics(application_id: str, spec: SubtopologySpec) -> Mapping[str, str]:
    """Return the changelog topic of each store; for a store without one, its hypothetical name."""
    named = {name: changelog_topic(application_id, builder)[0] for name, builder in spec.stores.items()}
    return {**named, **{name: topic for name, (topic, _) in spec.changelogs.items()}}


def _stores_by_topic(spec: SubtopologySpec) -> Mapping[str, Sequence[str]]:
    """Return the global stores of each topic."""
    processors = [node for node in spec.nodes if isinstance(node, ProcessorSpec)]
    return {
        topic: [store for node in processors if source.name in node.parents for store in node.stores]
        for source in spec.nodes
        if isinstance(source, SourceSpec)
        for topic in source.topics
    }
