"""The partition of a key in a store, for queries that look for the program with the key."""

from __future__ import annotations

from typing import Any

from penstock.config import StreamsConfig
from penstock.plan.partitioning import partition_for
from penstock.plan.subtopology import StreamPartitioner
from penstock.processor.stream_partitioner import with_headers
from penstock.record import Headers
from penstock.serdes import Serde
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

        Raises the errors of the serde for a key that it cannot write, and TypeError as `with_headers`.
        """
        if self._partitioner is not None:
            chosen = with_headers(self._partitioner)(builder.name, key, None, self._headers, partitions)
            if chosen:
                return min(chosen)
        serde = self._key_serde or empty_store(builder, config).key_serde
        return partition_for(serde.serialize(builder.name, key, self._headers), max(partitions, 1))
