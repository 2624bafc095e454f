"""The records of a consumer group: epochs, members, targets and current assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock_broker.groups.assignment import Assignment, PartitionId, as_assignment, as_messages
from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.target import ConsumerTargetAssignment
from penstock_broker.groups.modern.member import MemberState
from penstock_broker.groups.modern.records import ModernGroupRecords, RecordKinds
from penstock_broker.groups.schemas import GroupRecord, RecordKind
from penstock_broker.wire.codec import Message


class ConsumerGroupRecords(ModernGroupRecords[ConsumerGroupMember, ConsumerTargetAssignment]):
    """Builds the records of a consumer group."""

    kinds = RecordKinds(
        RecordKind.CONSUMER_GROUP,
        RecordKind.CONSUMER_GROUP_MEMBER,
        RecordKind.CONSUMER_GROUP_TARGET,
        RecordKind.CONSUMER_GROUP_TARGET_MEMBER,
        RecordKind.CONSUMER_GROUP_CURRENT_MEMBER,
    )

    def _epoch_value(self, target: ConsumerTargetAssignment) -> Message:
        return {"epoch": target.epoch, "metadata_hash": target.metadata_hash}

    def _target_value(self, assignment: Assignment) -> Message:
        return {"topic_partitions": as_messages(assignment)}

    def _member_value(self, member: ConsumerGroupMember) -> Message:
        return {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": list(member.topic_names),
            "subscribed_topic_regex": member.topic_regex,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "server_assignor": member.assignor,
        }

    def _current_value(self, member: ConsumerGroupMember) -> Message:
        return {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": member.state,
            "assigned_partitions": _with_since(member.assigned, member.since),
            "partitions_pending_revocation": _with_since(member.revoking, member.since),
        }


def read_records(records: Iterable[GroupRecord]) -> tuple[ConsumerTargetAssignment, list[ConsumerGroupMember]]:
    """Return the target and the members of a group.

    Args:
        records: the last record of each key.
    """
    target = ConsumerTargetAssignment()
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
                    value["rebalance_timeout"],
                    tuple(value["subscribed_topic_names"]),
                    value["subscribed_topic_regex"],
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
