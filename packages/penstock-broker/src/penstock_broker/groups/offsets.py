"""The committed offsets of all groups, including the pending ones of transactions.

Not here: the checks of commits, and the expiry of offsets (coordinator.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock_broker.groups.group_log import GroupLog, StoredGroupRecord, offset_record
from penstock_broker.groups.schemas import GroupRecord
from penstock_broker.wire.codec import Message

TopicPartition = tuple[str, int]
"""Topic name and partition number."""

MAX_OFFSET_METADATA: Final = 4096
"""Maximum characters of an offset's metadata, as in Kafka (offset.metadata.max.bytes)."""


_MOST_REMOVALS: Final = 10_000  # in one batch


class CommittedOffset(NamedTuple):
    """The committed position of a group in one partition.

    Args:
        offset: the position.
        leader_epoch: epoch of the partition's leader when its last record was read; -1 if not given.
        metadata: the client's own text.
        committed_ms: time of the commit, in ms since the epoch.
        record_offset: offset of its record in `__consumer_offsets`; -1 before it is written.
        expires_ms: time of expiry given by the client, in ms since the epoch; None for the broker's retention.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    record_offset: int = -1
    expires_ms: int | None = None


_Offsets = dict[str, dict[TopicPartition, CommittedOffset]]


class OffsetStore:
    """Committed offsets by group.

    Args:
        log: their storage.
    """

    def __init__(self, log: GroupLog) -> None:
        self._log = log
        self._committed: _Offsets = {}
        self._pending: dict[int, _Offsets] = {}

    def load(self, records: Iterable[StoredGroupRecord], pending: Mapping[int, list[StoredGroupRecord]]) -> None:
        """Load committed offsets, and those of open transactions by producer id, at startup."""
        for stored in records:
            _put(self._committed, stored)
        for producer_id, waiting in pending.items():
            offsets = self._pending.setdefault(producer_id, {})
            for stored in waiting:
                _put(offsets, stored)

    def groups(self) -> list[str]:
        """Return the groups with a committed or a pending offset."""
        return list(self._committed.keys() | {group for offsets in self._pending.values() for group in offsets})

    def has_group(self, group: str) -> bool:
        """Return whether a group has a committed or a pending offset."""
        return group in self._committed or self.has_open_transaction(group)

    def of_group(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group."""
        return self._committed.get(group, {})

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store positions of a group atomically.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; nothing was stored.
        """
        if offsets:
            first = self._log.append(_records(group, offsets))
            self._committed.setdefault(group, {}).update(_numbered(offsets, first))

    def commit_in_transaction(
        self, producer_id: int, producer_epoch: int, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Store positions of a group that take effect when the transaction is committed.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; nothing was stored.
        """
        if offsets:
            first = self._log.append_in_transaction(_records(group, offsets), producer_id, producer_epoch)
            self._pending.setdefault(producer_id, {}).setdefault(group, {}).update(_numbered(offsets, first))

    def complete_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Apply the marker of a transaction, which was written to `__consumer_offsets`.

        Args:
            producer_id: the producer of the transaction; without pending offsets nothing happens.
            is_commit: whether its offsets take effect now.
        """
        for group, offsets in self._pending.pop(producer_id, {}).items():
            if not is_commit:
                continue
            committed = self._committed.setdefault(group, {})
            for partition, offset in offsets.items():
                known = committed.get(partition)
                # A later commit outside of the transaction takes precedence.
                if known is None or known.record_offset < offset.record_offset:
                    committed[partition] = offset

    def partitions_in_transaction(self, producer_id: int) -> set[TopicPartition]:
        """Return the partitions with pending offsets in a producer's transaction."""
        return {partition for offsets in self._pending.get(producer_id, {}).values() for partition in offsets}

    def has_pending(self, group: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has an offset for a partition."""
        return any((topic, partition) in offsets.get(group, {}) for offsets in self._pending.values())

    def has_open_transaction(self, group: str) -> bool:
        """Return whether an open transaction has an offset of a group."""
        return any(group in offsets for offsets in self._pending.values())

    def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Remove committed and pending offsets of a group, skipping partitions without an offset.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; nothing was removed.
        """
        known = self._all_of(group)
        removed = [partition for partition in partitions if partition in known]
        if removed:
            self._log.append([offset_record(group, *partition, None) for partition in removed])
            self.forget(group, removed)

    def removals(self, group: str) -> list[GroupRecord]:
        """Return the records that remove all offsets of a group."""
        return [offset_record(group, *partition, None) for partition in self._all_of(group)]

    def forget(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Drop offsets of a group from memory, after their removal was written."""
        for offsets in (self._committed, *self._pending.values()):
            of_group = offsets.get(group)
            if of_group is None:
                continue
            for partition in partitions:
                of_group.pop(partition, None)
            if not of_group:
                del offsets[group]

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a group from memory, after their removal was written."""
        self.forget(group, self._all_of(group))

    def topics(self) -> set[str]:
        """Return the topics with a committed or pending offset."""
        return {
            topic
            for offsets in (self._committed, *self._pending.values())
            for of_group in offsets.values()
            for topic, _ in of_group
        }

    def delete_topic(self, topic: str) -> None:
        """Remove the offsets of all groups for a deleted topic.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; the offsets of some groups may be left.
        """
        doomed = [(group, each) for group in self.groups() for each in self._all_of(group) if each[0] == topic]
        for start in range(0, len(doomed), _MOST_REMOVALS):
            batch = doomed[start : start + _MOST_REMOVALS]
            self._log.append([offset_record(group, *partition, None) for group, partition in batch])
            for group, partition in batch:
                self.forget(group, [partition])

    def _all_of(self, group: str) -> dict[TopicPartition, None]:
        found: dict[TopicPartition, None] = {}
        for offsets in (self._committed, *self._pending.values()):
            found.update(dict.fromkeys(offsets.get(group, {})))
        return found


def _records(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[GroupRecord]:
    return [offset_record(group, *partition, _value(offset)) for partition, offset in offsets.items()]


def _value(offset: CommittedOffset) -> Message:
    value = {"offset": offset.offset, "metadata": offset.metadata, "commit_timestamp": offset.committed_ms}
    if offset.expires_ms is not None:
        return value | {"expire_timestamp": offset.expires_ms}
    return value | {"leader_epoch": offset.leader_epoch}


def _numbered(offsets: Mapping[TopicPartition, CommittedOffset], first: int) -> dict[TopicPartition, CommittedOffset]:
    return {
        partition: offset._replace(record_offset=first + number)
        for number, (partition, offset) in enumerate(offsets.items())
    }


def _put(offsets: _Offsets, stored: StoredGroupRecord) -> None:
    key, value = stored.record.key, stored.record.value
    assert value is not None  # the log returns only keys with a value
    offsets.setdefault(key["group"], {})[key["topic"], key["partition"]] = CommittedOffset(
        value["offset"],
        value.get("leader_epoch", -1),
        value["metadata"],
        value["commit_timestamp"],
        stored.offset,
        value.get("expire_timestamp"),
    )
