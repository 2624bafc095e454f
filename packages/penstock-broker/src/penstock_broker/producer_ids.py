"""The ids of producers, each of which is given once.

Rule, as in Kafka: a block of ids is reserved on disk before the first of them is given, so a loss of power cannot bring
one back. The rest of a block is lost with the end of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock_broker.metadata_store import MetadataStore

BLOCK_SIZE: Final = 1000
"""Ids that are reserved at once, as in Kafka."""


class ProducerIds:
    """Gives ids of producers.

    Args:
        store: the broker's database.
        largest_known: returns the largest id that a log has; -1 if none has one. The database knows a larger one,
            unless it is an older copy.
    """

    def __init__(self, store: MetadataStore, largest_known: Callable[[], int]) -> None:
        self._store = store
        self._largest_known = largest_known
        self._reserved = range(0)

    def draw(self) -> int:
        """Return an id that was never given before.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        if not self._reserved:
            first = self._store.reserve_producer_ids(self._largest_known() + 1, BLOCK_SIZE)
            self._reserved = range(first, first + BLOCK_SIZE)
        drawn, self._reserved = self._reserved[0], self._reserved[1:]
        return drawn
