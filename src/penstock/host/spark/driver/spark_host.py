"""The Spark host: checks, starts and watches the query. Runs in the program that the user started.

Everything is checked before anything starts: Java, brokers, topics, the checkpoint. Then one query
after another runs, until the host is closed, one fails, or reaches the planned end: `rebalance` ends the running one
after its epoch, checks everything again and starts the next, with the same lock and in the same session. A thread
supervises: it follows the manifests, prints what user functions printed, keeps the figures, and learns how each query
    ended.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.keys import check_client_keys
from penstock.client.settings import warn_of_rows_without_effect
from penstock.config import StreamsConfig
from penstock.errors import LockError, StreamsError, StreamsNotStartedError, TaskCorruptedError, TaskMigratedError
from penstock.host.api import HostListener, StateQueries, StreamThreadExceptionResponse
from penstock.host.deployment.topic_watch import TopicWatch
from penstock.host.deployment.topics import written_topics
from penstock.host.spark import session
from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from penstock.host.spark.checkpoints.lock import LOCK_FILE, CheckpointLock
from penstock.host.spark.checkpoints.manifests import NewManifests
from penstock.host.spark.driver import preparation
from penstock.host.spark.driver.broker_watch import BrokerWatch
from penstock.host.spark.driver.dependencies import send_code
from penstock.host.spark.driver.figures import ManifestFigures, progress_line
from penstock.host.spark.driver.resetting import reset_application
from penstock.host.spark.driver.restore_watch import RestoreWatch
from penstock.host.spark.driver.running_query import JVM_IS_GONE, LOOK_SECONDS, RunningQuery, start_query
from penstock.host.spark.driver.session_use import SessionUse
from penstock.host.spark.frames.data_frames import DataFrameQueries
from penstock.host.spark.planner import epoch_planner
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.failures import ProcessLostError, error_of_spark
from penstock.host.spark.query.queries import CheckpointQueries
from penstock.host.spark.worker.bases import seal_bases
from penstock.host.storage.directories import application_path, warn_of_temporary_state
from penstock.host.supervision.cores import cores
from penstock.host.supervision.progress import DroppedRecordsLog, ProgressLog
from penstock.host.supervision.restarts import Restarts
from penstock.host.supervision.turns import ApplicationTurns
from penstock.log_context import logged_as
from penstock.metrics.host_metrics import Measured, client_statistics
from penstock.plan.subtopology import BuiltTopology
from penstock.private_files import private_directory
from penstock.state.restore_listener import StateRestoreListener
from penstock.task.taps import TappedRecord
from penstock_broker.common.clock import Clock, SystemClock

_log = logging.getLogger(__name__)


class SparkHost:
    """Runs one topology on Spark (implements Host)."""

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
        """Take what to run; nothing is opened before `start`.

        session: the session to run in, with its cluster; None for one that the host starts and stops. until_end: stop
        at the ends of the topics at start. clock: by which epochs are planned, wherever that is done; None for that of
        the machine. restore_listener: receives the restores of stores. turns: not taken, because Spark schedules the
        queries of all topologies.
        """
        self._built = built
        self._config = config
        self._given_session = session
        self._until_end = until_end
        self._clock = clock or SystemClock()
        self._application_id = str(config.required("application.id"))
        self._directory = application_path(config)
        self._control = self._directory / "control"
        self._checkpoint = checkpoint_of(config)
        self._new_manifests = NewManifests(self._checkpoint)
        self._session = SessionUse(config, self._directory)
        self._query: RunningQuery | None = None
        self._tapping = threading.Lock()
        self._taps: dict[str, int] = {}
        self._supervisor: threading.Thread | None = None
        self._lock = CheckpointLock(self._checkpoint, self._directory, self._application_id)
        self._guarantee = ""
        self._closing = threading.Event()
        self._rebalancing = threading.Event()
        self._paused = threading.Event()
        self._changing = threading.Lock()  # of the running query, and of its pause file
        self._restarts = Restarts.of(config)
        self._process_id = uuid.uuid4().hex
        self._runs = 0
        self._figures = ManifestFigures(config["metrics.num.samples"], config["metrics.sample.window.ms"])
        self._progress = ProgressLog(
            self._application_id, config["log.summary.interval.ms"], self._figures.snapshot, progress_line
        )
        self._dropped = DroppedRecordsLog(self._application_id, self._figures.dropped)
        self._tells_restores = restore_listener is not None
        self._restores = RestoreWatch(self._checkpoint, restore_listener)
        self._queries = CheckpointQueries(built, config, is_active=self._is_running)
        self._data_frames = DataFrameQueries(built, config, self._checkpoint.data_frames())
        self._topic_watch = TopicWatch(built, config, preparation.internal_topics(built, self._application_id))
        self._broker_watch = BrokerWatch(config, written_topics(built, config))

    # ------------------------------------------------------------------------------------------------ life

    @staticmethod
    def check_keys(config: StreamsConfig) -> None:
        """Warn of keys that change nothing on this host, and raise ConfigError for one that does not exist."""
        warn_of_rows_without_effect(config, ())
        check_client_keys(config)

    def start(self, listener: HostListener) -> None:
        """Check everything, then start the query; returns when it runs. Raises StreamsError when it must not start."""
        self.check_keys(self._config)
        session.check_classic(self._given_session, self._config)
        self._session.take(self._given_session or self._data_frames.session())
        self._lock.acquire()
        try:
            self._check()
            opened = self._open_session()
            session.check_python(opened)
            warn_of_temporary_state(self._config)
            session.warn_of_local_checkpoint(str(opened.sparkContext.master), self._checkpoint.local_path)
            error = self._attempt(self._start_query)
            while isinstance(error, ProcessLostError) and self._waits_for_restart(error):
                error = self._attempt(self._start_query)
            if error is not None:
                raise error
        except BaseException:
            self._release()
            raise
        listener.on_running()
        self._supervisor = threading.Thread(
            target=logged_as(self._application_id)(self._supervise),
            args=(listener,),
            name=f"penstock-{self._application_id}",
            daemon=True,
        )
        self._supervisor.start()

    def rebalance(self, reason: str) -> None:
        """Run with the current topics: stop after the running epoch, prepare again, continue. Returns immediately.

        The state is REBALANCING from the end of that epoch until the next query runs. Calls that come meanwhile are
        one; after `close` or before `start` nothing happens. An error of the preparation ends the application.

        Args:
            reason: why, for the log: "topic x has 8 partitions now".
        """
        if not self._closing.is_set():
            _log.info("%s rebalances: %s", self._application_id, reason)
            self._rebalancing.set()

    def pause(self) -> None:
        """Plan no epochs after the running one, now or from the start on: no records are read, no punctuation runs."""
        with self._changing:
            self._paused.set()
            if self._query is not None:
                self._query.pause()

    def resume(self) -> None:
        """Plan epochs again after `pause`; punctuations that have become due run immediately."""
        with self._changing:
            self._paused.clear()
            if self._query is not None:
                self._query.resume()

    def clean_up(self) -> None:
        """Delete the bases of stores and the logs on this machine; the checkpoint stays, and the bases are rebuilt from
        it. Raises LockError if a program runs on the checkpoint."""
        self._lock.acquire()
        try:
            directory = self._directory.absolute()
            kept = [directory / LOCK_FILE, *map(Path, self._checkpoint.local_paths)]
            spared = {each for path in kept for each in (path, *path.parents)}
            for path in directory.iterdir():
                if path not in spared:
                    _delete(path)
        finally:
            self._release()

    def reset(self) -> None:
        """Delete checkpoint, copies of state, markers and internal topics, so that the next start is a first one; see
        `resetting`. Raises LockError if a program runs on the checkpoint, KafkaError where the brokers do not do
        it."""
        admin = ConfluentAdmin(self._config)
        try:
            reset_application(self._built, self._config, admin)
        finally:
            admin.close()
            self._release()

    def close(self, timeout_ms: int, leave_group: bool = True) -> bool:
        """Stop after the running epoch and release everything; return whether that was done within `timeout_ms`.

        An epoch that does not end in time is given up; the next start runs it again. There is no group to leave.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        self._closing.set()
        stopped = self._stop_query(lambda: time.monotonic() >= deadline)
        if self._supervisor is not None and self._supervisor is not threading.current_thread():
            self._supervisor.join(max(deadline - time.monotonic(), 1.0))
            stopped = stopped and not self._supervisor.is_alive()
        if stopped and self._supervisor is not None:
            seal_bases(self._directory, self._process_id)
        self._release()
        return stopped

    def summary(self) -> str:
        """Return one line: guarantee, broker, checkpoint."""
        return f"{self._guarantee}; broker {self._config['bootstrap.servers']}; checkpoint {self._checkpoint.uri}"

    def statistics(self) -> Mapping[str, Any]:
        """Return figures as of the last committed epoch, see `ManifestFigures.snapshot`, under `recent_commits` those
        of the last epochs (CommitFigures), under `restoring` which tasks rebuild their state, with the entries restored
        and in all, and under `clients` the statistics of consumers and producers (`client_statistics`)."""
        return {
            **self._figures.snapshot(),
            "recent_commits": self._figures.recent_commits(),
            "restoring": self._restores.snapshot(),
            "clients": client_statistics(self._figures.measured()),
        }

    def measured(self) -> Measured:
        """Return what was measured, as of the last committed epoch."""
        return self._figures.measured()

    def tapped(self, node: str, limit: int) -> Sequence[TappedRecord]:
        """Return the last records that have reached a node, as of the last committed epoch, and let the coming ones
        keep such records; none while no query runs."""
        with self._tapping:
            self._taps[node] = limit
            return [] if self._query is None else self._query.tapped(self._taps, node)

    def untap(self, node: str) -> None:
        """Keep the records of a node no longer."""
        with self._tapping:
            if self._taps.pop(node, None) is not None and self._query is not None:
                self._query.tapped(self._taps, node)

    def _is_running(self) -> bool:
        return self._query is not None and self._query.is_active

    def table(self, store_name: str) -> DataFrame:
        """Return the entries of a store as of the newest commit, in the session of the application; raises
        StreamsNotStartedError before `start` and after `close`."""
        existing = self._session.existing
        if existing is None:
            raise StreamsNotStartedError("A table needs the session of the application, which has none now.")
        return self._queries.table(store_name, existing)

    def queries(self) -> StateQueries:
        """Return what answers interactive queries, from the checkpoint, until the host is closed."""
        return self._queries

    # ------------------------------------------------------------------------------------------------ start

    def _start_query(self) -> None:
        """Hold topology, brokers and checkpoint against each other as they are now, and start the query."""
        prepared = self._prepare()
        if prepared.finishes:
            self._finish(prepared)
            prepared = self._prepare()
        if prepared.finishes:
            raise TaskCorruptedError(
                f"Epoch {prepared.last.epoch + 1} of the checkpoint {self._checkpoint.uri} was half committed, the "
                "program that started it has run it again, and it is still not committed: files of the checkpoint are "
                "being changed or deleted while the application starts. Make sure that no other program writes there, "
                "and start again."
            )
        self._guarantee = prepared.guarantee
        self._figures.begin(prepared.last, prepared.description.begin, prepared.ends, self._clock.milliseconds())
        spark = self._open_session()
        with self._changing:
            paused = self._paused.is_set()
            description = self._of_run(prepared.description)
            self._query = start_query(description, spark, self._new_location(), self._until_end, paused)
        if not self._until_end:
            self._data_frames.start_sinks(spark)

    def _check(self) -> None:
        admin = ConfluentAdmin(self._config)
        try:
            preparation.check(self._built, self._config, admin)
        finally:
            admin.close()

    def _prepare(self) -> preparation.PreparedQuery:
        self._runs += 1
        shutil.rmtree(self._control, ignore_errors=True)
        self._open_session()
        admin = ConfluentAdmin(self._config)
        try:
            self._data_frames.start_sources(admin, self._parallelism(), self._until_end)
            return preparation.prepare(
                self._built,
                self._config,
                self._checkpoint,
                admin,
                self._parallelism(),
                str(self._control / str(self._runs)),
                self._clock,
            )
        finally:
            admin.close()

    def _finish(self, prepared: preparation.PreparedQuery) -> None:
        """Run the epoch that an earlier program left half committed, with that program, and no other epoch."""
        _log.warning("%s finishes the epoch that the previous program left half committed.", self._application_id)
        description = self._of_run(prepared.description)
        self._figures.begin(prepared.last, description.begin, {}, self._clock.milliseconds())
        private_directory(Path(description.control_directory))
        (Path(description.control_directory) / epoch_planner.STOP_FILE).touch()
        self._query = start_query(description, self._open_session(), self._new_location(), until_end=True, paused=False)
        self._follow_query()

    def _new_location(self) -> str:
        """Return where Spark keeps its checkpoint of the next query: an empty directory of this machine. Everything
        that an application depends on is in its own checkpoint."""
        directory = self._directory.absolute() / "spark"
        shutil.rmtree(directory, ignore_errors=True)
        return (directory / str(self._runs)).as_uri()

    def _of_run(self, description: ApplicationDescription) -> ApplicationDescription:
        """Return `description` with what this program asks of its workers."""
        return replace(description, process_id=self._process_id, tells_restores=self._tells_restores)

    def _parallelism(self) -> int:
        """Return how many Spark partitions a level of a new checkpoint has: one a core."""
        chosen: int | None = self._config["penstock.spark.partitions"]
        if chosen is not None:
            return chosen
        existing = self._session.existing
        return cores() if existing is None else existing.sparkContext.defaultParallelism

    def _open_session(self) -> SparkSession:
        """Return the session that there is, or make one; its executors have the code of the program."""
        opened = self._session.open()
        if self._config["penstock.spark.send.code"]:
            send_code(opened.sparkContext, list(sys.modules.values()))
        return opened

    # ------------------------------------------------------------------------------------------------ run and end

    def _supervise(self, listener: HostListener) -> None:
        """Follow one query after another; tell the listener how the last one ended, whatever happens here."""
        try:
            error = self._attempt(self._follow_to_end)
            while self._goes_on(listener, error):
                listener.on_rebalancing()
                error = self._attempt(lambda: self._next_query(listener))
        except Exception as raised:
            error = raised
        if self._closing.is_set():
            self._stop_query(lambda: True)  # one that was started after `close` had looked for it
        elif error is not None:
            self._stop_query(lambda: True)
            self._lock.release()  # so that another may take over without the close of this one
            listener.on_error(error)
        else:
            listener.on_stopped()

    def _goes_on(self, listener: HostListener, error: Exception | None) -> bool:
        """Return whether another query is to follow the one that has ended with `error`, or without."""
        if self._closing.is_set():
            return False
        if error is not None:
            return self._restarts_after(listener, error)
        query = self._query
        if query is not None and query.ended_by_pause and not self._rebalancing.is_set():
            while self._paused.is_set() and not self._closing.is_set():
                self._closing.wait(LOOK_SECONDS)
            return not self._closing.is_set()
        return self._rebalancing.is_set()

    def _restarts_after(self, listener: HostListener, error: Exception) -> bool:
        """Ask the handler about `error`; wait and return True if the application is to continue. After a lost process
        of Spark it continues without asking, as if Spark itself had started another one."""
        lost = isinstance(error, ProcessLostError)
        if not lost and listener.on_failure(error) is not StreamThreadExceptionResponse.REPLACE_THREAD:
            return False
        if isinstance(error, (TaskMigratedError, LockError)):
            _log.error("%s does not restart: another program has replaced it.", self._application_id)
            return False
        return self._waits_for_restart(error)

    def _waits_for_restart(self, error: Exception) -> bool:
        """Wait before the restart after `error`; return False if too many brought nothing, or the host is
        closed."""
        wait = self._restarts.next_wait_ms(self._figures.epoch)
        if wait is None:
            _log.error(
                "%s does not restart: penstock.restart.max.attempts=%d restarts made no commit.",
                self._application_id,
                self._config["penstock.restart.max.attempts"],
            )
            return False
        _log.warning("%s restarts in %d ms, after: %s", self._application_id, wait, error)
        return not self._closing.wait(wait / 1000)

    def _attempt(self, step: Callable[[], None]) -> Exception | None:
        """Run `step` and return the error that it ended with."""
        try:
            step()
        except Py4JJavaError as raised:  # the JVM runs, and reports what went wrong
            error = error_of_spark(f"of {self._application_id}", str(raised), raised.java_exception.toString())
            error.__cause__ = raised
            return error
        except JVM_IS_GONE as raised:
            error = StreamsError(
                f"The JVM of Spark in which {self._application_id} ran has ended: it was killed or ran out of memory. "
                f"Its log may show why ({self._directory}/spark.log, if Penstock started it). Start the application "
                "again; it continues from its last committed epoch."
            )
            error.__cause__ = raised
            self._session.forget_lost()
            self._data_frames.forget_lost()
            return error
        except Exception as raised:
            return raised
        return None

    def _next_query(self, listener: HostListener) -> None:
        """Start a query in place of one that has ended, and follow it."""
        self._rebalancing.clear()
        self._start_query()
        listener.on_running()
        self._follow_to_end()

    def _follow_to_end(self) -> None:
        """Follow the query until it ends, and hand to Spark what it has written."""
        self._follow_query()
        if self._until_end:
            self._data_frames.run_sinks_to_end(self._open_session())

    def _follow_query(self) -> None:
        """Follow the manifests until the query ends, or is stopped for a rebalance; raises the error that ended it."""
        query = self._query
        assert query is not None
        tasks = len(query.description.placement.places)
        self._figures.tasks_created(tasks)
        try:
            self._follow_to_its_end(query)
        finally:
            self._figures.tasks_closed(tasks)

    def _follow_to_its_end(self, query: RunningQuery) -> None:
        while query.is_active:
            self._follow(query)
            self._progress.look()
            self._dropped.look()
            self._check_data_frames(query)
            self._look_at_topics(query)
            self._broker_watch.look(self._figures.epoch)
            if self._rebalancing.is_set() and query.finish_epoch(self._closing.is_set):
                query.stop()
            if query.is_at_end:
                query.stop()
            time.sleep(LOOK_SECONDS)
        self._follow(query)
        self._dropped.look()
        self._restores.end(query.description.generation, self._figures.epoch)
        failure = query.failure()
        if failure is not None:
            error, printed = failure
            if printed:
                print(printed, end="", flush=True)
            raise error

    def _look_at_topics(self, query: RunningQuery) -> None:
        """Rebalance if topics have changed since the query started; a query that stops at fixed ends continues."""
        if not self._until_end and not self._rebalancing.is_set():
            changes = self._topic_watch.look(query.description, int(time.monotonic() * 1000))
            if changes is not None:
                self.rebalance(changes.text)

    def _follow(self, query: RunningQuery) -> None:
        """Take the manifests that are new."""
        query_id = query.description.query_id
        for manifest in self._new_manifests.after(self._figures.epoch, query_id):
            if manifest.printed:
                print(manifest.printed, end="", flush=True)
            self._figures.take(manifest)
        if ends := query.new_ends():
            self._figures.take_ends(ends)
        self._restores.look(query.description.generation, self._figures.epoch)

    def _check_data_frames(self, query: RunningQuery) -> None:
        """Stop `query` and raise the error where a query beside it has failed."""
        try:
            self._data_frames.check()
        except StreamsError:
            query.stop()
            raise

    def _stop_query(self, is_over: Callable[[], bool]) -> bool:
        """Stop the running query after its epoch; return False if that epoch was given up since it `is_over`."""
        query = self._query
        with suppress(*JVM_IS_GONE):
            if query is not None and query.is_active:
                finished = query.finish_epoch(is_over)
                query.stop()
                return finished
        return True

    def _release(self) -> None:
        self._broker_watch.close()
        self._queries.close()
        with suppress(*JVM_IS_GONE):
            self._data_frames.stop()
        self._session.close()
        self._lock.release()


def _delete(path: Path) -> None:
    """Delete a file, or a directory with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
