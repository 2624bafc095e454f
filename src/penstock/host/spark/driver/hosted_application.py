"""The application of a Spark host."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from penstock.config import StreamsConfig
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, checkpoint_of
from penstock.host.storage.directories import application_path
from penstock.plan.subtopology import BuiltTopology
from penstock_broker.common.clock import Clock


@dataclass(frozen=True)
class HostedApplication:
    """One topology with its configuration and the way that this program runs it.

    Args:
        built: the topology.
        config: of the application.
        until_end: whether the application stops at the ends that the topics have at the start.
        clock: the clock for planning epochs.
        tells_restores: whether workers report the restore of each store.
        process_id: identifies this host to its workers.
    """

    built: BuiltTopology
    config: StreamsConfig
    until_end: bool
    clock: Clock
    tells_restores: bool
    process_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @cached_property
    def id(self) -> str:
        """The application.id."""
        return str(self.config.required("application.id"))

    @cached_property
    def directory(self) -> Path:
        """The directory of the application on this machine."""
        return application_path(self.config)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the application."""
        return checkpoint_of(self.config)
