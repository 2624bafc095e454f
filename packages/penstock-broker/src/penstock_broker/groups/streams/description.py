"""A streams group in messages: its description for tools, and the endpoints of its members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock_broker.groups.streams.member import StreamsGroupMember
from penstock_broker.groups.streams.task_offsets import offsets_as_messages
from penstock_broker.groups.streams.tasks import Tasks, as_messages
from penstock_broker.groups.streams.topology import StreamsTopology, sources_of
from penstock_broker.wire.codec import Message


def describe_topology(topology: StreamsTopology, partitions: Mapping[str, int]) -> Message:
    """Return a topology in the form of StreamsGroupDescribe.

    Args:
        topology: the topology.
        partitions: numbers of partitions of its internal topics, as far as they are known.
    """

    def counted(topics: Iterable[Message]) -> list[Message]:
        known = [topic | {"partitions": partitions.get(topic["name"], topic["partitions"])} for topic in topics]
        return sorted(known, key=lambda topic: topic["name"])

    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "subtopology_id": id,
                "source_topics": sorted(each["source_topics"]),
                "repartition_sink_topics": sorted(each["repartition_sink_topics"]),
                "state_changelog_topics": counted(each["state_changelog_topics"]),
                "repartition_source_topics": counted(each["repartition_source_topics"]),
            }
            for id, each in topology.subtopologies.items()
        ],
    }


def describe_member(member: StreamsGroupMember, target: Tasks) -> Message:
    """Return a member in the form of StreamsGroupDescribe.

    Args:
        member: the member.
        target: the tasks of its target assignment.
    """
    return {
        "member_id": member.member_id,
        "member_epoch": member.epoch,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": member.endpoint_message,
        "client_tags": [{"key": key, "value": value} for key, value in member.client_tags],
        "task_offsets": offsets_as_messages(member.offsets.offsets),
        "task_end_offsets": offsets_as_messages(member.offsets.ends),
        "assignment": {"active_tasks": as_messages(member.assigned)},
        "target_assignment": {"active_tasks": as_messages(target)},
    }


def partitions_by_endpoint(
    members: Iterable[StreamsGroupMember], topology: StreamsTopology, partitions: Mapping[str, int]
) -> list[Message]:
    """Return the partitions that the members with endpoints read, in the form of StreamsGroupHeartbeat.

    Args:
        members: the members.
        topology: the topology of the group.
        partitions: numbers of partitions by topic.
    """
    return [
        {
            "user_endpoint": member.endpoint_message,
            "active_partitions": list(_read_by(member, topology, partitions)),
            "standby_partitions": [],
        }
        for member in members
        if member.endpoint is not None
    ]


def _read_by(member: StreamsGroupMember, topology: StreamsTopology, partitions: Mapping[str, int]) -> Iterable[Message]:
    for tasks in as_messages(member.assigned):
        for topic in sorted(set(sources_of(topology.subtopologies[tasks["subtopology_id"]]))):
            numbers = [number for number in tasks["partitions"] if number < partitions.get(topic, 0)]
            if numbers:
                yield {"topic": topic, "partitions": numbers}
