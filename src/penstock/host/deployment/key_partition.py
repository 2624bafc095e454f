"""The partition of a key in a store, for queries that look for the program with the key."""

from __future__ import annotations

from typing import Any, cast

from penstock.config import StreamsConfig
from penstock.plan.partitioning import partition_for
from penstock.plan.subtopology import StreamPartitioner
from penstock.record import Headers
from penstock.serdes import Serde
from penstock.signatures import misfit
from penstock.state.api import StoreBuilder
from penstock.task.standby_task import empty_store


class KeyPartitioner:
    """Finds the partitions of keys (Kafka method: KafkaStreams.queryMetadataForKey).

    Args:
        key_serde: serializes the keys as in the source records; None for the serde of the store.
        partitioner: the partitioner of those records; None for Kafka's default.
        headers: the headers of those records, for both.
    """

    def __init__(self, key_serde: Serde | None, partitioner: StreamPartitioner | None, headers: Headers) -> None:
        self._key_serde = key_serde
        self._partitioner = partitioner
        self._headers = headers

    def partition(self, builder: StoreBuilder, config: StreamsConfig, key: Any, partitions: int) -> int:
        """Return the partition of `key` in a store with that number of partitions.

        Raises the errors of the serde for a key that it cannot write.
        """
        chosen = self._chosen(builder.name, key, partitions)
        if chosen:
            return min(chosen)
        serde = self._key_serde or empty_store(builder, config).key_serde
        return partition_for(serde.serialize(builder.name, key, self._headers), max(partitions, 1))

    def _chosen(self, topic: str, key: Any, partitions: int) -> set[int] | None:
        """Return the choice of the partitioner, None without one; it may take headers (KIP-1321)."""
        partitioner: Any = self._partitioner
        if partitioner is None:
            return None
        chosen: Any
        if misfit(partitioner, topic, key, None, partitions) is None:
            chosen = partitioner(topic, key, None, partitions)
        else:
            chosen = partitioner(topic, key, None, self._headers, partitions)
        return cast("set[int] | None", chosen)
