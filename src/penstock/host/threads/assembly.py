"""Builds an instance of the threads host: its clients, its threads and their polling loop."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from penstock.client.api import Admin
from penstock.client.confluent import (
    ConfluentAdmin,
    ConfluentBatchProducer,
    ConfluentConsumer,
    ConfluentFetcher,
    ConfluentTransactionalProducer,
)
from penstock.client.confluent.refusals import Refusals
from penstock.client.settings import RESTORE_CONSUMER
from penstock.config import StreamsConfig
from penstock.config.kafka_keys import EXACTLY_ONCE_V2
from penstock.errors import StreamsError
from penstock.extras import load
from penstock.host.calls.answer_writer import ProducedAnswers
from penstock.host.calls.runner import CallRunner
from penstock.host.commits.production import RefusedRecords
from penstock.host.commits.purging import RecordPurge
from penstock.host.crashpoints import crash_point
from penstock.host.deployment.layout import Layout
from penstock.host.supervision.turns import ApplicationTurns, TopologyTurns, Turns
from penstock.host.threads import vocabulary as v
from penstock.host.threads.action_dispatcher import ActionDispatcher
from penstock.host.threads.bounded_consumer import BoundedConsumer
from penstock.host.threads.changelog_reader import ChangelogReader
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.fetch_bounds import consumer_bounds, limits
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.group import GroupMembership
from penstock.host.threads.group_protocol import max_poll_interval_ms
from penstock.host.threads.input_consumer import InputConsumer
from penstock.host.threads.instance import Instance
from penstock.host.threads.instance_application import InstanceApplication
from penstock.host.threads.instance_calls import InstanceCalls
from penstock.host.threads.keys import commit_interval_ms
from penstock.host.threads.membership import Membership, Post
from penstock.host.threads.output import AtLeastOnceOutput, ExactlyOnceOutput, Output
from penstock.host.threads.polling import Polling
from penstock.host.threads.processing import LAST_SECONDS, Processing, TaskRunner
from penstock.host.threads.processing_thread import ProcessingThread
from penstock.host.threads.queries import RunningTasks, TaskQueries
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.settings import Settings
from penstock.host.threads.standbys import Standbys, StatePositions, no_snapshots
from penstock.host.threads.target_topics import PartitionCounts
from penstock.host.threads.task_threads import TaskThreads
from penstock.host.threads.time_rounds import aligned_partitions
from penstock.host.threads.unread import planned_ends
from penstock.host.threads.workers.worker_processes import WorkerProcesses, starter_of_workers
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.restore_listener import StateRestoreListener
from penstock.task.changelog_copy import ChangelogStamp
from penstock_broker.common.clock import Clocks, elapsed_milliseconds

_log = logging.getLogger(__name__)

MakeMembership = Callable[[Layout, StreamsConfig, Post], Membership]
"""Creates the group member, which posts its events to the third argument."""

_ENDS_MS = 3_000  # all members wait for the leader's answer
_WEIGHT = "penstock.topology.weight"
_REMOTE_DIR = "penstock.state.remote.dir"


@dataclass(frozen=True)
class HostOptions:
    """Options of a host; see `ThreadsHost`."""

    until_end: bool = False
    restore_listener: StateRestoreListener | None = None
    make_membership: MakeMembership | None = None
    turns: ApplicationTurns | None = None


@dataclass(frozen=True)
class InstanceParts:
    """The parts of an instance used by its host. reader: restores state. processing: runs tasks. calls: of tasks."""

    polling: Polling
    standbys: Standbys
    reader: ChangelogReader
    processing: Processing
    calls: InstanceCalls

    def leave_turns(self) -> None:
        """Stop waiting for the turns of other topologies, for the last runs."""
        if self.processing.turns is not None:
            self.processing.turns.leave()


class _RemoteSnapshots(NamedTuple):
    """The module `remote_state`, and the snapshots of the application."""

    module: ModuleType
    snapshots: Any


class _StateParts(NamedTuple):
    """The parts that restore the state of tasks and track its positions."""

    remote: _RemoteSnapshots | None
    standbys: Standbys
    positions: StatePositions
    reader: ChangelogReader
    opener: StateOpener


class InstanceAssembly:
    """Builds the parts of an instance, again after each rebalance.

    Args:
        config: configuration of the application.
        directory: the state on this machine.
        figures: counters and timings.
        queries: answers queries from the tasks of the instance.
        clocks: the clocks of the host.
        options: the options of the host.
        is_stopped: whether the host is closed.
    """

    def __init__(
        self,
        config: StreamsConfig,
        directory: StateDirectory,
        figures: InstanceFigures,
        queries: TaskQueries,
        clocks: Clocks,
        options: HostOptions,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._config = config
        self._directory = directory
        self._figures = figures
        self._queries = queries
        self._clocks = clocks
        self._options = options
        self._is_stopped = is_stopped
        self._is_exactly_once = config["processing.guarantee"] == EXACTLY_ONCE_V2
        self._application_id = str(config.required("application.id"))
        self._ends: Mapping[TopicPartition, int] = {}

    def build(self, layout: Layout, admin: Admin, application: InstanceApplication, opened: ExitStack) -> InstanceParts:
        """Return the parts of an instance; `opened` closes them in reverse order."""
        if self._options.until_end:
            self._ends = planned_ends(layout, admin, self._ends)
        figures, clocks = self._figures, self._clocks
        events: queue.SimpleQueue[v.Event] = queue.SimpleQueue()
        post = events.put  # for this loop only: a thread that outlives it must not disturb the next loop
        state = self._state(layout, admin, opened)
        runner = TaskRunner(layout, self._partition_counts(layout, opened))
        letters = self._partition_counts(layout, opened)
        purge = RecordPurge(self._config["repartition.purge.interval.ms"], elapsed_milliseconds)
        calls = self._calls(layout, post, opened)
        processing = self._processing(layout, runner, partial(_answered, state.positions, calls, post))
        opened.callback(processing.close)
        figures.started(processing.worker_count, clocks.wall.milliseconds())
        workers = TaskThreads(
            self._application_id, processing, state.opener, state.standbys, purge, post, figures, calls
        )
        opened.callback(workers.close)
        membership = self._membership(layout, state.positions, processing.worker_count, calls.following(post))
        opened.callback(membership.close)
        instance, inputs = self._inputs(layout, processing, post)
        dispatcher = ActionDispatcher(
            inputs,
            self._output(layout, membership, letters),
            membership,
            workers,
            application,
            figures,
            clocks,
            post,
        )
        polling = Polling(instance, inputs, dispatcher, clocks, self._config["poll.ms"], figures, events, processing)
        opened.callback(polling.close)
        self._queries.begin(
            RunningTasks(
                layout,
                processing,
                state.standbys,
                lambda: application.is_running,
                lambda: figures.commits.last,
                membership.endpoints,
            )
        )
        opened.callback(self._queries.close)
        if state.remote is not None:
            self._write_snapshots(layout, state.remote, processing, opened)
        return InstanceParts(polling, state.standbys, state.reader, processing, calls)

    def _state(self, layout: Layout, admin: Admin, opened: ExitStack) -> _StateParts:
        config, directory, figures = self._config, self._directory, self._figures
        fetcher = ConfluentFetcher(config, role=RESTORE_CONSUMER)
        opened.callback(fetcher.close)
        remote = self._remote()
        wall = self._clocks.wall
        fill = no_snapshots if remote is None else remote.module.RemoteState(layout, remote.snapshots, admin, wall).fill
        follower = partial(ConfluentConsumer, config, role=RESTORE_CONSUMER)
        standbys = Standbys(layout, admin, follower, directory.open_base, fill, figures.updated)
        positions = StatePositions(layout, standbys, partial(ConfluentAdmin, config, _ENDS_MS), directory.has_base)
        opened.callback(positions.close)
        self._look_at_disk(layout, positions)
        listener = self._options.restore_listener
        reader = ChangelogReader(admin, fetcher, listener, self._is_stopped, fill, figures.restored)
        opener = StateOpener(layout, admin, reader, directory.open_base, wall, standbys)
        return _StateParts(remote, standbys, positions, reader, opener)

    def _remote(self) -> _RemoteSnapshots | None:
        """Return the remote snapshots, None if the application has no remote directory."""
        if self._config[_REMOTE_DIR] is None:
            return None
        module = load("penstock.host.threads.remote_state", _REMOTE_DIR)  # loads Arrow, which takes 40 MB
        return _RemoteSnapshots(module, module.remote_snapshots(self._config))

    def _look_at_disk(self, layout: Layout, positions: StatePositions) -> None:
        """Read the positions of the task state left by an earlier run."""
        for task in filter(self._directory.has_base, layout.stateful):
            try:
                base = self._directory.open_base(task)
            except StreamsError as error:
                _log.warning("The local state of task %s is not considered in assignments: %s", task, error)
                continue
            try:
                stamp = base.stamp()
                if stamp is not None:
                    positions.take(task, ChangelogStamp.decode(stamp))
            finally:
                base.close()

    def _partition_counts(self, layout: Layout, opened: ExitStack) -> PartitionCounts:
        counts = PartitionCounts(layout.topic_partitions, partial(ConfluentAdmin, self._config))
        opened.callback(counts.close)
        return counts

    def _calls(self, layout: Layout, post: Post, opened: ExitStack) -> InstanceCalls:
        """Return the calls of the tasks, which this process makes."""

        def failed(error: Exception) -> None:
            post(v.Failed(error))

        made = {topic: calls for spec in layout.topology.subtopologies for topic, calls in spec.answers_topics.items()}
        topics = {calls.node: topic for topic, calls in made.items()}
        writer = ProducedAnswers(self._application_id, partial(ConfluentBatchProducer, self._config), failed)
        calls = InstanceCalls(layout, CallRunner(made.values(), topics, self._config, writer, failed))
        opened.callback(calls.close)
        self._figures.follow_calls(calls.take_measured)
        return calls

    def _processing(self, layout: Layout, runner: TaskRunner, answer: Callable[[v.Event], None]) -> Processing:
        """Return the worker processes or the thread for tasks. Worker processes are used if several workers are
        configured, and if they can load the program."""
        workers, turns = self._config["num.stream.threads"], self._options.turns
        if workers > 1:
            joined = None if turns is None else self._joined(turns.in_workers)
            try:
                start = starter_of_workers(layout, self._directory.run)
                processes = WorkerProcesses(layout, start, workers, runner, answer, joined)
            except StreamsError as error:
                _log.warning(
                    "num.stream.threads is %d, but one thread of %s processes all its tasks, and uses one core: %s",
                    workers,
                    self._application_id,
                    error,
                )
            else:
                self._config["production.exception.handler"].configure(self._config)  # no task in this process does it
                return processes
        joined = None if turns is None else self._joined(turns.in_threads)
        return ProcessingThread(f"penstock-{self._application_id}-processing", runner, answer, joined)

    def _joined(self, turns: Turns) -> TopologyTurns:
        """Join the turns with this topology and its configured weight."""
        return turns.join(int(self._config[_WEIGHT]) if _WEIGHT in self._config.given() else None)

    def _membership(self, layout: Layout, positions: StatePositions, workers: int, post: Post) -> Membership:
        if self._options.make_membership is not None:
            return self._options.make_membership(layout, self._config, post)
        return GroupMembership(
            layout,
            self._config,
            post,
            process=self._directory.process_id(),
            state=positions,
            workers=workers,
            member_file=self._directory.member_file(),
        )

    def _inputs(self, layout: Layout, processing: Processing, post: Post) -> tuple[Instance, InputConsumer]:
        """Return the core and its input consumer."""
        config = self._config
        until = self._ends if self._options.until_end else None
        settings = Settings(
            commit_interval_ms(config), limits(config), self._is_exactly_once, max_poll_interval_ms(config)
        )
        consumer = ConfluentConsumer(config, defaults=consumer_bounds(config, len(layout.readers)))
        instance = Instance(layout, settings, self._clocks.elapsed.milliseconds(), until, processing.worker_of)
        bounded = consumer if until is None else BoundedConsumer(consumer, {**layout.topology.planned_ends, **until})
        shared = {group for group in layout.groups.values() if len(group) > 1}
        awaitable = frozenset(partition for group in shared for partition in group)
        return instance, InputConsumer(instance, bounded, self._figures, post, awaitable, aligned_partitions(layout))

    def _output(self, layout: Layout, membership: Membership, targets: Mapping[str, int]) -> Output:
        """Return the output for records and commits. Raises KafkaError if an earlier transaction of this instance
        cannot be ended."""
        handler = self._config["production.exception.handler"]  # configured by each task

        def refused_by(task: TaskId) -> RefusedRecords:
            return RefusedRecords(handler, task, layout.spec(task), layout.topology.node_lines, targets, "commit")

        if not self._is_exactly_once:
            return AtLeastOnceOutput(partial(ConfluentBatchProducer, self._config, refusals=Refusals()), refused_by)
        transactional_id = f"{self._application_id}-{self._directory.process_id()}-1"
        before_commit = partial(crash_point, "commit.offsets", 0)
        producer = ConfluentTransactionalProducer(self._config, transactional_id, before_commit=before_commit)
        return ExactlyOnceOutput(producer, membership, refused_by)

    def _write_snapshots(
        self, layout: Layout, remote: _RemoteSnapshots, processing: Processing, opened: ExitStack
    ) -> None:
        """Start writing snapshots of the tasks in `processing`."""
        writer = remote.module.SnapshotWriter(
            layout,
            remote.snapshots,
            self._directory,
            processing.open_tasks,
            lambda: self._figures.commits.last,
            partial(ConfluentAdmin, self._config, _ENDS_MS),
            self._clocks.wall,
        )
        opened.callback(writer.close, LAST_SECONDS)
        writer.start()


def _answered(positions: StatePositions, calls: InstanceCalls, post: Post, event: v.Event) -> None:
    """Post the answer of a task to the core. The positions of a closed task are noted first, and new calls begin."""
    calls.answered(event)
    if isinstance(event, v.Closed) and event.stamp is not None:
        positions.take(event.task, event.stamp)
    post(event)
