"""What a process keeps open for the life of the query: clients of the brokers and the checkpoint. Connections are dear,
epochs are many."""

from __future__ import annotations

from functools import lru_cache

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.recipe import RECIPES_AT_HAND, Recipe

_PATIENCE_MS = 60_000
"""How long a worker waits for the brokers, before the epoch is given up."""


@lru_cache(maxsize=RECIPES_AT_HAND)
def open_fetcher(recipe: Recipe) -> ConfluentFetcher:
    """Return the fetcher of this process for `recipe`."""
    return ConfluentFetcher(recipe.config, _PATIENCE_MS)


@lru_cache(maxsize=RECIPES_AT_HAND)
def open_admin(recipe: Recipe) -> ConfluentAdmin:
    """Return the admin client of this process for `recipe`."""
    return ConfluentAdmin(recipe.config, _PATIENCE_MS)


@lru_cache(maxsize=RECIPES_AT_HAND)
def open_checkpoint(uri: str) -> Checkpoint:
    """Return the checkpoint at `uri`, opened once a process."""
    return Checkpoint(uri)
