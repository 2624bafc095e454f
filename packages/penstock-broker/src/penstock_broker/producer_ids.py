"""The allocation of producer ids, each of which is used once.

Rule, as in Kafka: a block of ids is reserved on disk before its first id is used, so a power failure cannot bring an id
back. The rest of a block is lost when the broker ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock_broker.metadata_store import MetadataStore

BLOCK_SIZE: Final = 1000
"""Ids reserved at once, as in Kafka."""


class ProducerIds:
    """Allocates producer ids.

    Args:
        store: the broker's database.
        largest_known: returns the largest id in the logs, or -1. The next id in the database is larger, unless the
            database is an older copy.
    """

    def __init__(self, store: MetadataStore, largest_known: Callable[[], int]) -> None:
        self._store = store
        self._largest_known = largest_known
        self._reserved = range(0)

    def draw(self) -> int:
        """Return a new id.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        if not self._reserved:
            first = self._store.reserve_producer_ids(self._largest_known() + 1, BLOCK_SIZE)
            self._reserved = range(first, first + BLOCK_SIZE)
        drawn, self._reserved = self._reserved[0], self._reserved[1:]
        return drawn
