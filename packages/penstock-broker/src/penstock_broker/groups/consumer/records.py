"""The records of a consumer group: epochs, members, targets and current assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock_broker.groups.assignment import Assignment, PartitionId, as_assignment, as_messages
from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.target import ConsumerTargetAssignment
from penstock_broker.groups.modern.member import MemberState
from penstock_broker.groups.modern.records import ModernGroupRecords, RecordKinds
from penstock_broker.groups.schemas import RecordKind
from penstock_broker.wire.codec import Message


class ConsumerGroupRecords(ModernGroupRecords[ConsumerGroupMember, ConsumerTargetAssignment]):
    """Builds and reads the records of a consumer group."""

    kinds = RecordKinds(
        RecordKind.CONSUMER_GROUP,
        RecordKind.CONSUMER_GROUP_MEMBER,
        RecordKind.CONSUMER_GROUP_TARGET,
        RecordKind.CONSUMER_GROUP_TARGET_MEMBER,
        RecordKind.CONSUMER_GROUP_CURRENT_MEMBER,
    )

    def _epoch_value(self, target: ConsumerTargetAssignment) -> Message:
        return {"epoch": target.epoch, "metadata_hash": target.metadata_hash}

    def _with_epoch(self, target: ConsumerTargetAssignment, value: Message) -> ConsumerTargetAssignment:
        return replace(target, epoch=value["epoch"], metadata_hash=value.get("metadata_hash", 0))

    def _target_value(self, assignment: Assignment) -> Message:
        return {"topic_partitions": as_messages(assignment)}

    def _target_of(self, value: Message) -> Assignment:
        return as_assignment(value["topic_partitions"])

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

    def _member_of(self, member_id: str, value: Message) -> ConsumerGroupMember:
        return ConsumerGroupMember(
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

    def _current_value(self, member: ConsumerGroupMember) -> Message:
        return {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": member.state,
            "assigned_partitions": _with_since(member.assigned, member.since),
            "partitions_pending_revocation": _with_since(member.revoking, member.since),
        }

    def _with_current(self, member: ConsumerGroupMember, value: Message) -> ConsumerGroupMember:
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
