"""Follows a query while it runs: manifests, figures, log, restores, topics, brokers."""

from __future__ import annotations

import logging
import time
from typing import Final

from penstock.errors import StreamsError
from penstock.host.deployment.topic_watch import TopicWatch
from penstock.host.deployment.topics import written_topics
from penstock.host.spark.checkpoints.end_request import EndRequest
from penstock.host.spark.checkpoints.manifests import NewManifests
from penstock.host.spark.driver import preparation
from penstock.host.spark.driver.broker_watch import BrokerWatch
from penstock.host.spark.driver.figures import ManifestFigures
from penstock.host.spark.driver.host_requests import HostRequests
from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.spark.driver.restore_watch import RestoreWatch
from penstock.host.spark.driver.running_query import LOOK_SECONDS, RunningQuery
from penstock.host.spark.frames.data_frames import DataFrameQueries
from penstock.host.supervision.progress import DroppedRecordsLog, ProgressLog

_log = logging.getLogger(__name__)

_REQUEST_SECONDS: Final = 1.0
"""How often the driver looks for a request to end: the checkpoint may be in an object store."""


class QueryFollower:
    """Follows one query after another, each to its end.

    Args:
        application: the application of the queries.
        requests: of the application; a rebalance is requested after topics have changed.
        figures: receive the manifests.
        restores: receives the restores that workers report.
        data_frames: the queries between the application and DataFrames.
    """

    def __init__(
        self,
        application: HostedApplication,
        requests: HostRequests,
        figures: ManifestFigures,
        restores: RestoreWatch,
        data_frames: DataFrameQueries,
    ) -> None:
        built, config = application.built, application.config
        self._until_end = application.until_end
        self._requests = requests
        self._figures = figures
        self._restores = restores
        self._data_frames = data_frames
        self._application_id = application.id
        self._end_request = EndRequest(application.checkpoint.uri)
        self._looked_at = 0.0
        self._is_asked_to_end = False
        self._new_manifests = NewManifests(application.checkpoint)
        self._progress = ProgressLog(application.id, config["log.summary.interval.ms"], figures.snapshot)
        self._dropped = DroppedRecordsLog(application.id, figures.dropped)
        self._topic_watch = TopicWatch(built, config, preparation.internal_topics(built, application.id))
        self._broker_watch = BrokerWatch(config, written_topics(built, config))

    def follow(self, query: RunningQuery) -> None:
        """Follow `query` until it ends or is stopped for a rebalance. Raises its error, if any."""
        tasks = len(query.description.placement.places)
        self._figures.tasks_created(tasks)
        try:
            self._follow_to_its_end(query)
        finally:
            self._figures.tasks_closed(tasks)
            query.close()

    @property
    def is_asked_to_end(self) -> bool:
        """Whether another process has asked the application to end."""
        return self._is_asked_to_end

    def close(self) -> None:
        """Release the client of the brokers."""
        self._broker_watch.close()

    def _follow_to_its_end(self, query: RunningQuery) -> None:
        goes_to_end = False
        while query.is_active:
            self._take_manifests(query)
            goes_to_end = goes_to_end or self._goes_to_end(query)
            self._progress.look()
            self._dropped.look()
            self._check_data_frames(query)
            self._look_at_topics(query)
            self._broker_watch.look(self._figures.epoch)
            if self._requests.rebalances and query.finish_epoch(lambda: self._requests.closes):
                query.stop()
            if query.is_at_end and query.finish_epoch(lambda: self._requests.closes):
                query.stop()
            time.sleep(LOOK_SECONDS)
        self._take_manifests(query)
        self._dropped.end()
        self._restores.end(query.description.generation, self._figures.epoch)
        failure = query.failure()
        if failure is not None:
            error, printed = failure
            if printed:
                print(printed, end="", flush=True)
            raise error

    def _goes_to_end(self, query: RunningQuery) -> bool:
        """Return whether `query` is asked to end, and let it stop at the present ends of its inputs then."""
        now = time.monotonic()
        if now - self._looked_at < _REQUEST_SECONDS:
            return False
        self._looked_at = now
        if not self._end_request.is_sent():
            return False
        _log.warning(
            "%s processes its present input and ends, because a changed program takes over.", self._application_id
        )
        self._is_asked_to_end = True
        query.go_to_end()
        return True

    def _take_manifests(self, query: RunningQuery) -> None:
        """Process new manifests."""
        for manifest in self._new_manifests.after(self._figures.epoch, query.description.query_id):
            if manifest.printed:
                print(manifest.printed, end="", flush=True)
            self._figures.take(manifest)
        if ends := query.new_ends():
            self._figures.take_ends(ends)
        for figures in query.new_calls():
            self._figures.take_calls(figures)
        self._restores.look(query.description.generation, self._figures.epoch)

    def _check_data_frames(self, query: RunningQuery) -> None:
        """Stop `query` and raise the error if a query of a DataFrame has failed."""
        try:
            self._data_frames.check()
        except StreamsError:
            query.stop()
            raise

    def _look_at_topics(self, query: RunningQuery) -> None:
        """Request a rebalance if topics have changed since the query started.

        A query that stops at fixed ends continues.
        """
        if not self._until_end and not self._requests.rebalances:
            changes = self._topic_watch.look(query.description, int(time.monotonic() * 1000))
            if changes is not None:
                self._requests.rebalance(changes.text)
