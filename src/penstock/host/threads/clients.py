"""The clients of an instance that do more than those of `client/confluent`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.api import OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import committed_offsets
from penstock.config import StreamsConfig
from penstock.record import TopicPartition


class GroupAdmin(ConfluentAdmin):
    """Reads the text beside committed offsets as it was committed, which librdkafka does not. One thread reads them."""

    def __init__(self, config: StreamsConfig) -> None:
        """Connect when first used."""
        super().__init__(config)
        self._cluster = Cluster(config)

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what `group` has committed; see `Admin`."""
        return committed_offsets(self._cluster, group, partitions, stable)

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        self._cluster.close()
        super().close()
