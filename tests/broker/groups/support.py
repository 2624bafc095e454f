"""A broker's groups without sockets: topics and coordinator on a data directory, with time in the test's hands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.groups.coordinator import GroupCoordinator
from penstock_broker.groups.offsets import CommittedOffset
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.records import EndTransactionMarker, encode_marker
from penstock_broker.topics import OFFSETS_TOPIC, TopicRegistry
from tests.support.manual_timers import ManualTimers

DAY_MS = 24 * 60 * 60_000


class GroupBroker:
    """The parts of a broker that groups need.

    Args:
        directory: its data directory.
        settings: settings of the broker.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.clock = MockClock(1_700_000_000_000)
        self.config = BrokerConfig(data_dir=directory, **settings)
        self._open()

    def _open(self) -> None:
        self.timers = ManualTimers(self.clock)
        self.store = MetadataStore(self.config.data_dir / "metadata.sqlite")
        self.topics = TopicRegistry(self.config, self.store, MockClock())
        self.groups = GroupCoordinator(self.config, self.topics, self.timers, self.clock)
        self.groups.take_over(self.store)

    def restart(self) -> None:
        """Open the data directory as after a kill."""
        self.close()
        self._open()

    def close(self) -> None:
        """Close the files."""
        self.topics.close()
        self.store.close()

    def create_topic(self, name: str, partitions: int = 2) -> None:
        """Create a topic."""
        self.topics.create(name, partitions, {})

    def delete_topic(self, name: str) -> None:
        """Delete a topic as the API does."""
        self.topics.delete(self.topics.by_name(name))
        self.groups.on_topic_deleted(name)

    def offset(self, position: int) -> CommittedOffset:
        """Return an offset that is committed now."""
        return CommittedOffset(position, -1, "", self.clock.milliseconds())

    def commit(self, group: str, topic: str, partition: int, position: int) -> None:
        """Commit one offset, as a client without a membership."""
        self.groups.check_commit(group, "", None, -1, 9)
        self.groups.offsets.commit(group, {(topic, partition): self.offset(position)})

    def commit_in_transaction(self, producer_id: int, group: str, topic: str, partition: int, position: int) -> None:
        """Commit one offset in a transaction."""
        self.groups.check_member(group, "", None, -1)
        offset = {(topic, partition): self.offset(position)}
        self.groups.offsets.commit_in_transaction(producer_id, 0, group, offset)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Write the marker of a transaction, as the coordinator of transactions does."""
        marker = encode_marker(EndTransactionMarker(is_commit, 0), producer_id, 0, self.clock.milliseconds())
        self.topics.partition(OFFSETS_TOPIC, 0).append_own(memoryview(marker))
        self.groups.offsets.complete_transaction(producer_id, is_commit)

    def positions(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group."""
        return {partition: offset.offset for partition, offset in self.groups.offsets.of_group(group).items()}
