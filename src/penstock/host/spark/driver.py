"""The Spark host: checks, starts and watches the query. Runs in the program that the user started.

What may be wrong is looked for before anything starts: Java, pyspark, brokers, topics, the checkpoint. Then one query
runs until it is closed, fails, or reaches the planned end. A thread follows the manifests: it prints what user
functions printed, keeps the figures, and hears of the end of the query.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.clock import Clock, SystemClock
from penstock.config import StreamsConfig
from penstock.errors import LockError, StreamsError
from penstock.host.api import HostListener
from penstock.host.spark import planning, preparation, session, sink, source
from penstock.host.spark.checkpoint import Checkpoint
from penstock.host.spark.failures import failure_in, readable
from penstock.host.spark.figures import Figures
from penstock.host.spark.recipe import Recipe, dump_recipe
from penstock.host.spark.rows import SCHEMA_DDL
from penstock.host.spark.stage import stage
from penstock.plan.subtopology import BuiltTopology

_LOOK_SECONDS = 0.05
_JVM_IS_GONE = (Py4JError, ConnectionError)  # what Spark itself raises comes as an exception of pyspark


class SparkHost:
    """Runs one topology on Spark (implements Host)."""

    def __init__(
        self,
        built: BuiltTopology,
        config: StreamsConfig,
        session: SparkSession | None = None,
        until_end: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Take what to run; nothing is opened before `start`.

        session: the session to run in, with its cluster; None for one that the host makes and ends. until_end: stop at
        the ends of the topics at start. clock: by which epochs are planned, wherever that is done; None for that of the
        machine.
        """
        self._built = built
        self._config = config
        self._given_session = session
        self._until_end = until_end
        self._clock = clock or SystemClock()
        self._application_id = str(config.required("application.id"))
        self._directory = Path(config["state.dir"]) / self._application_id
        self._control = self._directory / "control"
        self._checkpoint = Checkpoint(config.checkpoint_directory())
        self._own_session: SparkSession | None = None
        self._recipe: Recipe | None = None
        self._query: StreamingQuery | None = None
        self._watcher: threading.Thread | None = None
        self._lock: IO[str] | None = None
        self._guarantee = ""
        self._closing = threading.Event()
        self._figures = Figures()

    # ------------------------------------------------------------------------------------------------ life

    def start(self, listener: HostListener) -> None:
        """Check everything, then start the query; returns when it runs. Raises StreamsError when it must not start."""
        session.check_spark()
        if self._existing_session() is None:
            session.check_java()
        self._take_lock()
        try:
            recipe = self._prepare()
            self._query = self._start_query(recipe)
        except BaseException:
            self._release()
            raise
        self._watcher = threading.Thread(
            target=self._watch, args=(listener,), name=f"penstock-{self._application_id}", daemon=True
        )
        self._watcher.start()
        listener.on_running()

    def close(self, timeout_ms: int) -> bool:
        """Stop after the running epoch and release everything; return whether that was done within `timeout_ms`.

        An epoch that does not end in time is given up; the next start runs it again.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        self._closing.set()
        stopped = True
        with suppress(*_JVM_IS_GONE):
            if self._query is not None and self._query.isActive:
                stopped = self._wait_for_epoch(deadline)
                self._query.stop()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(max(deadline - time.monotonic(), 1.0))
            stopped = stopped and not self._watcher.is_alive()
        self._release()
        return stopped

    def summary(self) -> str:
        """Return one line: guarantee, broker, checkpoint."""
        return f"{self._guarantee}; broker {self._config['bootstrap.servers']}; checkpoint {self._checkpoint.uri}"

    def statistics(self) -> Mapping[str, Any]:
        """Return figures as of the last committed epoch: see `Figures.snapshot`."""
        return self._figures.snapshot()

    # ------------------------------------------------------------------------------------------------ start

    def _take_lock(self) -> None:
        """Refuse to start beside another program on the same checkpoint. The lock ends with this process, however it
        ends."""
        directory = self._checkpoint.local_path or str(self._directory)
        os.makedirs(directory, exist_ok=True)
        lock = open(os.path.join(directory, "lock"), "a+")  # noqa: SIM115  # held until close
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise LockError(
                f"Another program (pid {holder}) runs with application.id {self._application_id!r} on the checkpoint "
                f"{self._checkpoint.uri}. Stop it first, "
                "or give this one another application.id."
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _prepare(self) -> Recipe:
        admin = ConfluentAdmin(self._config)
        try:
            prepared = preparation.prepare(
                self._built,
                self._config,
                self._checkpoint,
                admin,
                self._parallelism(),
                str(self._control),
                self._clock,
            )
        finally:
            admin.close()
        self._recipe = prepared.recipe
        self._guarantee = prepared.guarantee
        self._figures.begin(prepared.last, prepared.recipe.begin, prepared.ends)
        return prepared.recipe

    def _parallelism(self) -> int:
        """Return how many Spark partitions a level of a new checkpoint has: one a core."""
        chosen: int | None = self._config["penstock.spark.partitions"]
        if chosen is not None:
            return chosen
        existing = self._existing_session()
        return existing.sparkContext.defaultParallelism if existing is not None else session.cores()

    def _existing_session(self) -> SparkSession | None:
        return self._given_session or SparkSession.getActiveSession()

    def _start_query(self, recipe: Recipe) -> StreamingQuery:
        shutil.rmtree(self._control, ignore_errors=True)
        self._control.mkdir(parents=True)
        data = dump_recipe(recipe)
        with session.query_session(self._session()) as spark:
            spark.conf.set("spark.sql.streaming.pollingDelay", f"{self._config['penstock.poll.ms']}ms")
            spark.conf.set("spark.sql.shuffle.partitions", str(recipe.placement.sink_partitions))
            spark.dataSource.register(source.source_class(data))
            spark.dataSource.register(sink.sink_class(data))
            rows = spark.readStream.format(source.FORMAT).load()
            for level in range(1, len(recipe.placement.levels)):
                rows = rows.repartitionById(recipe.placement.partitions[level], "dst")
                rows = rows.mapInArrow(stage(data, level), SCHEMA_DDL)
            rows = rows.repartitionById(recipe.placement.sink_partitions, "dst")
            writer = rows.writeStream.format(sink.FORMAT).queryName(self._application_id)
            writer = writer.option("checkpointLocation", self._checkpoint.spark_location())
            return (writer.trigger(availableNow=True) if self._until_end else writer).start()

    def _session(self) -> SparkSession:
        existing = self._existing_session()
        if existing is not None:
            return existing
        self._own_session = session.make_session(self._config, self._directory)
        return self._own_session

    # ------------------------------------------------------------------------------------------------ run and end

    def _watch(self, listener: HostListener) -> None:
        """Follow the manifests until the query ends; tell the listener how it ended, whatever happens here."""
        try:
            error = self._follow_to_end()
        except _JVM_IS_GONE as raised:
            error = StreamsError(
                f"The JVM of Spark in which {self._application_id} ran has ended: it was killed, or is out of memory. "
                f"Its log may say why ({self._directory}/spark.log, where Penstock started it). Start it "
                "again; it goes on from its last committed epoch."
            )
            error.__cause__ = raised
        except Exception as raised:
            error = raised
        if self._closing.is_set():
            return
        if error is not None:
            listener.on_error(error)
        else:
            listener.on_stopped()

    def _follow_to_end(self) -> Exception | None:
        """Follow the manifests until the query ends; return the error that ended it."""
        query = self._query
        assert query is not None
        while query.isActive:
            self._follow()
            time.sleep(_LOOK_SECONDS)
        self._follow()
        exception = query.exception()
        return None if exception is None else self._readable(exception)

    def _follow(self) -> None:
        """Take the manifests that are new."""
        recipe = self._recipe
        assert recipe is not None
        while (manifest := self._checkpoint.read_manifest(self._figures.epoch + 1, recipe.query_id)) is not None:
            if manifest.printed:
                print(manifest.printed, end="", flush=True)
            self._figures.take(manifest)

    def _readable(self, exception: StreamingQueryException) -> StreamsError:
        text = str(exception)
        failure = failure_in(text)
        if failure is None:
            return StreamsError(f"The Spark query of {self._application_id} failed: {readable(text)}")
        error, printed = failure
        if printed:
            print(printed, end="", flush=True)
        return error

    def _wait_for_epoch(self, deadline: float) -> bool:
        """Ask for no more epochs and wait until the running one is committed; return False where that takes too
        long."""
        (self._control / planning.STOP_FILE).touch()
        query = self._query
        assert query is not None
        while query.isActive and not (self._control / planning.STOPPED_FILE).exists():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _release(self) -> None:
        if self._own_session is not None:
            with suppress(*_JVM_IS_GONE), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # pyspark's, that the JVM is gone
                self._own_session.stop()
            self._own_session = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
