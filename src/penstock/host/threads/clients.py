"""Clients of an instance with more features than those of `client/confluent`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.client.api import EpochPosition, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.groups import remove_members
from penstock.client.sockets.leader_epochs import truncated
from penstock.client.sockets.offsets import commit_offsets, committed_offsets
from penstock.config import StreamsConfig
from penstock.record import TopicPartition


class GroupAdmin(ConfluentAdmin):
    """Adds group operations that librdkafka lacks. It reads and commits offset metadata unchanged, and removes members.
    Used by one thread. Connects on first use."""

    def __init__(self, config: StreamsConfig) -> None:
        super().__init__(config)
        self._cluster = Cluster(config)

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of `group`; see `Admin`."""
        return committed_offsets(self._cluster, group, partitions, stable)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit `offsets` for `group`, which must have no members; see `Admin`."""
        commit_offsets(self._cluster, group, offsets)

    def truncated(self, positions: Mapping[TopicPartition, EpochPosition]) -> dict[TopicPartition, EpochPosition]:
        """Return the `positions` above the rest of a truncated log, over persistent connections; see `Admin`."""
        return truncated(self._cluster, positions)

    def remove_members(self, group: str, member_ids: Collection[str], reason: str) -> None:
        """Remove members of the classic `group`; see `penstock.client.sockets.groups.remove_members`."""
        remove_members(self._cluster, group, member_ids, reason)

    def close(self) -> None:
        """Release connections and threads; safe to call again."""
        self._cluster.close()
        super().close()
