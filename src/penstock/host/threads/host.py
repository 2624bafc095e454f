"""The threads host: checks a topology, and starts, follows and closes an instance of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.client.api import Admin
from penstock.client.confluent.statistics import STATISTICS
from penstock.config import StreamsConfig
from penstock.config.kafka_keys import EXACTLY_ONCE_V2
from penstock.errors import (
    ConfigError,
    KafkaError,
    StreamsError,
    TaskMigratedError,
    TopologyError,
    UnsupportedOperationError,
)
from penstock.host.api import AsOf, HostListener, HostStatistics, StateQueries, StreamThreadExceptionResponse
from penstock.host.deployment.layout import Layout, own_topics
from penstock.host.deployment.source_lines import check_no_history
from penstock.host.deployment.topic_watch import TopicChanges, TopicWatch
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.supervision.progress import DroppedRecordsLog, ProgressLog
from penstock.host.supervision.restarts import Restarts, TaskTimeout
from penstock.host.supervision.turns import ApplicationTurns
from penstock.host.threads import resetting
from penstock.host.threads import vocabulary as v
from penstock.host.threads.assembly import HostOptions, InstanceAssembly, InstanceParts, MakeMembership
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.housekeeping import Housekeeping, at_intervals
from penstock.host.threads.instance_application import InstanceApplication
from penstock.host.threads.keys import check_group_protocol, check_keys
from penstock.host.threads.polling import Polling
from penstock.host.threads.preparing import checked_layout, first_layout, refused_change
from penstock.host.threads.processing import LAST_SECONDS
from penstock.host.threads.queries import TaskQueries
from penstock.log_context import logged_as
from penstock.metrics.host_metrics import Measured, client_statistics
from penstock.plan.dead_letters import check_dead_letters
from penstock.plan.serde_check import check_serdes, check_serdes_are_shared
from penstock.plan.subtopology import BuiltTopology
from penstock.state.restore_listener import StateRestoreListener
from penstock.task.taps import TappedRecord
from penstock_broker.common.clock import Clock, Clocks, SystemClock, elapsed_milliseconds

_log = logging.getLogger(__name__)

_CLEAN_UP_MS = 10_000  # interval for deleting the state of tasks that other instances have


class ThreadsHost:
    """Runs one topology in threads of this process. Nothing is opened before `start`.

    Args:
        built: the topology.
        config: its configuration.
        session: must be None; this host uses no Spark session.
        until_end: whether to stop at the ends that the topics have at the start.
        restore_listener: receives the restores of stores.
        clock: None for the clock of the machine.
        make_membership: joins the group; None for the protocol in group.protocol.
        turns: processing turns of the topologies of this process, None for a single topology.

    Raises:
        ConfigError: a session was given.
    """

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
        if session is not None:
            raise ConfigError("A session of Spark was given, but the threads host runs without Spark: leave it out.")
        self._built = built
        self._config = config
        self._until_end = until_end
        self._application_id = str(config.required("application.id"))
        self._directory = StateDirectory(config)
        self._figures = InstanceFigures.of(config, built)
        self._dropped = DroppedRecordsLog(self._application_id, self._figures.dropped)
        clocks = Clocks.of(clock)
        self._queries = TaskQueries(built, config, clocks.wall)
        self._stopped = threading.Event()
        self._rebalancing = threading.Event()
        self._paused = threading.Event()
        self._refused: str | None = None
        self._parts: InstanceParts | None = None
        self._operation = GroupMembershipOperation.DEFAULT
        self._thread: threading.Thread | None = None
        self._open = ExitStack()
        options = HostOptions(until_end, restore_listener, make_membership, turns)
        self._assembly = InstanceAssembly(
            config, self._directory, self._figures, self._queries, clocks, options, self._stopped.is_set
        )

    @staticmethod
    def check_keys(config: StreamsConfig) -> None:
        """Warn of keys without effect on this host. Raises ConfigError for an unknown key."""
        check_keys(config)

    def start(self, listener: HostListener) -> None:
        """Check everything, then start the threads; return when they run. Raises StreamsError if a check fails."""
        self.check_keys(self._config)
        check_group_protocol(self._built, self._config)
        check_serdes(self._built, self._config)
        if (workers := self._config["num.stream.threads"]) > 1:
            processes = f"num.stream.threads={workers} runs the tasks in as many processes"
            check_serdes_are_shared(self._built, self._config, processes)
        check_dead_letters(self._built, self._config)
        if self._built.data_frame_topics:
            raise TopologyError("The topology reads or writes DataFrames, which only the Spark host does.")
        check_no_history(self._built)
        checkpoint = Path(self._config.checkpoint_directory())
        if checkpoint.is_dir() and any(spec.stores for spec in self._built.subtopologies):
            raise StreamsError(
                f"The state of {self._application_id} is in the checkpoint of the Spark host, {checkpoint}, which this "
                "host does not read. Run it with penstock.host=spark, or set another application.id. If its state is "
                "also in changelog topics (penstock.changelog.topics=true, or `penstock savepoint export --to-kafka`), "
                "or you give it up, move that directory away."
            )
        self._delete_outdated()
        polling = self._opened(listener, partial(first_layout, wait=self._stopped.wait))
        name = f"penstock-{self._application_id}"
        self._thread = threading.Thread(
            target=logged_as(self._application_id)(self._run), args=(polling, listener), name=name, daemon=True
        )
        self._thread.start()

    def rebalance(self, reason: str) -> None:
        """Continue with the current topics: commit, leave the group, check the topics again and join.

        Returns immediately. Does nothing before `start` and after `close`. An error of the preparation goes to the
        handler of uncaught exceptions, which may request another attempt.

        Args:
            reason: for the log, such as "topic x has 8 partitions now".
        """
        if self._parts is not None and not self._stopped.is_set():
            _log.info("%s rebalances: %s", self._application_id, reason)
            self._rebalancing.set()
            self._post(v.CloseRequested())

    def pause(self) -> None:
        """Pause records and punctuations until `resume`; group membership and restores continue."""
        self._paused.set()
        self._post(v.PauseRequested())

    def resume(self) -> None:
        """Continue after `pause`."""
        self._paused.clear()
        self._post(v.ResumeRequested())

    def clean_up(self) -> None:
        """Delete the state directory of the application on this machine. Its stores are then restored from their
        changelogs. Raises LockError if an instance runs."""
        self._directory.clean_up()

    def reset(self) -> None:
        """Delete the committed offsets of the group, the internal topics and the local state directory. The next start
        is then a first one. Raises LockError if an instance runs on this machine, KafkaError if one runs elsewhere or
        the brokers fail to do it."""
        resetting.reset_built(self._built, self._config)

    def close(self, timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
        """Commit, close all tasks, leave the group as `operation` says and release all resources. Return whether this
        was done within `timeout_ms`."""
        deadline = time.monotonic() + timeout_ms / 1000
        self._operation = operation
        self._stopped.set()
        if self._parts is not None:
            self._parts.leave_turns()
        self._post(v.CloseRequested(operation))
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(deadline - time.monotonic(), 0))
            return not self._thread.is_alive()
        return True

    def summary(self) -> str:
        """Return one line: guarantee, broker, state directory."""
        servers, directory = self._config["bootstrap.servers"], self._config["state.dir"]
        is_exactly_once = self._config["processing.guarantee"] == EXACTLY_ONCE_V2
        guarantee = "exactly once" if is_exactly_once else "at least once"
        return f"{guarantee}; broker {servers}; state {directory}/{self._application_id}"

    def statistics(self) -> HostStatistics:
        """Return figures since the start."""
        parts = self._parts
        workers = {} if parts is None else parts.processing.workers()
        standbys = {} if parts is None else parts.standbys.positions()
        restoring = {} if parts is None else parts.reader.progress()
        return replace(
            self._figures.snapshot(),
            standbys={str(task): end for task, end in standbys.items()},
            restoring={str(task): progress for task, progress in restoring.items()},
            workers={str(task): worker for task, worker in workers.items()},
            clients=client_statistics(self._figures.measured()),
        )

    def measured(self) -> Measured:
        """Return the measurements of tasks and commits, and those recorded by sensors."""
        return self._figures.measured()

    def queries(self) -> StateQueries:
        """Return the interface for interactive queries. It answers from the tasks of this instance while it runs."""
        return self._queries

    def table(self, store_name: str, as_of: AsOf | None = None) -> Any:
        """Return the local entries of a store as an Arrow table. Its columns are those of `streams.table`. Raises
        UnknownStateStoreError if the topology has no store of that name, InvalidStateStoreError if this instance does
        not have it, UnsupportedOperationError for an earlier commit."""
        if as_of is not None:
            raise UnsupportedOperationError(
                f"Store {store_name} can only be read as of now: the threads host keeps no earlier commits. The Spark "
                "host does."
            )
        return self._queries.table(store_name)

    def tapped(self, node: str, limit: int) -> Sequence[TappedRecord]:
        """Return the last records of a node in the tasks of this instance. Such records are kept from now on. Raises
        StateStoreNotAvailableError while no task runs."""
        return self._queries.tapped(node, limit)

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        self._queries.untap(node)

    # ---------------------------------------- start

    def _delete_outdated(self) -> None:
        """Delete the state of tasks that is older than `state.cleanup.dir.max.age.ms` (KIP-1259)."""
        max_age_ms: int = self._config["state.cleanup.dir.max.age.ms"]
        if max_age_ms >= 0:
            self._directory.delete_outdated((SystemClock().milliseconds() - max_age_ms) / 1000)

    def _opened(
        self, listener: HostListener, prepare: Callable[[BuiltTopology, StreamsConfig, Admin], Layout] = checked_layout
    ) -> Polling:
        """Check the topics, create clients and threads, and return the loop of the polling thread."""
        with ExitStack() as opened:
            self._directory.acquire()
            opened.callback(self._directory.release)
            opened.callback(self._directory.seal)
            opened.callback(self._dropped.end)
            admin = GroupAdmin(self._config)
            opened.callback(admin.close)
            layout = prepare(self._built, self._config, admin)
            self._rebalancing.clear()
            watch = TopicWatch(self._built, self._config, own_topics(self._built))
            application = InstanceApplication(listener, lambda: self._rebalances_for(watch.changes(layout)))
            parts = self._parts = self._assembly.build(layout, admin, application, opened)
            if self._paused.is_set():
                self._post(v.PauseRequested())
                if not self._paused.is_set():  # resumed meanwhile, perhaps before the request to pause
                    self._post(v.ResumeRequested())
            housekeeping = Housekeeping(
                f"penstock-{self._application_id}-housekeeping", self._housekeeping(layout, watch)
            )
            opened.callback(housekeeping.close, LAST_SECONDS)
            self._open = opened.pop_all()
        # A request to end or rebalance may have missed these parts.
        if self._stopped.is_set():
            parts.leave_turns()
        if self._stopped.is_set() or self._rebalancing.is_set():
            parts.polling.post(v.CloseRequested(self._operation))
        return parts.polling

    def _housekeeping(self, layout: Layout, watch: TopicWatch) -> list[Callable[[], None]]:
        """Return the functions to call periodically while the instance runs."""
        config, figures = self._config, self._figures
        progress = ProgressLog(self._application_id, config["log.summary.interval.ms"], figures.snapshot)
        clean_up = at_intervals(_CLEAN_UP_MS, self._clean_up_unused)
        looks = [progress.look, self._dropped.look, clean_up, self._take_statistics_of_clients, figures.take_calls]
        if not self._until_end:
            looks.append(partial(self._look_at_topics, watch, layout))
        return looks

    def _take_statistics_of_clients(self) -> None:
        """Add the statistics of this application's clients, if `statistics.interval.ms` is set."""
        self._figures.take_clients(STATISTICS.take_of(self._config))

    def _clean_up_unused(self) -> None:
        """Delete the state of tasks that other instances have had for long enough."""
        delay_ms: int = self._config["state.cleanup.delay.ms"]
        self._directory.delete_unused((SystemClock().milliseconds() - delay_ms) / 1000)

    def _look_at_topics(self, watch: TopicWatch, layout: Layout) -> None:
        """Rebalance if topics have changed since the instance was set up."""
        if not self._rebalancing.is_set():
            self._rebalances_for(watch.look(layout, elapsed_milliseconds()))

    def _rebalances_for(self, changes: TopicChanges | None) -> bool:
        """Rebalance for changes of topics, if any; return whether it did. If topics have only grown, and stateful tasks
        would not keep their partitions, the tasks stay as they are: they still have all their input."""
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

    def _post(self, event: v.Event) -> None:
        if self._parts is not None:
            self._parts.calls.follow(event)  # at once: after `pause`, no further function is called
            self._parts.polling.post(event)

    def _run(self, polling: Polling, listener: HostListener) -> None:
        """Work until the instance ends, release all resources, and inform the application."""
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
        """Return the loop for the current topics, None if the application is closed meanwhile. Failures are retried:
        those of brokers within `task.timeout.ms`, others if the handler of uncaught exceptions says so. Raises the
        error that ends the application."""
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
        """Work until the instance ends, and release all resources; return the error that ended it."""
        error: BaseException | None
        try:
            error = polling.run()
        except BaseException as raised:
            _log.exception("The polling thread of %s has failed.", self._application_id)
            error = raised
        if not self._is_rebalance(error):
            self._stopped.set()  # stops restores
        try:
            self._open.close()
        except Exception:
            _log.exception("%s could not be closed properly.", self._application_id)
        return error

    def _is_rebalance(self, error: BaseException | None) -> bool:
        """Return whether another instance follows the ended one. It then repeats any work that the last commit could
        not complete: a topic was deleted, brokers did not answer, or the group had gone on."""
        passes = isinstance(error, KafkaError | TaskMigratedError)
        return self._rebalancing.is_set() and (error is None or passes)
