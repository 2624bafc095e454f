"""The records of a streams group: epochs, topology, members, targets and current assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock_broker.groups.modern.member import MemberState
from penstock_broker.groups.modern.records import ModernGroupRecords, RecordKinds
from penstock_broker.groups.schemas import GroupRecord, RecordKind
from penstock_broker.groups.streams.member import StreamsGroupMember
from penstock_broker.groups.streams.target import NOT_READY, StreamsTargetAssignment
from penstock_broker.groups.streams.tasks import TaskId, Tasks, as_messages, as_tasks
from penstock_broker.groups.streams.topology import StreamsTopology
from penstock_broker.wire.codec import Message

_FIRST_STATE = 1
"""The number of the first state of members in these records; consumer groups begin at 0."""


class StreamsGroupRecords(ModernGroupRecords[StreamsGroupMember, StreamsTargetAssignment]):
    """Builds and reads the records of a streams group."""

    kinds = RecordKinds(
        RecordKind.STREAMS_GROUP,
        RecordKind.STREAMS_GROUP_MEMBER,
        RecordKind.STREAMS_GROUP_TARGET,
        RecordKind.STREAMS_GROUP_TARGET_MEMBER,
        RecordKind.STREAMS_GROUP_CURRENT_MEMBER,
    )

    def topology(self, topology: StreamsTopology) -> GroupRecord:
        """Return the record of the topology."""
        return self.of_group(RecordKind.STREAMS_GROUP_TOPOLOGY, topology.message)

    @staticmethod
    def read_topology(records: Iterable[GroupRecord]) -> StreamsTopology | None:
        """Return the topology of a group, or None without its record."""
        return next(
            (
                StreamsTopology(value)
                for kind, _, value in records
                if kind is RecordKind.STREAMS_GROUP_TOPOLOGY and value
            ),
            None,
        )

    def removals(self, member_ids: Iterable[str]) -> list[GroupRecord]:
        """Return the records that remove the group, its members and its topology."""
        return [*super().removals(member_ids), self.of_group(RecordKind.STREAMS_GROUP_TOPOLOGY, None)]

    def _epoch_value(self, target: StreamsTargetAssignment) -> Message:
        return {
            "epoch": target.epoch,
            "metadata_hash": target.metadata_hash,
            "validated_topology_epoch": target.topology_epoch,
        }

    def _with_epoch(self, target: StreamsTargetAssignment, value: Message) -> StreamsTargetAssignment:
        return replace(
            target,
            epoch=value["epoch"],
            metadata_hash=value["metadata_hash"],
            topology_epoch=value.get("validated_topology_epoch", NOT_READY),
        )

    def _target_value(self, assignment: Tasks) -> Message:
        return {"active_tasks": as_messages(assignment)}

    def _target_of(self, value: Message) -> Tasks:
        return as_tasks(value["active_tasks"])

    def _member_value(self, member: StreamsGroupMember) -> Message:
        return {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "topology_epoch": member.topology_epoch,
            "process_id": member.process_id,
            "user_endpoint": member.endpoint_message,
            "client_tags": [{"key": key, "value": value} for key, value in member.client_tags],
        }

    def _member_of(self, member_id: str, value: Message) -> StreamsGroupMember:
        endpoint = value["user_endpoint"]
        return StreamsGroupMember(
            member_id,
            value["instance_id"],
            value["rack_id"],
            value["client_id"],
            value["client_host"],
            value["rebalance_timeout"],
            value["topology_epoch"],
            value["process_id"],
            None if endpoint is None else (endpoint["host"], endpoint["port"]),
            tuple((tag["key"], tag["value"]) for tag in value["client_tags"]),
        )

    def _current_value(self, member: StreamsGroupMember) -> Message:
        return {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": member.state + _FIRST_STATE,
            "active_tasks": _with_since(member.assigned, member.since),
            "active_tasks_pending_revocation": _with_since(member.revoking, member.since),
        }

    def _with_current(self, member: StreamsGroupMember, value: Message) -> StreamsGroupMember:
        assigned, revoking = value["active_tasks"], value["active_tasks_pending_revocation"]
        return replace(
            member,
            epoch=value["member_epoch"],
            previous_epoch=value["previous_member_epoch"],
            state=MemberState(value["state"] - _FIRST_STATE),
            assigned=as_tasks(assigned),
            revoking=as_tasks(revoking),
            since=_since([*assigned, *revoking]),
        )


def _with_since(tasks: Tasks, since: Mapping[TaskId, int]) -> list[Message]:
    return [
        each | {"assignment_epochs": [since[each["subtopology_id"], number] for number in each["partitions"]]}
        for each in as_messages(tasks)
    ]


def _since(subtopologies: Iterable[Message]) -> dict[TaskId, int]:
    since: dict[TaskId, int] = {}
    for each in subtopologies:
        tasks = [(each["subtopology_id"], number) for number in each["partitions"]]
        since |= dict(zip(tasks, each["assignment_epochs"], strict=True))
    return since
