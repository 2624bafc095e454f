"""The Spark host: checks, starts and watches the query, in the program that the user started.

Everything is checked before anything starts: Java, brokers, topics, the checkpoint. Then one query after another runs,
until the host is closed, or a query fails or reaches the planned end: `rebalance` ends the running one after its epoch,
checks everything again and starts the next, with the same lock and in the same session. A supervisor thread
(`QuerySupervisor`) follows the manifests, prints the output of user functions, keeps the figures, and learns how each
query ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.keys import check_client_keys
from penstock.config import StreamsConfig, warn_of_keys_without_effect
from penstock.config.definition import SPARK
from penstock.errors import StreamsNotStartedError
from penstock.host.api import AsOf, HostListener, HostStatistics, StateQueries
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.spark.checkpoints.end_request import EndRequest
from penstock.host.spark.checkpoints.lock import LOCK_FILE, CheckpointLock
from penstock.host.spark.driver.current_query import CurrentQuery
from penstock.host.spark.driver.figures import ManifestFigures
from penstock.host.spark.driver.host_requests import HostRequests
from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.spark.driver.query_attempts import QueryAttempts
from penstock.host.spark.driver.query_follower import QueryFollower
from penstock.host.spark.driver.query_starter import QueryStarter
from penstock.host.spark.driver.query_supervisor import QuerySupervisor
from penstock.host.spark.driver.resetting import reset_application
from penstock.host.spark.driver.restore_watch import RestoreWatch
from penstock.host.spark.driver.session_errors import session_errors
from penstock.host.spark.driver.session_use import SessionUse
from penstock.host.spark.frames.data_frames import DataFrameQueries
from penstock.host.spark.frames.history_loading import HistoryLoader
from penstock.host.spark.query.queries import CheckpointQueries
from penstock.host.storage.directories import warn_of_temporary_state
from penstock.host.supervision.turns import ApplicationTurns
from penstock.metrics.host_metrics import Measured, client_statistics
from penstock.plan.subtopology import BuiltTopology
from penstock.state.restore_listener import StateRestoreListener
from penstock.task.taps import TappedRecord
from penstock.termination import undisturbed
from penstock_broker.common.clock import Clock, SystemClock


class SparkHost:
    """Runs one topology on Spark (implements Host). Nothing is opened before `start`.

    Args:
        built: the topology.
        config: of the application.
        session: the session to run in, with its cluster; None for one that the host starts and stops.
        until_end: stop at the ends that the topics have at start.
        clock: the clock for planning epochs, on whichever machine; None for that of the machine.
        restore_listener: receives the restores of stores.
        turns: unused, because Spark schedules the queries of all topologies.
    """

    def __init__(
        self,
        built: BuiltTopology,
        config: StreamsConfig,
        session: SparkSession | None = None,
        until_end: bool = False,
        clock: Clock | None = None,
        restore_listener: StateRestoreListener | None = None,
        turns: ApplicationTurns | None = None,
    ) -> None:
        tells_restores = restore_listener is not None
        self._application = HostedApplication(built, config, until_end, clock or SystemClock(), tells_restores)
        self._config = config
        self._checkpoint = self._application.checkpoint
        self._given_session = session
        self._session = SessionUse(config, self._application.directory)
        self._lock = CheckpointLock(self._checkpoint, self._application.directory, self._application.id)
        self._figures = ManifestFigures.of(config, built)
        self._restores = RestoreWatch(self._checkpoint, restore_listener)
        self._requests = HostRequests(self._application.id)
        self._current = CurrentQuery()
        self._queries = CheckpointQueries(built, config, is_active=lambda: self._current.is_active)
        self._data_frames = DataFrameQueries(built, config, self._checkpoint.data_frames())
        self._follower = QueryFollower(
            self._application, self._requests, self._figures, self._restores, self._data_frames
        )
        self._starter = QueryStarter(
            self._application, self._session, self._data_frames, self._figures, self._current, self._follower
        )
        self._supervisor = QuerySupervisor(
            self._application,
            self._requests,
            self._current,
            self._starter,
            self._follower,
            QueryAttempts(self._application, self._requests, self._figures, self._starter),
            self._lock,
        )

    @staticmethod
    def check_keys(config: StreamsConfig) -> None:
        """Warn of keys without effect on this host. Raises ConfigError for an unknown key."""
        warn_of_keys_without_effect(config, SPARK)
        check_client_keys(config)

    def start(self, listener: HostListener) -> None:
        """Check everything, then start the query; return once it runs.

        Raises StreamsError if the query cannot start.
        """
        self.check_keys(self._config)
        histories = HistoryLoader(self._application.built, self._config, self._checkpoint)
        with undisturbed():
            self._session.take(self._given_session or self._data_frames.session() or histories.session())
        self._lock.acquire()
        try:
            EndRequest(self._checkpoint.uri).withdraw()  # it was for an earlier run
            self._starter.check()
            with undisturbed():
                self._starter.open_session().check()
            warn_of_temporary_state(self._config)
            self._supervisor.start_query()
        except BaseException:
            self._current.stop(lambda: True)  # SIGTERM may arrive when the query runs already
            self._release()
            raise
        listener.on_running()
        self._supervisor.follow(listener)

    def rebalance(self, reason: str) -> None:
        """Run with the current topics: stop after the running epoch, prepare again, continue.

        Returns immediately. The state is REBALANCING from the end of that epoch until the next query runs. Calls in the
        meantime are merged; after `close` or before `start` nothing happens. An error of the preparation ends the
        application.

        Args:
            reason: why, for the log: "topic x has 8 partitions now".
        """
        self._requests.rebalance(reason)

    def pause(self) -> None:
        """Plan no epochs after the running one: no records are read, no punctuation runs.

        Before `start`, the query begins paused.
        """
        self._current.pause()

    def resume(self) -> None:
        """Plan epochs again after `pause`. Punctuations that have become due run immediately."""
        self._current.resume()

    def clean_up(self) -> None:
        """Delete the bases of stores and the logs on this machine.

        The checkpoint stays, and the bases are rebuilt from it. Raises LockError if a program uses the checkpoint.
        """
        self._lock.acquire()
        try:
            directory = self._application.directory.absolute()
            kept = [directory / LOCK_FILE, *map(Path, self._checkpoint.local_paths)]
            spared = {each for path in kept for each in (path, *path.parents)}
            for path in directory.iterdir():
                if path not in spared:
                    _delete(path)
        finally:
            self._release()

    def reset(self) -> None:
        """Delete all state of the application; see `resetting`.

        Deletes checkpoint, copies of state, markers and internal topics, so that the next start is a first one. Raises
        LockError if a program uses the checkpoint, and KafkaError if the brokers do not delete their part.
        """
        try:
            with closing(ConfluentAdmin(self._config)) as admin:
                reset_application(self._application.built, self._config, admin)
        finally:
            self._release()

    def close(self, timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
        """Stop after the running epoch and release everything; return whether that took at most `timeout_ms`.

        An epoch that does not end in time is abandoned; the next start runs it again. There is no group to leave.
        """
        stopped = self._supervisor.close(timeout_ms)
        self._release()
        return stopped

    def summary(self) -> str:
        """Return one line: guarantee, broker, checkpoint."""
        servers = self._config["bootstrap.servers"]
        return f"{self._starter.guarantee}; broker {servers}; checkpoint {self._checkpoint.uri}"

    def statistics(self) -> HostStatistics:
        """Return figures as of the last committed epoch, and the restores of now."""
        clients = client_statistics(self._figures.measured())
        return replace(self._figures.snapshot(), restoring=self._restores.snapshot(), clients=clients)

    def measured(self) -> Measured:
        """Return the measurements, as of the last committed epoch."""
        return self._figures.measured()

    def tapped(self, node: str, limit: int) -> Sequence[TappedRecord]:
        """Return the last records that reached a node, as of the last committed epoch.

        From now on epochs keep such records. Returns an empty list while no query runs.
        """
        return self._current.tapped(node, limit)

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        self._current.untap(node)

    def table(self, store_name: str, as_of: AsOf | None = None) -> DataFrame:
        """Return the entries of a store as of the newest commit, or of an earlier one.

        The DataFrame belongs to the session of the application. Raises StreamsNotStartedError before `start` and after
        `close`.
        """
        existing = self._session.existing
        if existing is None:
            raise StreamsNotStartedError("A table needs the session of the application, which has none now.")
        return self._queries.table(store_name, existing, as_of)

    def queries(self) -> StateQueries:
        """Return the interactive queries of the checkpoint, usable until the host is closed."""
        return self._queries

    def _release(self) -> None:
        self._follower.close()
        self._queries.close()
        with suppress(*session_errors()):
            self._data_frames.stop()
        self._session.close()
        self._lock.release()


def _delete(path: Path) -> None:
    """Delete a file, or a directory with its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
