"""What a process keeps open for the life of the query: clients of the brokers and the checkpoint. Connections are dear,
epochs are many."""

from __future__ import annotations

from functools import lru_cache

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.application_description import DESCRIPTIONS_AT_HAND, ApplicationDescription

_PATIENCE_MS = 60_000
"""How long a worker waits for the brokers, before the epoch is given up."""


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def open_fetcher(description: ApplicationDescription) -> ConfluentFetcher:
    """Return the fetcher of this process for `description`."""
    return ConfluentFetcher(description.config, _PATIENCE_MS)


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def open_admin(description: ApplicationDescription) -> ConfluentAdmin:
    """Return the admin client of this process for `description`."""
    return ConfluentAdmin(description.config, _PATIENCE_MS)


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def open_checkpoint(uri: str) -> Checkpoint:
    """Return the checkpoint at `uri`, opened once a process."""
    return Checkpoint(uri)
