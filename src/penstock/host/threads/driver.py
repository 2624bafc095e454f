"""The threads host: checks, makes clients and threads, and tells the application what becomes of it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.client.api import Admin
from penstock.client.confluent import (
    ConfluentAdmin,
    ConfluentBatchProducer,
    ConfluentConsumer,
    ConfluentFetcher,
    ConfluentTransactionalProducer,
)
from penstock.client.confluent.refusals import Refusals
from penstock.client.confluent.statistics import STATISTICS
from penstock.client.settings import RESTORE_CONSUMER
from penstock.config import StreamsConfig
from penstock.config.keys import EXACTLY_ONCE_V2
from penstock.errors import ConfigError, KafkaError, StreamsError, TaskMigratedError, TopologyError
from penstock.extras import load
from penstock.host.api import HostListener, StateQueries, StreamThreadExceptionResponse
from penstock.host.commits.production import RefusedRecords
from penstock.host.commits.purging import RecordPurge
from penstock.host.crashpoints import crash_point
from penstock.host.deployment.layout import Layout, own_topics
from penstock.host.deployment.topic_watch import TopicChanges, TopicWatch
from penstock.host.supervision.progress import DroppedRecordsLog, ProgressLog
from penstock.host.supervision.restarts import Restarts, TaskTimeout
from penstock.host.supervision.turns import ApplicationTurns, TopologyTurns, Turns
from penstock.host.threads import resetting
from penstock.host.threads import vocabulary as v
from penstock.host.threads.bounded_consumer import BoundedConsumer
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.fetch_bounds import consumer_bounds, limits
from penstock.host.threads.figures import InstanceFigures, progress_line
from penstock.host.threads.group import GroupMembership
from penstock.host.threads.group_protocol import max_poll_interval_ms
from penstock.host.threads.instance import Instance
from penstock.host.threads.keys import check_group_protocol, check_keys, commit_interval_ms
from penstock.host.threads.membership import Membership, Post
from penstock.host.threads.output import AtLeastOnceOutput, ExactlyOnceOutput, Output
from penstock.host.threads.polling import Polling
from penstock.host.threads.preparing import checked_layout, refused_change
from penstock.host.threads.processing import LAST_SECONDS, Processing, TaskRunner
from penstock.host.threads.processing_thread import ProcessingThread
from penstock.host.threads.queries import RunningTasks, TaskQueries
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.settings import Settings
from penstock.host.threads.standbys import Standbys, StatePositions, no_snapshots
from penstock.host.threads.subscription import IncompatibleMemberError
from penstock.host.threads.target_topics import PartitionCounts
from penstock.host.threads.task_threads import TaskThreads
from penstock.host.threads.time_rounds import aligned_partitions
from penstock.host.threads.unread import planned_ends
from penstock.host.threads.upkeep import Upkeep, at_intervals
from penstock.host.threads.workers.worker_process import WorkerDiedError
from penstock.host.threads.workers.worker_processes import WorkerProcesses, starter_of_workers
from penstock.log_context import logged_as
from penstock.metrics.host_metrics import Measured, client_statistics
from penstock.plan.dead_letters import check_dead_letters
from penstock.plan.serde_check import check_serdes
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.record import TopicPartition
from penstock.state.restore_listener import StateRestoreListener
from penstock.task.changelog_copy import ChangelogStamp
from penstock.task.taps import TappedRecord
from penstock_broker.common.clock import Clock, Clocks, SystemClock, elapsed_milliseconds

_log = logging.getLogger(__name__)

MakeMembership = Callable[[Layout, StreamsConfig, Post], Membership]
"""Makes the member of the group; it gives its events to the third argument."""

_ENDS_MS = 3_000  # all members wait for the leader's answer
_WEIGHT = "penstock.topology.weight"
_REMOTE_DIR = "penstock.state.remote.dir"
_CLEAN_UP_MS = 10_000  # between two looks for the state of tasks that others have


class ThreadsHost:
    """Runs one topology in threads of this process."""

    def __init__(
        self,
        built: BuiltTopology,
        config: StreamsConfig,
        session: Any = None,
        until_end: bool = False,
        restore_listener: StateRestoreListener | None = None,
        clock: Clock | None = None,
        make_membership: MakeMembership | None = None,
        turns: ApplicationTurns | None = None,
    ) -> None:
        """Take what to run; nothing is opened before `start`.

        session: a session of Spark, which this host does not take. until_end: stop at the ends of the topics at the
        start. restore_listener: receives the restores of stores. clock: None for that of the machine. make_membership:
        joins the group; None for a member on the classic protocol. turns: which the topologies of this process take
        to process; None if it is alone. Raises ConfigError for a session.
        """
        if session is not None:
            raise ConfigError("A session of Spark was given, but the threads host runs without Spark: leave it out.")
        self._built = built
        self._config = config
        self._make_membership = make_membership
        self._all_turns = turns
        self._turns: TopologyTurns | None = None
        self._until_end = until_end
        self._ends: Mapping[TopicPartition, int] = {}
        self._restore_listener = restore_listener
        self._clocks = Clocks.of(clock)
        self._exactly_once = config["processing.guarantee"] == EXACTLY_ONCE_V2
        self._application_id = str(config.required("application.id"))
        self._directory = StateDirectory(config)
        self._figures = InstanceFigures.of(config, own_topics(built).__contains__)
        self._dropped = DroppedRecordsLog(self._application_id, self._figures.dropped)
        self._queries = TaskQueries(built, config, self._clocks.wall)
        self._stopped = threading.Event()
        self._rebalancing = threading.Event()
        self._paused = False
        self._refused: str | None = None
        self._polling: Polling | None = None
        self._leaves_group = True
        self._standbys: Standbys | None = None
        self._opener: StateOpener | None = None
        self._tasks_in: Processing | None = None
        self._thread: threading.Thread | None = None
        self._open = ExitStack()

    @staticmethod
    def check_keys(config: StreamsConfig) -> None:
        """Warn of keys that change nothing on this host, and raise ConfigError for one that does not exist."""
        check_keys(config)

    def start(self, listener: HostListener) -> None:
        """Check everything, then start the threads; returns when they run. Raises StreamsError when it must not
        start."""
        self.check_keys(self._config)
        check_group_protocol(self._built, self._config)
        check_serdes(self._built, self._config)
        check_dead_letters(self._built, self._config)
        if self._built.data_frame_topics:
            raise TopologyError("The topology reads or writes DataFrames, which only the Spark host does.")
        checkpoint = Path(self._config.checkpoint_directory())
        if checkpoint.is_dir() and any(spec.stores for spec in self._built.subtopologies):
            raise StreamsError(
                f"The state of {self._application_id} is in the checkpoint of the Spark host, {checkpoint}, which this "
                "host does not read. Run it with penstock.host=spark, or set another application.id. If its state is "
                "also in changelog topics (penstock.changelog.topics=true, or `penstock savepoint export --to-kafka`), "
                "or you give it up, move that directory away."
            )
        polling = self._opened(listener)
        name = f"penstock-{self._application_id}"
        self._thread = threading.Thread(
            target=logged_as(self._application_id)(self._run), args=(polling, listener), name=name, daemon=True
        )
        self._thread.start()

    def rebalance(self, reason: str) -> None:
        """Run with the current topics: commit, leave the group, look at the topics again and join. Returns immediately;
        before `start` and after `close` nothing happens. An error of the preparation goes to the handler of uncaught
        exceptions, which may have it tried again.

        Args:
            reason: why, for the log: "topic x has 8 partitions now".
        """
        if self._polling is not None and not self._stopped.is_set():
            _log.info("%s rebalances: %s", self._application_id, reason)
            self._rebalancing.set()
            self._post(v.CloseRequested())

    def pause(self) -> None:
        """Process no more records and make no punctuations until `resume`; the group, and restores, go on."""
        self._paused = True
        self._post(v.PauseRequested())

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False
        self._post(v.ResumeRequested())

    def clean_up(self) -> None:
        """Delete the state directory of the application on this machine: the stores are restored from their changelogs.
        Raises LockError if an instance runs."""
        self._directory.clean_up()

    def reset(self) -> None:
        """Delete what the group has committed, the internal topics and the state directory on this machine, so that the
        next start is a first one. Raises LockError if an instance runs on this machine, KafkaError if one runs
        elsewhere, or the brokers do not do it."""
        resetting.reset_built(self._built, self._config)

    def close(self, timeout_ms: int, leave_group: bool = True) -> bool:
        """Commit, close all tasks, leave the group unless it is to remain in it, and release everything; return whether
        that was done within `timeout_ms`."""
        deadline = time.monotonic() + timeout_ms / 1000
        self._leaves_group = leave_group
        self._stopped.set()
        if self._turns is not None:
            self._turns.leave()  # the last runs wait for nobody
        self._post(v.CloseRequested(leave_group))
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(deadline - time.monotonic(), 0))
            return not self._thread.is_alive()
        return True

    def summary(self) -> str:
        """Return one line: guarantee, broker, state directory."""
        servers, directory = self._config["bootstrap.servers"], self._config["state.dir"]
        guarantee = "exactly once" if self._exactly_once else "at least once"
        return f"{guarantee}; broker {servers}; state {directory}/{self._application_id}"

    def statistics(self) -> Mapping[str, Any]:
        """Return figures since the start, see `InstanceFigures.snapshot`; standbys: the sum of the next offsets of the
        changelogs, by standby task; restoring: of the task that is being restored, how many offsets of its changelogs
        are done, and how many there are; workers: where each task runs; awaited: of each task with records that wait,
        the partitions that they wait for; recent_commits: what the last ones took (CommitFigures); clients: the
        statistics of consumers and producers (`client_statistics`)."""
        workers = {} if self._tasks_in is None else self._tasks_in.workers()
        standbys = {} if self._standbys is None else self._standbys.positions()
        restoring = {} if self._opener is None else self._opener.progress()
        return {
            **self._figures.snapshot(),
            "standbys": {str(task): end for task, end in standbys.items()},
            "restoring": {str(task): progress for task, progress in restoring.items()},
            "workers": {str(task): worker for task, worker in workers.items()},
            "awaited": self._figures.awaited(),
            "recent_commits": self._figures.recent_commits(),
            "clients": client_statistics(self._figures.measured()),
        }

    def measured(self) -> Measured:
        """Return what was measured of tasks and commits, and what sensors recorded."""
        return self._figures.measured()

    def queries(self) -> StateQueries:
        """Return what answers interactive queries, from the tasks of this instance while it runs."""
        return self._queries

    def table(self, store_name: str) -> Any:
        """Return the entries of a store that this instance has, in the columns that `streams.table` names, as a table
        of Arrow; raises UnknownStateStoreError if the topology has none of that name, InvalidStateStoreError if it is
        not here."""
        return self._queries.table(store_name)

    def tapped(self, node: str, limit: int) -> Sequence[TappedRecord]:
        """Return the last records that have reached a node in the tasks of this instance, and keep such records from
        now on; raises StateStoreNotAvailableError while no task runs."""
        return self._queries.tapped(node, limit)

    def untap(self, node: str) -> None:
        """Keep the records of a node no longer."""
        self._queries.untap(node)

    # ---------------------------------------- start

    def _opened(self, listener: HostListener) -> Polling:
        """Check the topics, make clients and threads, and return the loop of the polling thread."""
        with ExitStack() as opened:
            self._directory.acquire()
            opened.callback(self._directory.release)
            opened.callback(self._directory.seal)
            opened.callback(self._dropped.look)
            admin = GroupAdmin(self._config)
            opened.callback(admin.close)
            layout = checked_layout(self._built, self._config, admin)
            self._rebalancing.clear()
            watch = TopicWatch(self._built, self._config, own_topics(self._built))
            application = _Application(listener, lambda: self._rebalances_for(watch.changes(layout)))
            polling = self._polling = self._wired(layout, admin, application, opened)
            upkeep = Upkeep(f"penstock-{self._application_id}-upkeep", self._upkeep(layout, watch))
            opened.callback(upkeep.close, LAST_SECONDS)
            self._open = opened.pop_all()
        if self._stopped.is_set() or self._rebalancing.is_set():  # whoever asked may not have seen this loop
            polling.post(v.CloseRequested(self._leaves_group))
        return polling

    def _upkeep(self, layout: Layout, watch: TopicWatch) -> list[Callable[[], None]]:
        """Return what is done from time to time while the instance runs."""
        config, figures = self._config, self._figures
        progress = ProgressLog(self._application_id, config["log.summary.interval.ms"], figures.snapshot, progress_line)
        clean_up = at_intervals(_CLEAN_UP_MS, self._clean_up_unused)
        looks = [progress.look, self._dropped.look, clean_up, self._take_statistics_of_clients]
        if not self._until_end:
            looks.append(partial(self._look_at_topics, watch, layout))
        return looks

    def _take_statistics_of_clients(self) -> None:
        """Add what the clients of this application report, if `statistics.interval.ms` is set."""
        self._figures.take_clients(STATISTICS.take_of(self._config))

    def _clean_up_unused(self) -> None:
        """Delete the state of tasks that others have had for long enough."""
        delay_ms: int = self._config["state.cleanup.delay.ms"]
        self._directory.delete_unused((SystemClock().milliseconds() - delay_ms) / 1000)

    def _look_at_topics(self, watch: TopicWatch, layout: Layout) -> None:
        """Rebalance if topics have changed since the instance was set up."""
        if not self._rebalancing.is_set():
            self._rebalances_for(watch.look(layout, elapsed_milliseconds()))

    def _rebalances_for(self, changes: TopicChanges | None) -> bool:
        """Rebalance for changes of topics, if there are any; return whether that is so. Where topics have only grown,
        and tasks with state would not keep their partitions, the tasks stay as they are: they still have all that they
        read."""
        if changes is None:
            return False
        why = refused_change(self._built, self._config) if changes.are_growth else None
        if why is None:
            self.rebalance(changes.text)
        elif why != self._refused:
            _log.error(
                "Topics of %s have changed (%s), and the tasks stay as they are, because others are refused: %s What "
                "is new is not read until then.",
                self._application_id,
                changes.text,
                why,
            )
        self._refused = why
        return why is None

    def _wired(self, layout: Layout, admin: Admin, application: _Application, opened: ExitStack) -> Polling:
        """Return the loop of the polling thread with all that works for it; `opened` closes that."""
        if self._until_end:
            self._ends = planned_ends(layout, admin, self._ends)
        until = self._ends if self._until_end else None
        config = self._config
        events: queue.SimpleQueue[v.Event] = queue.SimpleQueue()
        post = events.put  # to this loop alone: a thread that outlives it must not disturb the next one
        settings = Settings(
            commit_interval_ms(config), limits(config), self._exactly_once, max_poll_interval_ms(config)
        )
        fetcher = ConfluentFetcher(self._config, role=RESTORE_CONSUMER)
        opened.callback(fetcher.close)
        # Arrow, which snapshots on a remote file system need, takes 40 MB.
        remote = None if config[_REMOTE_DIR] is None else load("penstock.host.threads.remote_state", _REMOTE_DIR)
        snapshots = None if remote is None else remote.remote_snapshots(config)
        fill = no_snapshots if remote is None else remote.RemoteState(layout, snapshots, admin, self._clocks.wall).fill
        follower = partial(ConfluentConsumer, config, role=RESTORE_CONSUMER)
        standbys = Standbys(layout, admin, follower, self._directory.open_base, fill, self._figures.updated)
        self._standbys = standbys
        positions = StatePositions(
            layout, standbys, partial(ConfluentAdmin, config, _ENDS_MS), self._directory.has_base
        )
        opened.callback(positions.close)
        self._look_at_disk(layout, positions)
        opener = self._opener = StateOpener(
            layout,
            admin,
            fetcher,
            self._directory.open_base,
            self._clocks.wall,
            self._restore_listener,
            self._stopped.is_set,
            standbys,
            fill,
            self._figures.restored,
        )
        targets = PartitionCounts(layout.topic_partitions, partial(ConfluentAdmin, self._config))
        opened.callback(targets.close)
        runner = TaskRunner(layout, targets)
        letters = PartitionCounts(layout.topic_partitions, partial(ConfluentAdmin, self._config))
        opened.callback(letters.close)
        purge = RecordPurge(self._config["repartition.purge.interval.ms"], elapsed_milliseconds)
        processing = self._tasks_in = self._processing(layout, runner, partial(_answered, positions, post))
        opened.callback(processing.close)
        self._figures.started(processing.worker_count, self._clocks.wall.milliseconds())
        workers = TaskThreads(self._application_id, processing, opener, standbys, purge, post, self._figures)
        opened.callback(workers.close)
        make_membership = self._make_membership or partial(
            GroupMembership,
            process=self._directory.process_id(),
            state=positions,
            workers=processing.worker_count,
            member_file=self._directory.member_file(),
        )
        membership = make_membership(layout, self._config, post)
        opened.callback(membership.close)
        shared = {group for group in layout.groups.values() if len(group) > 1}
        consumer = ConfluentConsumer(config, defaults=consumer_bounds(config, len(layout.readers)))
        polling = Polling(
            Instance(layout, settings, self._clocks.elapsed.milliseconds(), until, processing.worker_of),
            consumer if until is None else BoundedConsumer(consumer, until),
            self._output(layout, membership, letters),
            membership,
            workers,
            application,
            self._clocks,
            self._config["poll.ms"],
            frozenset(partition for group in shared for partition in group),
            self._figures,
            events,
            processing.turns,
            processing.worker_of,
            aligned_partitions(layout),
        )
        opened.callback(polling.close)
        self._queries.begin(
            RunningTasks(
                layout,
                processing,
                standbys,
                lambda: application.is_running,
                lambda: self._figures.commit,
                membership.endpoints,
            )
        )
        opened.callback(self._queries.close)
        if remote is not None:
            writer = self._snapshot_writer(remote, layout, snapshots, processing)
            opened.callback(writer.close, LAST_SECONDS)
            writer.start()
        if self._paused:
            polling.post(v.PauseRequested())
        return polling

    def _snapshot_writer(self, remote: ModuleType, layout: Layout, snapshots: Any, processing: Processing) -> Any:
        """Return what writes snapshots of the tasks that run in `processing`. remote: the module `remote_state`."""
        return remote.SnapshotWriter(
            f"penstock-{self._application_id}-snapshots",
            layout,
            snapshots,
            self._directory,
            processing.open_tasks,
            lambda: self._figures.commit,
            partial(ConfluentAdmin, self._config, _ENDS_MS),
            self._clocks.wall,
            self._config["penstock.state.remote.interval.ms"],
        )

    def _processing(self, layout: Layout, runner: TaskRunner, answer: Callable[[v.Event], None]) -> Processing:
        """Return where tasks run: in worker processes, or with one of them, or where these cannot have the program, in
        a thread."""
        workers, turns = self._config["num.stream.threads"], self._all_turns
        if workers > 1:
            self._turns = None if turns is None else self._joined(turns.in_workers)
            try:
                start = starter_of_workers(layout, self._directory.run)
                processes = WorkerProcesses(layout, start, workers, runner, answer, self._turns)
            except StreamsError as error:
                _log.warning(
                    "num.stream.threads is %d, but one thread of %s processes all its tasks, and uses one core: %s",
                    workers,
                    self._application_id,
                    error,
                )
            else:
                self._config["production.exception.handler"].configure(self._config)  # no task does it here
                return processes
        self._turns = None if turns is None else self._joined(turns.in_threads)
        return ProcessingThread(f"penstock-{self._application_id}-processing", runner, answer, self._turns)

    def _joined(self, turns: Turns) -> TopologyTurns:
        """Return the turns of this topology, with the weight that it was given."""
        return turns.join(int(self._config[_WEIGHT]) if _WEIGHT in self._config.given() else None)

    def _look_at_disk(self, layout: Layout, positions: StatePositions) -> None:
        """Find out how much of the state of tasks an earlier run has left."""
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

    def _output(self, layout: Layout, membership: Membership, targets: Mapping[str, int]) -> Output:
        """Return where output goes; raises KafkaError if an earlier transaction of this instance cannot be ended."""
        handler = self._config["production.exception.handler"]  # which each task has configured

        def refused_by(task: TaskId) -> RefusedRecords:
            return RefusedRecords(handler, task, layout.spec(task), layout.topology.node_lines, targets, "commit")

        if not self._exactly_once:
            return AtLeastOnceOutput(partial(ConfluentBatchProducer, self._config, refusals=Refusals()), refused_by)
        transactional_id = f"{self._application_id}-{self._directory.process_id()}-1"
        before_commit = partial(crash_point, "commit.offsets", 0)
        producer = ConfluentTransactionalProducer(self._config, transactional_id, before_commit=before_commit)
        return ExactlyOnceOutput(producer, membership, refused_by)

    def _post(self, event: v.Event) -> None:
        polling = self._polling
        if polling is not None:
            polling.post(event)

    def _run(self, polling: Polling, listener: HostListener) -> None:
        """Work until the instance ends, release everything, and tell the application."""
        error = self._run_until_end(polling)
        while self._is_rebalance(error) and not self._stopped.is_set():
            error = None
            listener.on_rebalancing()
            try:
                next_polling = self._opened_again(listener)
            except Exception as raised:
                error = raised
                break
            if next_polling is not None:
                error = self._run_until_end(next_polling)
        self._stopped.set()
        if error is not None:
            listener.on_error(error)
        else:
            listener.on_stopped()

    def _opened_again(self, listener: HostListener) -> Polling | None:
        """Return the loop for the topics that there are now, None if the application is closed meanwhile. What fails is
        tried again: what brokers do not serve within `task.timeout.ms`, else if the handler of uncaught exceptions says
        so. Raises the error that ends the application."""
        restarts, timeout = Restarts.of(self._config), TaskTimeout(self._config["task.timeout.ms"])
        wait = 0
        while not self._stopped.wait(wait / 1000):
            try:
                return self._opened(listener)
            except Exception as error:
                pause: int | None = None
                if timeout.allows(error, elapsed_milliseconds()):
                    pause = self._config["penstock.restart.backoff.ms"]
                elif listener.on_failure(error) is StreamThreadExceptionResponse.REPLACE_THREAD:
                    pause = restarts.next_wait_ms(0)
                if pause is None:
                    raise
                wait = pause
                _log.warning("%s failed to rebalance and tries again in %d ms: %s", self._application_id, wait, error)
        return None

    def _run_until_end(self, polling: Polling) -> BaseException | None:
        """Work until the instance ends, and release everything; return the error that ended it."""
        error: BaseException | None
        try:
            error = polling.run()
        except BaseException as raised:
            _log.exception("The polling thread of %s has failed.", self._application_id)
            error = raised
        if not self._is_rebalance(error):
            self._stopped.set()  # no restore goes on
        try:
            self._open.close()
        except Exception:
            _log.exception("%s could not be closed properly.", self._application_id)
        return error

    def _is_rebalance(self, error: BaseException | None) -> bool:
        """Return whether an instance that has ended is to be followed by another one, which makes again what the last
        commit could not: because a topic was deleted, brokers did not answer, or the group had gone on."""
        passes = isinstance(error, KafkaError | TaskMigratedError)
        return self._rebalancing.is_set() and (error is None or passes)


def _answered(positions: StatePositions, post: Post, event: v.Event) -> None:
    """Give the answer of a task to the core."""
    if isinstance(event, v.Closed) and event.stamp is not None:
        positions.take(event.task, event.stamp)
    post(event)


class _Application:
    """Tells the application, by its listener (implements polling.ApplicationListener)."""

    def __init__(self, listener: HostListener, rebalances: Callable[[], bool]) -> None:
        """Tell `listener`. rebalances: begins a rebalance if topics have changed, and returns whether they have."""
        self._listener = listener
        self._rebalances = rebalances
        self.is_running = False
        """Whether all tasks are being processed."""

    def running(self) -> None:
        """Tell that all tasks are being processed."""
        self.is_running = True
        self._listener.on_running()

    def rebalancing(self) -> None:
        """Tell that tasks are being set up."""
        self.is_running = False
        self._listener.on_rebalancing()

    def ask(self, error: BaseException) -> v.Decided:
        """Return the answer of the handler of uncaught exceptions; it is not asked about topics that have changed, nor
        about a worker process that has died, unless that goes on with the same task."""
        if isinstance(error, KafkaError | IncompatibleMemberError) and self._rebalances():
            return v.Decided(StreamThreadExceptionResponse.REPLACE_THREAD)
        if isinstance(error, WorkerDiedError) and error.is_first:
            _log.warning("%s", error)
            return v.Decided(StreamThreadExceptionResponse.REPLACE_THREAD)
        return v.Decided(self._listener.on_failure(error))
