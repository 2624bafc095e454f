"""Clients of the brokers and the checkpoint, kept for the life of the query.

Connections are expensive, and epochs are many. An idle client of the brokers closes its connections.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.application_description import DESCRIPTIONS_AT_HAND, ApplicationDescription

_PATIENCE_MS = 60_000
"""How long (ms) a worker waits for the brokers before it gives up the epoch."""


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def open_fetcher(description: ApplicationDescription) -> ConfluentFetcher:
    """Return this process's fetcher for `description`."""
    return ConfluentFetcher(description.config, _PATIENCE_MS)


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def open_admin(description: ApplicationDescription) -> ConfluentAdmin:
    """Return this process's admin client for `description`."""
    return ConfluentAdmin(description.config, _PATIENCE_MS)


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def open_checkpoint(uri: str) -> Checkpoint:
    """Return the checkpoint at `uri`, opened once per process."""
    return Checkpoint(uri)
