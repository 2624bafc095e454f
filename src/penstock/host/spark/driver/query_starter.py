"""Starts the queries of an application: preparation, session, code for the executors."""

from __future__ import annotations

import logging
import shutil
import sys
from contextlib import closing
from dataclasses import replace

from pyspark.sql import SparkSession

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.errors import TaskCorruptedError
from penstock.host.spark.driver import preparation
from penstock.host.spark.driver.current_query import CurrentQuery
from penstock.host.spark.driver.dependencies import send_code
from penstock.host.spark.driver.figures import ManifestFigures
from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.spark.driver.query_follower import QueryFollower
from penstock.host.spark.driver.running_query import start_query
from penstock.host.spark.driver.session_use import SessionUse
from penstock.host.spark.frames.data_frames import DataFrameQueries
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.mailbox import Mailbox, Signal
from penstock.host.supervision.cores import cores

_log = logging.getLogger(__name__)


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
        self._runs = 0
        self.guarantee = ""
        """The processing guarantee of the newest query, in words."""

    def check(self) -> None:
        """Run the checks that need no session; raises StreamsError."""
        with closing(ConfluentAdmin(self._application.config)) as admin:
            preparation.check(self._application.built, self._application.config, admin)

    def open_session(self) -> SparkSession:
        """Return the existing session or a new one.

        Its executors receive the code of the program.
        """
        opened = self._session.open()
        if self._application.config["penstock.spark.send.code"]:
            send_code(opened.sparkContext, list(sys.modules.values()))
        return opened

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
        spark, description = self.open_session(), self._of_run(prepared.description)
        self._current.start(
            lambda paused: start_query(description, spark, self._new_location(), application.until_end, paused)
        )
        if not application.until_end:
            self._data_frames.start_sinks(spark)

    def run_sinks_to_end(self) -> None:
        """Run the queries of DataFrame sinks to their end, if the application has one."""
        if self._application.until_end:
            self._data_frames.run_sinks_to_end(self.open_session())

    def _prepare(self) -> preparation.PreparedQuery:
        application, control = self._application, self._application.directory / "control"
        self._runs += 1
        shutil.rmtree(control, ignore_errors=True)
        self.open_session()
        with closing(ConfluentAdmin(application.config)) as admin:
            self._data_frames.start_sources(admin, self._parallelism(), application.until_end)
            return preparation.prepare(
                application.built,
                application.config,
                application.checkpoint,
                admin,
                self._parallelism(),
                str(control / str(self._runs)),
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
        query = start_query(description, self.open_session(), self._new_location(), until_end=True, paused=False)
        self._current.query = query
        self._follower.follow(query)

    def _new_location(self) -> str:
        """Return the location of Spark's checkpoint for the next query: an empty local directory.

        All data that an application depends on is in its own checkpoint.
        """
        directory = self._application.directory.absolute() / "spark"
        shutil.rmtree(directory, ignore_errors=True)
        return (directory / str(self._runs)).as_uri()

    def _of_run(self, description: ApplicationDescription) -> ApplicationDescription:
        """Return `description` with the settings of this program for its workers."""
        application = self._application
        return replace(description, process_id=application.process_id, tells_restores=application.tells_restores)

    def _parallelism(self) -> int:
        """Return the number of Spark partitions per level of a new checkpoint: one per core by default."""
        chosen: int | None = self._application.config["penstock.spark.partitions"]
        if chosen is not None:
            return chosen
        existing = self._session.existing
        return cores() if existing is None else existing.sparkContext.defaultParallelism
