"""Starts the queries of an application: preparation, session, code for the executors."""

from __future__ import annotations

import logging
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.errors import TaskCorruptedError
from penstock.extras import load
from penstock.host.spark import session
from penstock.host.spark.driver import preparation
from penstock.host.spark.driver.classic_session import ClassicSession
from penstock.host.spark.driver.current_query import CurrentQuery
from penstock.host.spark.driver.driver_session import DriverSession
from penstock.host.spark.driver.figures import ManifestFigures
from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.spark.driver.query_follower import QueryFollower
from penstock.host.spark.driver.running_query import start_query
from penstock.host.spark.driver.session_use import SessionUse
from penstock.host.spark.frames.data_frames import DataFrameQueries
from penstock.host.spark.frames.history_loading import HistoryLoader
from penstock.host.spark.frames.interruptible import interruptible
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.mailbox import Mailbox, Signal, clear_mailboxes
from penstock.termination import undisturbed

_log = logging.getLogger(__name__)

_CONNECT = "penstock.host.spark.driver.connect_session"
"""Loaded only for such a session: it needs more packages."""


class QueryStarter:
    """Prepares and starts one query after another.

    Args:
        application: the application to run.
        session: used by all its queries.
        data_frames: the queries between the application and DataFrames.
        figures: restarted with each query.
        current: receives the queries.
        follower: follows a query that finishes the epoch of an earlier program.
    """

    def __init__(
        self,
        application: HostedApplication,
        session: SessionUse,
        data_frames: DataFrameQueries,
        figures: ManifestFigures,
        current: CurrentQuery,
        follower: QueryFollower,
    ) -> None:
        self._application = application
        self._session = session
        self._data_frames = data_frames
        self._figures = figures
        self._current = current
        self._follower = follower
        self._opened: DriverSession | None = None
        self._runs = 0
        self.guarantee = ""
        """The processing guarantee of the newest query, in words."""

    def check(self) -> None:
        """Run the checks that need no session; raises StreamsError."""
        with closing(ConfluentAdmin(self._application.config)) as admin:
            preparation.check(self._application.built, self._application.config, admin)

    def open_session(self) -> DriverSession:
        """Return the existing session or a new one.

        Its executors receive the code of the program.
        """
        spark = self._session.open()
        if self._opened is None or self._opened.spark is not spark:
            self._opened = _driver_session(spark, self._application)
        if self._application.config["penstock.spark.send.code"]:
            self._opened.send_code(list(sys.modules.values()))
        return self._opened

    def forget_session(self) -> None:
        """Use another session from now on, because the JVM of the current one has ended."""
        self._session.forget_lost()
        self._data_frames.forget_lost()

    def start(self) -> None:
        """Check the current topology, brokers and checkpoint against each other, and start the query."""
        application = self._application
        prepared = self._prepare()
        if prepared.finishes:
            self._finish(prepared)
            prepared = self._prepare()
        if prepared.finishes:
            raise TaskCorruptedError(
                f"Epoch {prepared.last.epoch + 1} of the checkpoint {application.checkpoint.uri} was half committed, "
                "the program that started it has run it again, and it is still not committed: files of the checkpoint "
                "are being changed or deleted while the application starts. Make sure that no other program writes "
                "there, and start again."
            )
        self.guarantee = prepared.guarantee
        self._figures.begin(prepared.last, prepared.description.begin, prepared.ends, application.clock.milliseconds())
        with undisturbed():
            opened, description = self.open_session(), self._of_run(prepared.description)
            location = opened.new_location(self._run)
            self._current.start(
                lambda paused: start_query(description, opened, location, application.until_end, paused)
            )
            if not application.until_end:
                self._data_frames.start_sinks(opened.spark)

    def run_sinks_to_end(self) -> None:
        """Run the queries of DataFrame sinks to their end, if the application has one."""
        if self._application.until_end:
            self._data_frames.run_sinks_to_end(self.open_session().spark)

    def _prepare(self) -> preparation.PreparedQuery:
        application = self._application
        with undisturbed():
            opened = self.open_session()
            self._runs += 1
            mailboxes = opened.mailboxes()
            clear_mailboxes(mailboxes)
            parallelism = self._parallelism(opened)
        with closing(ConfluentAdmin(application.config)) as admin:
            with undisturbed():
                self._data_frames.start_sources(admin, parallelism, application.until_end)
            histories = HistoryLoader(application.built, application.config, application.checkpoint)
            histories.load(admin, lambda: opened.spark)
            return preparation.prepare(
                application.built,
                application.config,
                application.checkpoint,
                admin,
                parallelism,
                mailboxes.below(self._run).uri,
                application.clock,
            )

    def _finish(self, prepared: preparation.PreparedQuery) -> None:
        """Run the epoch that an earlier program left half committed, with that program's description.

        No other epoch runs.
        """
        _log.warning("%s finishes the epoch that the previous program left half committed.", self._application.id)
        description = self._of_run(prepared.description)
        self._figures.begin(prepared.last, description.begin, {}, self._application.clock.milliseconds())
        mailbox = Mailbox(description.control_directory)
        mailbox.create()
        mailbox.send(Signal.STOP)
        with undisturbed():
            opened = self.open_session()
            query = start_query(description, opened, opened.new_location(self._run), until_end=True, paused=False)
            self._current.query = query
        interruptible(opened.spark, partial(self._follower.follow, query), partial(self._current.stop, lambda: True))

    @property
    def _run(self) -> str:
        """The name of this run: a query of an earlier program that still runs at a server has another one."""
        return f"{self._application.process_id}-{self._runs}"

    def _of_run(self, description: ApplicationDescription) -> ApplicationDescription:
        """Return `description` with the settings of this program for its workers."""
        application = self._application
        return replace(description, process_id=application.process_id, tells_restores=application.tells_restores)

    def _parallelism(self, opened: DriverSession) -> int:
        """Return the number of Spark partitions per level of a new checkpoint: one per core by default."""
        chosen: int | None = self._application.config["penstock.spark.partitions"]
        return opened.parallelism() if chosen is None else chosen


def _driver_session(spark: SparkSession, application: HostedApplication) -> DriverSession:
    if not session.is_connect(spark):
        return ClassicSession(spark, application)
    found: DriverSession = load(_CONNECT, "Spark Connect").ConnectSession(spark, application)
    return found
