"""The records of a consumer group: epochs, members, targets and current assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock_broker.groups.assignment import Assignment, PartitionId, as_assignment, as_messages
from penstock_broker.groups.consumer.member import ConsumerGroupMember, MemberState
from penstock_broker.groups.consumer.target import TargetAssignment
from penstock_broker.groups.schemas import GroupRecord, RecordKind
from penstock_broker.wire.codec import Message


class ConsumerGroupRecords:
    """Builds the records of a group.

    Args:
        group_id: its name.
    """

    def __init__(self, group_id: str) -> None:
        self._key: Message = {"group": group_id}

    def removals(self, member_ids: Iterable[str]) -> list[GroupRecord]:
        """Return the records that remove the group and its members."""
        of_members = [record for member_id in member_ids for record in self.member_removals(member_id)]
        kinds = (RecordKind.CONSUMER_GROUP_TARGET, RecordKind.CONSUMER_GROUP)
        return [*of_members, *(GroupRecord(kind, self._key, None) for kind in kinds)]

    def member_removals(self, member_id: str) -> list[GroupRecord]:
        """Return the records that remove a member."""
        kinds = (
            RecordKind.CONSUMER_GROUP_CURRENT_MEMBER,
            RecordKind.CONSUMER_GROUP_TARGET_MEMBER,
            RecordKind.CONSUMER_GROUP_MEMBER,
        )
        return [self._of_member(kind, member_id, None) for kind in kinds]

    def _of_member(self, kind: RecordKind, member_id: str, value: Message | None) -> GroupRecord:
        return GroupRecord(kind, self._key | {"member_id": member_id}, value)

    def target_changes(self, before: TargetAssignment, after: TargetAssignment) -> list[GroupRecord]:
        """Return the records of a changed target, without those of removed members."""
        records: list[GroupRecord] = []
        if after.epoch != before.epoch:
            value: Message = {"epoch": after.epoch, "metadata_hash": after.metadata_hash}
            records.append(GroupRecord(RecordKind.CONSUMER_GROUP, self._key, value))
        if after.assignment_epoch != before.assignment_epoch:
            for member_id, assignment in after.assignments.items():
                if before.assignments.get(member_id) != assignment:
                    records.append(self.member_target(member_id, assignment))
            value = {"assignment_epoch": after.assignment_epoch}
            records.append(GroupRecord(RecordKind.CONSUMER_GROUP_TARGET, self._key, value))
        return records

    def member_target(self, member_id: str, assignment: Assignment) -> GroupRecord:
        """Return the record of a member's target partitions."""
        value = {"topic_partitions": as_messages(assignment)}
        return self._of_member(RecordKind.CONSUMER_GROUP_TARGET_MEMBER, member_id, value)

    def member(self, member: ConsumerGroupMember) -> GroupRecord:
        """Return the record of a member and its subscription."""
        value: Message = {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": list(member.topic_names),
            "subscribed_topic_regex": member.topic_regex,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "server_assignor": member.assignor,
        }
        return self._of_member(RecordKind.CONSUMER_GROUP_MEMBER, member.member_id, value)

    def current(self, member: ConsumerGroupMember) -> GroupRecord:
        """Return the record of a member's current partitions."""
        value = {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": member.state,
            "assigned_partitions": _with_since(member.assigned, member.since),
            "partitions_pending_revocation": _with_since(member.revoking, member.since),
        }
        return self._of_member(RecordKind.CONSUMER_GROUP_CURRENT_MEMBER, member.member_id, value)


def read_records(records: Iterable[GroupRecord]) -> tuple[TargetAssignment, list[ConsumerGroupMember]]:
    """Return the target and the members of a group.

    Args:
        records: the last record of each key.
    """
    target = TargetAssignment()
    members: dict[str, ConsumerGroupMember] = {}
    assignments: dict[str, Assignment] = {}
    # Sorted by kind, a member comes before its current assignment.
    for kind, key, value in sorted(records, key=lambda record: record.kind):
        assert value is not None  # the log returns only keys with a value
        member_id = key.get("member_id", "")
        match kind:
            case RecordKind.CONSUMER_GROUP:
                target = replace(target, epoch=value["epoch"], metadata_hash=value.get("metadata_hash", 0))
            case RecordKind.CONSUMER_GROUP_MEMBER:
                members[member_id] = ConsumerGroupMember(
                    member_id,
                    value["instance_id"],
                    value["rack_id"],
                    value["client_id"],
                    value["client_host"],
                    tuple(value["subscribed_topic_names"]),
                    value["subscribed_topic_regex"],
                    value["rebalance_timeout"],
                    value["server_assignor"],
                )
            case RecordKind.CONSUMER_GROUP_TARGET:
                target = replace(target, assignment_epoch=value["assignment_epoch"])
            case RecordKind.CONSUMER_GROUP_TARGET_MEMBER:
                assignments[member_id] = as_assignment(value["topic_partitions"])
            case RecordKind.CONSUMER_GROUP_CURRENT_MEMBER if member_id in members:
                members[member_id] = _with_current(members[member_id], value)
    return replace(target, assignments=assignments), list(members.values())


def _with_current(member: ConsumerGroupMember, value: Message) -> ConsumerGroupMember:
    listed = [*value["assigned_partitions"], *value["partitions_pending_revocation"]]
    return replace(
        member,
        epoch=value["member_epoch"],
        previous_epoch=value["previous_member_epoch"],
        state=MemberState(value["state"]),
        assigned=as_assignment(value["assigned_partitions"]),
        revoking=as_assignment(value["partitions_pending_revocation"]),
        since=_since(listed, value["member_epoch"]),
    )


def _with_since(assignment: Assignment, since: Mapping[PartitionId, int]) -> list[Message]:
    return [
        topic | {"assignment_epochs": [since[topic["topic_id"], number] for number in topic["partitions"]]}
        for topic in as_messages(assignment)
    ]


def _since(topics: Iterable[Message], default: int) -> dict[PartitionId, int]:
    """Return the epochs of partitions in a record; records of older versions lack them."""
    since: dict[PartitionId, int] = {}
    for topic in topics:
        epochs = topic.get("assignment_epochs", [default] * len(topic["partitions"]))
        since |= {(topic["topic_id"], number): each for number, each in zip(topic["partitions"], epochs, strict=True)}
    return since
