"""The commits of an instance. Part of the core.

A commit covers all tasks. It happens between runs: no task runs from the first flush of a cache until each base has its
changes. Its steps are phases; an error in any of them undoes the whole commit.

Without transactions, the changelogs of waiting records follow when brokers have all other output: a waiting record must
not be deleted there while its result may still be refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.client.api import OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.host.deployment.layout import Layout
from penstock.host.threads import vocabulary as v
from penstock.host.threads.active_task import ActiveTaskState
from penstock.host.threads.phases import InstancePhase, Phase
from penstock.host.threads.settings import Settings
from penstock.host.threads.task_manager import TaskManager
from penstock.host.threads.task_progress import TaskProgress
from penstock.plan.subtopology import TaskId
from penstock.processor.waiting_serdes import keeps_waiting_records
from penstock.record import PartitionBatch, TopicPartition

_CALLS_INTERVAL_MS: Final = 100
"""The commit interval while records wait for a commit before their calls, unless the configured one is shorter."""


class CommitCycle:
    """Decides when a commit is due, and performs its steps.

    Args:
        layout: the topology and configuration of the application.
        settings: commit interval and guarantee.
        tasks: the active tasks.
        phase: the phase of the instance.
        progress: tracks unanswered actions about tasks.
        do: performs actions.
        now: current time of the core (ms).
    """

    def __init__(
        self,
        layout: Layout,
        settings: Settings,
        tasks: TaskManager,
        phase: InstancePhase,
        progress: TaskProgress,
        do: v.Do,
        now: int,
    ) -> None:
        self.commits = 0
        """The number of commits of processed records."""
        self._purged_topics = {*layout.topology.repartition_topics, *layout.topology.task_topics}
        self._last_topics = frozenset() if settings.exactly_once else changelogs_of_waiting_records(layout)
        self._most_uncommitted_bytes: int = layout.config["penstock.uncommitted.max.bytes"]
        self._most_of_all_tasks = most_uncommitted_of_all_tasks(layout.config)
        self._settings = settings
        self._tasks, self._phase, self._progress, self._do = tasks, phase, progress, do
        self._committed_at = now
        self._is_requested = self._has_processed = self._adds_calls = False
        self._last_output: dict[TaskId, list[PartitionBatch]] = {}
        self._committing: set[TaskId] = set()
        self._waiting_for: set[TaskId] = set()
        self._offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._ends_written: Mapping[TopicPartition, int] = {}

    @property
    def due_ms(self) -> int:
        """The end of the commit interval (ms)."""
        interval = self._settings.commit_interval_ms
        return self._committed_at + (min(interval, _CALLS_INTERVAL_MS) if self._adds_calls else interval)

    def is_due(self, now: int) -> bool:
        """Return whether the commit interval has passed or a commit was requested."""
        return self._is_requested or now >= self.due_ms

    def has_changes(self) -> bool:
        """Return whether there are changes to commit."""
        return self._tasks.have_changes()

    def is_applied(self) -> bool:
        """Return whether all bases have the changes of the commit."""
        return not self._waiting_for

    def send(self, task: TaskId, output: Sequence[PartitionBatch]) -> None:
        """Write output of a task as part of the next commit."""
        if output:
            self._do(v.Send(output, task))

    def ran(self, event: v.Ran) -> None:
        """Note a run as part of the next commit."""
        task = self._tasks[event.task]
        task.uncommitted_bytes = event.uncommitted_bytes
        is_large = event.uncommitted_bytes > self._most_uncommitted_bytes or self._are_tasks_large()
        self._is_requested |= event.commit_requested or task.is_slow or is_large
        self._has_processed |= event.records > 0
        self._adds_calls |= event.adds_calls and not self._settings.exactly_once

    def _are_tasks_large(self) -> bool:
        """Return whether a commit would free more than the limit of all tasks."""
        most = self._most_of_all_tasks
        if most is None:
            return False
        return sum(task.uncommitted_bytes for task in self._tasks if task.is_committed) > most

    def begin(self, now: int) -> None:
        """Begin a commit: tasks flush their caches. Nothing may be in flight."""
        for task, output in self._tasks.alignment.release():
            self.send(task, output)
        self._offsets, self._last_output = {}, {}
        self._ends_written = {}
        self._committing = {task.id for task in self._tasks if task.changed and task.is_committed}
        self._waiting_for = set(self._committing)
        if not self._committing:
            self._apply({}, now)
            return
        self._phase.change(Phase.PREPARING)
        for id in sorted(self._committing):
            self._progress.ask(v.Prepare(id, now), now)

    def take(self, event: v.CommitEvent, now: int) -> None:
        """Continue after an event."""
        match event:
            case v.CommitPrepared():
                self._prepared(event, now)
            case v.OutputLags():
                self._is_requested = True
            case v.Written(ends):
                self._written(ends)
            case v.OffsetsCommitted():
                self._offsets_committed(now)
            case v.TransactionCommitted(ends):
                self._sent_is_durable(ends)
                self._offsets_committed(now)
            case v.CommitApplied(task, due, calls):
                self._tasks[task].wake_at(due)
                self._tasks[task].waiting_calls = calls.waiting
                self._answered(task, now)

    def _answered(self, id: TaskId, now: int) -> None:
        self._progress.answered(id, now)
        self._waiting_for.discard(id)

    def _prepared(self, event: v.CommitPrepared, now: int) -> None:
        if self._tasks[event.task].state is not ActiveTaskState.RUNNING:
            return  # a function held up the task until this commit was undone; the task is closed next
        self._answered(event.task, now)
        if self._phase.current is not Phase.PREPARING:
            return
        self._offsets.update(self._tasks[event.task].committable(event.offsets))
        last = [batch for batch in event.output if batch.topic in self._last_topics]
        self.send(event.task, [batch for batch in event.output if batch.topic not in self._last_topics])
        if last:
            self._last_output[event.task] = last
        if self._waiting_for:
            return
        if not self._offsets:  # only global stores have changed: no offset needs the group
            self._apply({}, now)
        elif self._settings.exactly_once:
            self._phase.change(Phase.COMMITTING)
            self._do(v.CommitTransaction(dict(self._offsets)))
        else:
            self._phase.change(Phase.WRITING)
            self._do(v.Flush())

    def _written(self, ends: Mapping[TopicPartition, int]) -> None:
        if self._phase.current is not Phase.WRITING:
            return
        self._sent_is_durable(ends)
        if self._last_output:
            for task, output in self._last_output.items():
                self.send(task, output)
            self._last_output = {}
            self._do(v.Flush())
            return
        self._phase.change(Phase.COMMITTING)
        self._do(v.CommitOffsets(dict(self._offsets)))

    def _sent_is_durable(self, ends: Mapping[TopicPartition, int]) -> None:
        self._ends_written = {**self._ends_written, **ends}
        self._tasks.written(ends)

    def _offsets_committed(self, now: int) -> None:
        if self._phase.current is Phase.COMMITTING:
            self._apply(self._ends_written, now)

    def _apply(self, ends: Mapping[TopicPartition, int], now: int) -> None:
        self._phase.change(Phase.APPLYING)
        self._waiting_for = set(self._committing)
        for id in sorted(self._committing):
            committed = {p: self._offsets[p].offset for p in self._tasks[id].partitions if p in self._offsets}
            self._progress.ask(v.Apply(id, ends, committed), now)

    def finish(self, now: int) -> bool:
        """Begin the next interval; return whether the commit had changes of tasks."""
        had_changes = bool(self._committing)
        for id in self._committing:
            self._tasks[id].committed()
        self._committing = set()
        self.commits += self._has_processed
        if read := {p: each.offset for p, each in self._offsets.items() if p.topic in self._purged_topics}:
            self._do(v.Purge(read))
        self._committed_at = now
        self._is_requested = self._has_processed = self._adds_calls = False
        return had_changes

    def undo(self) -> None:
        """Drop this commit's steps, and the output since the last commit. The output is produced again."""
        self._has_processed = self._adds_calls = False
        self._committing, self._waiting_for, self._offsets, self._last_output = set(), set(), {}, {}
        self._tasks.alignment.forget()


def changelogs_of_waiting_records(layout: Layout) -> frozenset[str]:
    """Return the changelog topics of the stores in which records wait, for their calls or because they are parked."""
    return frozenset(
        topic
        for spec in layout.topology.subtopologies
        for store, topic in spec.written_changelogs.items()
        if keeps_waiting_records(spec.stores[store])
    )


def most_uncommitted_of_all_tasks(config: StreamsConfig) -> int | None:
    """Return the bytes of uncommitted changes before an early commit, None for no limit (KIP-892).

    Kafka class: StreamThread, which commits if the transaction buffers of its tasks exceed the limit.
    """
    most: int = config["statestore.uncommitted.max.bytes"]
    return most if config["enable.transactional.statestores"] and most > 0 else None
