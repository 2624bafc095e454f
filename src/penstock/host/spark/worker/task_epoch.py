"""One epoch of one task, in a worker.

The worker opens the task's state, runs it, writes its commit as segments, and reports. The results count when the
driver has committed them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from penstock.client.confluent.statistics import STATISTICS
from penstock.errors import CorruptedBaseError
from penstock.host.commits.committing import offsets_of
from penstock.host.crashpoints import crash_point
from penstock.host.deployment.lost_topics import topic_entries, used_topics
from penstock.host.measuring.batch_tracing import batch_tracing
from penstock.host.packing.tapped_records import encoded_records
from penstock.host.spark.checkpoints.carried import read_carried, write_carried
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.messages import AT_END, TaskControl, TaskReport
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.spark.worker.bases import keep_base
from penstock.host.spark.worker.measuring import EpochMeasuring
from penstock.host.spark.worker.printing import PrintBuffer
from penstock.host.spark.worker.target_topics import target_topics
from penstock.host.spark.worker.task_state import EpochTaskState
from penstock.plan.subtopology import TaskId
from penstock.private_files import private_directory
from penstock.record import PartitionBatch, RecordBatch, TopicPartition, size_of
from penstock.state.api import StateStore
from penstock.state.change_logging_store import ChangeLog
from penstock.task.environment import TaskEnvironment
from penstock.task.idling import InputWait
from penstock.task.punctuation import EpochSchedules
from penstock.task.stream_task import StreamTask, TaskCommit


class TaskEpoch:
    """Runs `task` for the epoch of `control`.

    Args:
        description: of the application.
        checkpoint: of the application.
        task: the task to run; nothing is opened before `run`.
        control: of the epoch.
        global_stores: by name, for reading, as of this epoch.
        prepare: called with the task before it processes.
    """

    def __init__(
        self,
        description: ApplicationDescription,
        checkpoint: Checkpoint,
        task: TaskId,
        control: TaskControl,
        global_stores: Mapping[str, StateStore],
        prepare: Callable[[StreamTask], None] = lambda task: None,
    ) -> None:
        self._description = description
        self._checkpoint = checkpoint
        self._task = task
        self._control = control
        self._global_stores = global_stores
        self._prepare = prepare
        self._input: dict[str, tuple[int, int]] = {}
        self._held: list[PartitionBatch] = []
        self._processed = 0
        self._spec = description.subtopologies[task.subtopology]
        self._measuring = EpochMeasuring(self._spec, description.topology.repartition_topics)
        self._look_again_ms: int | None = None
        self._ahead: tuple[TopicPartition, ...] = ()
        self._waits_for_answers = False
        self._awaited: tuple[TopicPartition, ...] = ()
        self._change_log = ChangeLog(self._spec.written_changelogs) if description.writes_changelogs else None
        self._committed: tuple[tuple[str, int, int, str], ...] = ()
        self._tapped: dict[str, list[bytes]] = {}

    def run(self, inputs: Iterable[PartitionBatch], printed: PrintBuffer) -> tuple[list[PartitionBatch], TaskReport]:
        """Return output and report; raises StreamsError, without any lasting effect, if the task fails."""
        control = self._control
        reads_topics = self._description.placement.places[self._task].level == 0  # later levels wait for other tasks
        new = self._measuring.polled(inputs) if reads_topics else self._measuring.fetched(inputs)
        first = next(new, None)
        if first is None and not control.carried and control.is_idle():
            keep_base(self._description, str(self._task), self._checkpoint)
            return [], self._report(replace(control.entry, carried=None), "", 0)
        state = EpochTaskState(self._description, self._checkpoint, self._task, control)
        try:
            with self._measuring.processing():
                commit = self._process(state, chain(() if first is None else (first,), new))
            crash_point("task.after_process", control.epoch)
            entry = state.write_commit(commit)
        except CorruptedBaseError as error:
            state.distrust(error)
            raise
        finally:
            state.close()
        self._measuring.take_clients(STATISTICS.take_of(self._description.config))
        self._measuring.take_base(str(self._task), state.base.measured())
        sent, carried = self._apart(commit.output)
        if self._description.writes_changelogs:
            sent += [*self._changelog(), *self._waiting(carried)]
            self._committed = self._offsets(commit)
        due_ms = _earlier(entry.due_ms, self._look_again_ms)
        entry = replace(entry, due_ms=due_ms, carried=self._write_carried(carried), ahead=self._ahead)
        entry = replace(entry, waits_for_answers=self._waits_for_answers)
        self._write_order(commit)
        report = self._report(entry, printed.text(), sum(commit.dropped_records.values()))
        worker = f"{socket.gethostname()} (pid {os.getpid()})"
        return sent, report._replace(phases=self._measuring.phases(), worker=worker, awaited=self._awaited)

    def _process(self, state: EpochTaskState, inputs: Iterable[PartitionBatch]) -> TaskCommit:
        description, control = self._description, self._control
        task = StreamTask(
            self._spec,
            self._task,
            description.config,
            state.base,
            target_topics(description),
            checkpoint=state.checkpoint,
            wall_clock_ms=control.planned_ms,
            environment=TaskEnvironment(
                schedules=EpochSchedules(() if state.checkpoint is None else state.checkpoint.schedules),
                global_stores=self._global_stores,
                input_partitions=description.placement.users_inputs(self._task),
                change_log=self._change_log,
                spilled=state.spilled,
                nanoseconds=self._measuring.nanoseconds,
                cache_bytes=description.cache_bytes,
                node_lines=description.topology.node_lines,
                tracing=batch_tracing(description.config),
            ),
        )
        for topic, partition, batch, lane in read_carried(self._checkpoint, control.carried):
            self._processed += len(batch)
            task.add_records(topic, partition, batch, lane)
        for topic, partition, batch, lane in inputs:
            self._processed += len(batch)
            self._count(topic, batch)
            task.add_records(topic, partition, batch, lane)
        crash_point("task.before_process", control.epoch)
        task.initialize()
        # the planner makes the calls again that failed before the start of this run
        task.call_again_before(control.call_again_before)
        self._prepare(task)
        for node, limit in control.taps.items():
            task.tap(node, limit)
        partitions = description.placement.awaitable[self._task]
        wait = InputWait(partitions, frozenset(control.lagging), control.idle_ms)
        self._measuring.process(lambda: task.process(wait))
        self._awaited = tuple(sorted(task.awaited))
        self._held, self._look_again_ms = task.give_up_buffered()
        self._ahead = tuple(sorted(task.partitions_to_pause()))
        self._waits_for_answers = task.waits_for_answers
        self._measuring.held(self._held)
        self._processed -= sum(len(each.batch) for each in self._held)
        task.advance_wall_clock(control.planned_ms)
        task.emit_held_results()
        commit = task.prepare_commit()
        self._measuring.take(commit)
        self._tapped = {node: encoded_records(tapped) for node in control.taps if (tapped := task.tapped(node))}
        task.close()
        return commit

    def _apart(self, output: list[PartitionBatch]) -> tuple[list[PartitionBatch], list[PartitionBatch]]:
        """Return the output for later levels, and the output for the next epoch.

        The latter is for tasks on this or an earlier level: they have run in this epoch, or run at the same time.
        """
        places = self._description.placement.places
        level, _, lane = places[self._task]
        sent: list[PartitionBatch] = []
        carried: list[PartitionBatch] = []
        for each in output:
            if (
                each.topic in self._description.topology.repartition_topics
                and places[self._description.placement.consumer(each.topic, each.partition)].level <= level
            ):
                carried.append(each._replace(lane=lane))
            else:
                sent.append(each)
        return sent, carried

    def _changelog(self) -> Iterator[PartitionBatch]:
        """Yield the changelog records of the epoch."""
        assert self._change_log is not None
        for topic, batch in self._change_log.take_batches(self._control.planned_ms).items():
            yield PartitionBatch(topic, self._task.partition, batch)

    def _waiting(self, carried: list[PartitionBatch]) -> Iterator[PartitionBatch]:
        """Yield the records between tasks that wait for the next epoch.

        Another host finds them in the repartition topics.
        """
        internal = self._description.topology.repartition_topics
        yield from (each for each in self._held if each.topic in internal)
        yield from carried

    def _offsets(self, commit: TaskCommit) -> tuple[tuple[str, int, int, str], ...]:
        """Return the group's commits for the partitions of the task; see TaskReport."""
        offsets = dict.fromkeys(self._description.placement.groups[self._task], AT_END)
        for topic, partition, batch, _ in reversed(self._held):
            offsets[TopicPartition(topic, partition)] = int(batch.offsets[0])
        topics = topic_entries(self._description.topic_ids, used_topics(self._description.topology, self._spec))
        found = offsets_of(self._task, offsets, commit.checkpoint, topics)
        return tuple((*partition, each.offset, each.metadata) for partition, each in found.items())

    def _write_carried(self, sent: list[PartitionBatch]) -> Mapping[str, Any] | None:
        """Write the waiting records and `sent` for the next epoch, if any.

        Return their manifest entry.
        """
        epoch = self._control.epoch
        row_max_bytes = self._description.config["penstock.row.max.bytes"]
        torn = partial(crash_point, "carried.torn_write", epoch)
        carried = write_carried(self._checkpoint, str(self._task), epoch, self._held, sent, row_max_bytes, torn)
        if carried is not None:
            crash_point("carried.after_write", epoch)
        return carried

    def _count(self, topic: str, batch: RecordBatch) -> None:
        if topic not in self._description.topology.repartition_topics:
            records, size = self._input.get(topic, (0, 0))
            self._input[topic] = records + len(batch), size + size_of(batch)

    def _report(self, entry: TaskEntry, printed: str, dropped: int) -> TaskReport:
        control = self._control
        taken = tuple((topic, records, size) for topic, (records, size) in self._input.items())
        return TaskReport(
            task=str(self._task),
            epoch=control.epoch,
            generation=self._description.generation,
            parent=control.entry.head,
            entry=entry,
            input=taken,
            printed=printed,
            dropped=dropped,
            processed=self._processed,
            measured=self._measuring.measured(),
            sensors=self._measuring.sensors(),
            committed=self._committed,
            tapped=self._tapped,
        )

    def _write_order(self, commit: TaskCommit) -> None:
        """Write the order in which records were processed, if requested.

        There is one file per task and epoch, so that a replay writes the same file again.
        """
        directory = self._description.config["penstock.trace.order"]
        if directory is not None and commit.order is not None:
            path = Path(directory) / str(self._task)
            private_directory(path)
            (path / "lane").write_text(str(self._description.placement.places[self._task].lane))
            (path / "cache").write_text(str(self._description.cache_bytes))
            (path / f"{self._control.epoch:012d}").write_bytes(commit.order.encode())


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((time for time in (one, other) if time is not None), default=None)
