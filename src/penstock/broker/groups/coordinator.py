"""The coordinator of groups: which requests a group accepts, and when its offsets expire.

Not here: how offsets are kept (offsets.py) and the fields of requests (offset_apis.py, group_apis.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from penstock.broker.config import BrokerConfig
from penstock.broker.errors import ApiError, BrokerError
from penstock.broker.groups.group_log import GroupLog, StoredRecord
from penstock.broker.groups.offsets import CommittedOffset, OffsetStore, TopicPartition
from penstock.broker.groups.schemas import RecordKind
from penstock.broker.groups.timers import Timers
from penstock.broker.metadata_store import MetadataStore
from penstock.broker.topics import OFFSETS_TOPIC, TopicRegistry
from penstock.clock import Clock

_EXPIRY: Final = "expiry of offsets"

_log = logging.getLogger(__name__)


class GroupCoordinator:
    """All groups of the broker.

    Args:
        config: the broker's settings.
        topics: its topics.
        timers: what is due after a time.
        clock: the time of commits.

    Attributes:
        offsets: the committed offsets.
        clock: the time of commits.

    Raises:
        BrokerError: what is kept of the groups cannot be read.
    """

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, timers: Timers, clock: Clock) -> None:
        log = GroupLog(topics, clock)
        self.offsets = OffsetStore(log)
        self.clock = clock
        self._config = config
        self._topics = topics
        self._timers = timers
        stored = log.read()
        by_kind: dict[RecordKind, list[StoredRecord]] = {}
        for each in stored.records:
            by_kind.setdefault(each.record.kind, []).append(each)
        self.offsets.load(by_kind.get(RecordKind.OFFSET_COMMIT, []), stored.pending)
        self._drop_offsets_of_lost_topics()
        self._schedule_expiry()

    def take_over(self, store: MetadataStore) -> None:
        """Take the committed offsets of a data directory that an older version wrote.

        Raises:
            BrokerError: they cannot be written; a repeated start takes them.
        """
        groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for old in store.old_offsets():
            offset = CommittedOffset(old.offset, old.leader_epoch, old.metadata or "", self.clock.milliseconds())
            groups.setdefault(old.group, {})[old.topic, old.partition] = offset
        try:
            for group, offsets in groups.items():
                self.offsets.commit(group, offsets)
            store.drop_old_offsets()
        except ApiError as error:
            raise BrokerError(f"cannot move committed offsets to {OFFSETS_TOPIC}: {error}") from error

    def _drop_offsets_of_lost_topics(self) -> None:
        # A crash may have come between the deletion of a topic and that of its offsets.
        existing = {topic.name for topic in self._topics.all()}
        for topic in self.offsets.topics() - existing:
            self.on_topic_deleted(topic)

    def on_topic_deleted(self, topic: str) -> None:
        """Remove what groups have of a topic that is gone."""
        try:
            self.offsets.delete_topic(topic)
        except ApiError as error:
            # The topic is gone already; the next start removes them.
            _log.error("the offsets for the deleted topic %r are left: %s", topic, error)

    def check_member(self, group: str, member_id: str, group_instance_id: str | None, generation: int) -> None:
        """Check that a transaction's offsets come from a present member, or from a client without a membership.

        Args:
            group: the group.
            member_id: the member; empty where the client says none.
            group_instance_id: the static member; None where the client says none.
            generation: the member's generation or epoch; negative where the client says none.

        Raises:
            ApiError: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        if not group:
            raise ApiError(ErrorCode.invalid_group_id)
        if generation >= 0:
            exists = group in self.offsets.groups()
            code = ErrorCode.unknown_member_id if exists else ErrorCode.illegal_generation
            raise ApiError(code, f"group {group!r} has no members")

    def check_commit(
        self, group: str, member_id: str, group_instance_id: str | None, generation: int, version: int
    ) -> None:
        """Check that a member, or a client without a membership, may commit offsets of a group now.

        Args:
            group: the group.
            member_id: the member; empty where the client says none.
            group_instance_id: the static member; None where the client says none.
            generation: the member's generation or epoch; negative where the client says none.
            version: the version of OffsetCommit.

        Raises:
            ApiError: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        self.check_member(group, member_id, group_instance_id, generation)

    def check_fetch(self, group: str, member_id: str | None, member_epoch: int) -> None:
        """Check that a client may read the offsets of a group.

        Args:
            group: the group.
            member_id: the member of a consumer group (KIP-848); None where the client says none.
            member_epoch: its epoch; negative where the client says none.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
        """

    def delete_offsets(self, group: str, partitions: Mapping[str, list[int]]) -> dict[TopicPartition, ErrorCode]:
        """Remove offsets of a group, and return the error code of each partition.

        Args:
            group: the group.
            partitions: numbers of partitions by topic.

        Raises:
            ApiError: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND or COORDINATOR_NOT_AVAILABLE.
        """
        if not group:
            raise ApiError(ErrorCode.invalid_group_id)
        if group not in self.offsets.groups():
            raise ApiError(ErrorCode.group_id_not_found, f"there is no group {group!r}")
        wanted = [(topic, index) for topic, indexes in partitions.items() for index in indexes]
        self.offsets.delete(group, wanted)
        return dict.fromkeys(wanted, ErrorCode.none)

    def expire_offsets(self) -> None:
        """Remove the offsets that have outlived their group by the retention time."""
        oldest = self.clock.milliseconds() - self._config.offsets_retention_minutes * 60_000
        for group in self.offsets.groups():
            expired = [
                partition
                for partition, offset in self.offsets.of_group(group).items()
                if offset.committed_ms <= oldest and not self.offsets.has_pending(group, *partition)
            ]
            self.offsets.delete(group, expired)

    def _schedule_expiry(self) -> None:
        self._timers.schedule(_EXPIRY, self._config.offsets_retention_check_interval_ms, self._expire_and_go_on)

    def _expire_and_go_on(self) -> None:
        try:
            self.expire_offsets()
        except ApiError as error:
            _log.error("expired offsets are left: %s", error)
        self._schedule_expiry()
