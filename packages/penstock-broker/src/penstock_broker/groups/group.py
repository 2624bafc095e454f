"""The common interface of all types of groups: identity, offsets, and deletion."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, NamedTuple

from penstock_broker.groups.offsets import CommittedOffset, TopicPartition
from penstock_broker.groups.schemas import GroupRecord


class MemberIdentity(NamedTuple):
    """The membership that a client claims.

    Args:
        member_id: empty for a client that is not a member.
        instance_id: name of a static member; None for others.
        generation: the last generation that it received, or the epoch of a member of a consumer or streams group;
            negative if it received neither.
    """

    member_id: str
    instance_id: str | None
    generation: int

    @property
    def is_given(self) -> bool:
        """Whether the client claims to be a member."""
        return bool(self.member_id) or self.instance_id is not None or self.generation >= 0


class Group(ABC):
    """A group.

    Attributes:
        group_id: its name.
        group_type: `classic`, `consumer` or `streams`.
    """

    group_type: ClassVar[str]
    group_id: str

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """Purpose of the group, such as `consumer`; None if it never had members."""

    @property
    @abstractmethod
    def state(self) -> StrEnum:
        """Its state, with the name shown by tools."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    def is_unused(self) -> bool:
        """Whether it has neither members nor pending joins."""
        return self.is_empty

    def is_open_to(self, identity: MemberIdentity) -> bool:
        """Return whether a non-member may commit, because the group has no members."""
        return identity.generation < 0 and self.is_empty

    @abstractmethod
    def check_commit(self, identity: MemberIdentity, version: int, partitions: Iterable[TopicPartition]) -> None:
        """Check that a member may commit offsets; the coordinator has checked `is_open_to`.

        Args:
            identity: the claimed membership.
            version: the version of OffsetCommit.
            partitions: the partitions, which exist.

        Raises:
            ApiError: it may not, or not now.
        """

    @abstractmethod
    def check_transactional_commit(self, identity: MemberIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Check that a member may commit offsets in a transaction.

        The coordinator has checked `is_open_to`.

        Args:
            identity: the claimed membership.
            partitions: the partitions, which exist.

        Raises:
            ApiError: it may not.
        """

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that a client may fetch offsets.

        Args:
            member_id: None if not given.
            member_epoch: negative if not given.

        Raises:
            ApiError: it claims to be a member, but is not.
        """

    @abstractmethod
    def check_offsets_can_be_deleted(self) -> None:
        """Check that offsets of topics without a subscription may be removed.

        Raises:
            ApiError: NON_EMPTY_GROUP, because the broker does not know the topics of the members.
        """

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members subscribe to a topic, as far as the broker knows."""

    @abstractmethod
    def retained_from(self, offset: CommittedOffset) -> int | None:
        """Return the start of an offset's retention time.

        It is in ms since the epoch; None if the offset is retained for now.
        """

    @abstractmethod
    def removals(self) -> list[GroupRecord]:
        """Return the records that remove the group; empty for a group with offsets only."""

    @abstractmethod
    def close(self) -> None:
        """Cancel timers and pending requests, because the group is deleted."""
