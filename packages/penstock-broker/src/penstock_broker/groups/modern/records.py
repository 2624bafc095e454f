"""The records of a group with assignment by the broker: epochs, members, targets and current assignments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from penstock_broker.groups.modern.member import MemberT
from penstock_broker.groups.modern.target import TargetAssignment
from penstock_broker.groups.schemas import GroupRecord, RecordKind
from penstock_broker.wire.codec import Message

TargetT = TypeVar("TargetT", bound=TargetAssignment[Any])
"""The target assignment of one type of groups."""


class RecordKinds(NamedTuple):
    """The kinds of the records of one type of groups.

    Args:
        group: its epoch.
        member: the metadata of a member.
        target: the epoch of the target assignment.
        target_member: the target of a member.
        current_member: the current assignment of a member.
    """

    group: RecordKind
    member: RecordKind
    target: RecordKind
    target_member: RecordKind
    current_member: RecordKind


class ModernGroupRecords(ABC, Generic[MemberT, TargetT]):
    """Builds and reads the records of a group.

    Args:
        group_id: its name.
    """

    kinds: ClassVar[RecordKinds]

    def __init__(self, group_id: str) -> None:
        self._key: Message = {"group": group_id}

    def removals(self, member_ids: Iterable[str]) -> list[GroupRecord]:
        """Return the records that remove the group and its members."""
        of_members = [record for member_id in member_ids for record in self.member_removals(member_id)]
        return [*of_members, *(self.of_group(kind, None) for kind in (self.kinds.target, self.kinds.group))]

    def member_removals(self, member_id: str) -> list[GroupRecord]:
        """Return the records that remove a member."""
        kinds = (self.kinds.current_member, self.kinds.target_member, self.kinds.member)
        return [self._of_member(kind, member_id, None) for kind in kinds]

    def of_group(self, kind: RecordKind, value: Message | None) -> GroupRecord:
        """Return a record of the group."""
        return GroupRecord(kind, self._key, value)

    def _of_member(self, kind: RecordKind, member_id: str, value: Message | None) -> GroupRecord:
        return GroupRecord(kind, self._key | {"member_id": member_id}, value)

    def target_changes(self, before: TargetT, after: TargetT) -> list[GroupRecord]:
        """Return the records of a changed target, without those of removed members."""
        records: list[GroupRecord] = []
        if after.epoch != before.epoch:
            records.append(self.of_group(self.kinds.group, self._epoch_value(after)))
        if after.assignment_epoch != before.assignment_epoch:
            for member_id, assignment in after.assignments.items():
                if before.assignments.get(member_id) != assignment:
                    records.append(self.member_target(member_id, assignment))
            records.append(self.of_group(self.kinds.target, {"assignment_epoch": after.assignment_epoch}))
        return records

    def member_target(self, member_id: str, assignment: frozenset[Any]) -> GroupRecord:
        """Return the record of a member's target."""
        return self._of_member(self.kinds.target_member, member_id, self._target_value(assignment))

    def member(self, member: MemberT) -> GroupRecord:
        """Return the record of a member and its metadata."""
        return self._of_member(self.kinds.member, member.member_id, self._member_value(member))

    def current(self, member: MemberT) -> GroupRecord:
        """Return the record of a member's current assignment."""
        return self._of_member(self.kinds.current_member, member.member_id, self._current_value(member))

    def read(self, records: Iterable[GroupRecord], target: TargetT) -> tuple[TargetT, list[MemberT]]:
        """Return the target and the members of the group.

        Args:
            records: the last record of each key; those of other kinds are left out.
            target: that of a new group.
        """
        members: dict[str, MemberT] = {}
        assignments: dict[str, frozenset[Any]] = {}
        # Sorted by kind, a member comes before its current assignment.
        for kind, key, value in sorted(records, key=lambda record: record.kind):
            assert value is not None  # the log returns only keys with a value
            member_id = key.get("member_id", "")
            if kind == self.kinds.group:
                target = self._with_epoch(target, value)
            elif kind == self.kinds.member:
                members[member_id] = self._member_of(member_id, value)
            elif kind == self.kinds.target:
                target = replace(target, assignment_epoch=value["assignment_epoch"])
            elif kind == self.kinds.target_member:
                assignments[member_id] = self._target_of(value)
            elif kind == self.kinds.current_member and member_id in members:
                members[member_id] = self._with_current(members[member_id], value)
        return replace(target, assignments=assignments), list(members.values())

    @abstractmethod
    def _epoch_value(self, target: TargetT) -> Message: ...

    @abstractmethod
    def _with_epoch(self, target: TargetT, value: Message) -> TargetT: ...

    @abstractmethod
    def _target_value(self, assignment: frozenset[Any]) -> Message: ...

    @abstractmethod
    def _target_of(self, value: Message) -> frozenset[Any]: ...

    @abstractmethod
    def _member_value(self, member: MemberT) -> Message: ...

    @abstractmethod
    def _member_of(self, member_id: str, value: Message) -> MemberT: ...

    @abstractmethod
    def _current_value(self, member: MemberT) -> Message: ...

    @abstractmethod
    def _with_current(self, member: MemberT, value: Message) -> MemberT: ...
