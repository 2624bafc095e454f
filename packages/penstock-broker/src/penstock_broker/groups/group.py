"""What both types of groups have in common: an identity, offsets, and an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, NamedTuple

from penstock_broker.groups.offsets import CommittedOffset, TopicPartition
from penstock_broker.groups.schemas import GroupRecord


class MemberIdentity(NamedTuple):
    """Who a client says it is.

    Args:
        member_id: empty if it is no member.
        instance_id: name of a static member; None for others.
        generation: the generation that it knows, or the epoch of a consumer group; negative where it knows none.
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
        group_type: `classic` or `consumer`.
    """

    group_type: ClassVar[str]
    group_id: str

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """What the group is for, such as `consumer`; None if it never had members."""

    @property
    @abstractmethod
    def state(self) -> StrEnum:
        """Its state, by the name that tools show."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    def is_unused(self) -> bool:
        """Whether it has neither members nor clients that are about to join."""
        return self.is_empty

    def is_open_to(self, identity: MemberIdentity) -> bool:
        """Return whether a client may commit without a membership: the group has no members."""
        return identity.generation < 0 and self.is_empty

    @abstractmethod
    def check_commit(self, identity: MemberIdentity, version: int, partitions: Iterable[TopicPartition]) -> None:
        """Check that a member may commit offsets; the coordinator has asked `is_open_to` before.

        Args:
            identity: who it is.
            version: the version of OffsetCommit.
            partitions: the partitions, which exist.

        Raises:
            ApiError: it may not, or not now.
        """

    @abstractmethod
    def check_transactional_commit(self, identity: MemberIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Check that a member may commit offsets in a transaction; the coordinator has asked `is_open_to` before.

        Args:
            identity: who it is.
            partitions: the partitions, which exist.

        Raises:
            ApiError: it may not.
        """

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that a client may read offsets.

        Args:
            member_id: None if it does not say.
            member_epoch: negative where it does not say.

        Raises:
            ApiError: it claims to be a member, and is none.
        """

    @abstractmethod
    def check_offsets_can_be_deleted(self) -> None:
        """Check that offsets of topics without a subscription may be removed.

        Raises:
            ApiError: NON_EMPTY_GROUP, because the broker cannot tell which topics the members use.
        """

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members read a topic, as far as the broker can tell."""

    @abstractmethod
    def retained_from(self, offset: CommittedOffset) -> int | None:
        """Return from when on the retention time of an offset counts, in ms since the epoch; None if it does not."""

    @abstractmethod
    def removals(self) -> list[GroupRecord]:
        """Return the records that remove the group; a group that only has offsets has none of its own."""

    @abstractmethod
    def close(self) -> None:
        """Drop what is due, because the group is deleted."""
