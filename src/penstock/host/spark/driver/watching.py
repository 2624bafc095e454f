"""An application on Spark as seen in its checkpoint by another process."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from penstock.config import StreamsConfig
from penstock.errors import StateStoreNotAvailableError
from penstock.host.api import HostListener, HostStatistics, State, StateQueries, WatchedStatistics
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from penstock.host.spark.checkpoints.manifests import NewManifests, existing_metadata
from penstock.host.spark.driver.figures import ManifestFigures
from penstock.host.spark.query.queries import CheckpointQueries
from penstock.host.supervision.watching import Watching
from penstock.metrics.host_metrics import Measured
from penstock.plan.subtopology import BuiltTopology
from penstock_broker.common.clock import Clock, SystemClock

COMMITS_MS: Final = 60_000
"""Maximum age (ms) of the last commit of an application that counts as running."""


class CheckpointWatch(Watching):
    """Follows the commits of an application that another process runs (implements Host).

    It runs and changes nothing, and opens nothing before `start`.

    Args:
        built: the topology of the application.
        config: of the application.
        clock: for the age of commits; None for that of the machine.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._checkpoint = checkpoint_of(config)
        self._queries = CheckpointQueries(built, config, self._checkpoint)
        self._figures = ManifestFigures.of(config, built)
        self._manifests = NewManifests(self._checkpoint)
        self._following = threading.Lock()

    def start(self, listener: HostListener) -> None:
        """Begin at the newest commit; raises StateStoreNotAvailableError if there is no checkpoint."""
        metadata = existing_metadata(self._checkpoint, StateStoreNotAvailableError)
        last = self._checkpoint.read_manifest(self._checkpoint.last_epoch(), metadata.query_id)
        if last is not None:
            self._figures.begin(last, {}, {})
        listener.on_running()

    def statistics(self) -> HostStatistics:
        """Return figures since the start, as the Spark host does.

        The state is RUNNING after a recent commit, else None, because an application without input commits nothing.
        """
        self._follow()
        committed_ms = self._figures.committed_ms
        is_recent = committed_ms is not None and self._clock.milliseconds() - committed_ms <= COMMITS_MS
        watched = WatchedStatistics(state=State.RUNNING if is_recent else None)
        return replace(self._figures.snapshot(), watched=watched)

    def measured(self) -> Measured:
        """Return the measurements of the commits since the start."""
        self._follow()
        return self._figures.measured()

    def queries(self) -> StateQueries:
        """Return the interactive queries of the checkpoint."""
        return self._queries

    def summary(self) -> str:
        """Return one line for people."""
        return f"watched by its checkpoint {self._checkpoint.uri}"

    def close(self, timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
        """Release all resources, and return True."""
        self._queries.close()
        return True

    def _follow(self) -> None:
        """Process new manifests."""
        with self._following:
            metadata = existing_metadata(self._checkpoint, StateStoreNotAvailableError)
            for manifest in self._manifests.after(self._figures.epoch, metadata.query_id):
                self._figures.take(manifest)
