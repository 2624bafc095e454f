"""The protocol of Kafka Streams groups (KIP-1071; Kafka class: StreamsGroupHeartbeatRequestManager).

A member sends StreamsGroupHeartbeat, with the topology when it joins, and reads the answers. Patterns of source topics
are not sent, because brokers refuse them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from penstock.client.api import NewTopic
from penstock.client.settings import CONSUMER, client_settings
from penstock.client.sockets.connection import Api
from penstock.client.sockets.groups import STREAMS_GROUP_DESCRIBE
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, KafkaError, StreamsError, TopologyError, UnsupportedVersionError
from penstock.host.deployment.internal_topics import internal_topics
from penstock.host.deployment.layout import Layout
from penstock.host.threads import member_messages as m
from penstock.host.threads.group_protocol import (
    Request,
    client_tags,
    fenced_instance,
    instance_id,
    max_poll_interval_ms,
    now_ms,
)
from penstock.host.threads.member import Timing
from penstock.host.threads.membership import ChangelogPositions
from penstock.host.threads.streams_member import ASSIGNMENT_DELAYED, SESSION_MS, StreamsMember
from penstock.host.threads.subscription import Endpoint
from penstock.host.threads.task_offset_reports import TaskOffsetReport, TaskOffsetReports
from penstock.host.threads.topology_push import TOPOLOGY_DESCRIPTION_UPDATE, encode_description
from penstock.plan.broadcast import read_broadcasts
from penstock.plan.subtopology import SubtopologySpec, TaskId
from penstock.record import TopicPartition
from penstock.state.query.metadata import HostInfo
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_log = logging.getLogger(__name__)

STREAMS_GROUP_HEARTBEAT: Final = Api("StreamsGroupHeartbeat", 88, 0, 1)

_JOINING, _LEAVING, _RELEASING = 0, -1, -2
"""Epochs of joining and leaving members, and of static members that leave for now."""

_TOPOLOGY_EPOCH: Final = 0
_HEARTBEAT_MS: Final = 5_000
"""The heartbeat interval until the coordinator sets one; the default of brokers."""

_WITH_TASK_OFFSETS: Final = MappingProxyType({"task_offsets": 1, "task_end_offsets": 1})
"""Brokers before Kafka 4.4 refuse task offsets, although version 0 of the API has the fields."""

_NO_STATIC_MEMBERS: Final = "Static membership is not yet supported"
"""The answer of brokers before Kafka 4.4."""

_TOPOLOGY_REFUSED: Final = (
    ErrorCode.invalid_request,  # Kafka 4.3's answer to a changed topology
    ErrorCode.streams_invalid_topology,
    ErrorCode.streams_invalid_topology_epoch,
    ErrorCode.streams_topology_fenced,
)


class StreamsProtocol:
    """A member of a Kafka Streams group (see `group_protocol.GroupProtocol`).

    Args:
        layout: the tasks of the application.
        config: its configuration.
        process: the id of this process.
        state: known positions of the state of tasks, or None.
    """

    def __init__(
        self, layout: Layout, config: StreamsConfig, process: str, state: ChangelogPositions | None = None
    ) -> None:
        self._group = str(config["application.id"])
        self._layout = layout
        self._rebalance_ms = max_poll_interval_ms(config)
        tags = [{"key": key, "value": value} for key, value in sorted(client_tags(config).items())]
        server = config["application.server"]
        address = None if server is None else HostInfo.build_from_endpoint(server)
        self._about: Message = {
            "rebalance_timeout": self._rebalance_ms,
            "topology": encode_topology(layout),
            "process_id": process,
            "user_endpoint": None if address is None else {"host": address.host, "port": address.port},
            "client_tags": tags,
            "rack_id": client_settings(config, CONSUMER).get("client.rack") or None,
            **_encode_tasks(m.StreamsTasks()),
        }
        self._pushes_topology = bool(config["topology.description.push.enabled"])
        self._endpoints_epoch = -1
        self._reports = TaskOffsetReports(state)
        self.instance = instance_id(config)
        self._statuses: m.Statuses = {}
        timing = Timing(SESSION_MS, _HEARTBEAT_MS)
        self.member = StreamsMember(str(uuid.uuid4()), timing, self._rebalance_ms, self.instance)

    def request(self, command: m.MemberCommand) -> Request | None:
        """Return the request of `command` to the coordinator, or None if it sends no request."""
        match command:
            case m.JoinStreamsGroup(member_id):
                return self._heartbeat(member_id, _JOINING, self._about, self._reports.of_join())
            case m.StreamsHeartbeat(member_id, epoch, owned, shuts_down):
                fields = {**_encode_tasks(owned), "shutdown_application": shuts_down}
                return self._heartbeat(member_id, epoch, fields, self._reports.of_heartbeat(owned, now_ms()))
            case m.DescribeStreamsMember(member_id):
                body = {"group_ids": [self._group]}
                return Request(STREAMS_GROUP_DESCRIBE, body, lambda answer: self._described(answer, member_id))
            case m.PushTopology(member_id):
                return Request(TOPOLOGY_DESCRIPTION_UPDATE, self._description(member_id), _pushed)
            case m.LeaveGroup(member_id):
                return self._leaving(member_id, _LEAVING)
            case m.ReleaseInstance(member_id):
                return self._leaving(member_id, _RELEASING)
            case _:
                return None

    def removal(self, former: str) -> Request | None:
        """Return the request that ends the membership of a killed instance of this process. former: the id of its
        member; a static member gets the tasks of its former one."""
        return self._leaving(former, _RELEASING if self.instance else _LEAVING)

    def refusal(self, code: int, message: str) -> StreamsError | None:
        """Return the error for a refusal specific to this protocol, None for other refusals."""
        if code == ErrorCode.unsupported_version:
            return UnsupportedVersionError(
                "The brokers do not have group.protocol=streams: it needs Kafka 4.2 or later with the feature "
                "streams.version=1 (kafka-features.sh). Upgrade the brokers, or set group.protocol=classic."
            )
        if code == ErrorCode.group_id_not_found:
            return KafkaError(
                f"The group {self._group!r} has members of another protocol, and this one has group.protocol=streams. "
                "Stop them, or set group.protocol=classic; a member that did not leave is in the group until its "
                "session.timeout.ms has passed."
            )
        if self.instance and (error := self._instance_refusal(code, message)) is not None:
            return error
        if code in _TOPOLOGY_REFUSED:
            return TopologyError(
                f"The group {self._group!r} does not accept this instance: {message.rstrip('.')}. A group of "
                "group.protocol=streams keeps its first topology: run the same program in all instances. To change the "
                "program, stop all instances, and start one with group.protocol=classic before the next one with "
                "streams."
            )
        return None

    def _instance_refusal(self, code: int, message: str) -> StreamsError | None:
        """Return the error for the refusal of a static member, None for other refusals."""
        if code == ErrorCode.unreleased_instance_id:
            return KafkaError(
                f"The group {self._group!r} still has a member {self.instance!r}: {message.rstrip('.')}. Another "
                "process runs with the same group.instance.id, or one was killed and its session has not timed out "
                "(streams.session.timeout.ms of the group). Give each instance its own, or start this one later."
            )
        if code == ErrorCode.fenced_instance_id:
            return fenced_instance(self._group, self.instance)
        if code == ErrorCode.invalid_request and _NO_STATIC_MEMBERS in message:
            return ConfigError(
                f"The brokers refuse the static member {self.instance!r} of the group {self._group!r}: "
                "group.instance.id with group.protocol=streams needs Kafka 4.4. Upgrade the brokers, remove "
                "group.instance.id from the configuration, or set group.protocol=classic."
            )
        return None

    def _identity(self, member_id: str, epoch: int) -> Message:
        return {
            "group_id": self._group,
            "instance_id": self.instance or None,
            "member_id": member_id,
            "member_epoch": epoch,
            "endpoint_information_epoch": self._endpoints_epoch,
        }

    def _description(self, member_id: str) -> Message:
        return {
            "group_id": self._group,
            "member_id": member_id,
            "topology_epoch": _TOPOLOGY_EPOCH,
            "topology_description": encode_description(self._layout.topology),
        }

    def _leaving(self, member_id: str, epoch: int) -> Request:
        return Request(STREAMS_GROUP_HEARTBEAT, self._identity(member_id, epoch), lambda _: m.LeaveAnswered())

    def _heartbeat(self, member_id: str, epoch: int, fields: Message, report: TaskOffsetReport) -> Request:
        sent_ms = now_ms()
        body = {**self._identity(member_id, epoch), **fields, **report.encode()}
        take = partial(self._heard, sent_ms=sent_ms, report=report)
        return Request(STREAMS_GROUP_HEARTBEAT, body, take, since=_WITH_TASK_OFFSETS)

    def _heard(self, answer: Message, sent_ms: int, report: TaskOffsetReport) -> m.StreamsHeartbeatAnswered:
        if answer["error_code"] != ErrorCode.none:
            return m.StreamsHeartbeatAnswered(answer["error_code"], sent_ms, message=answer["error_message"] or "")
        if answer["status"] is not None:
            self._take_statuses({one["status_code"]: one["status_detail"] for one in answer["status"]})
        self._reports.answered(
            report, sent_ms, answer["task_offset_interval"], answer.get("acceptable_recovery_lag", -1)
        )
        self._endpoints_epoch = answer["endpoint_information_epoch"]
        endpoints = answer["partitions_by_user_endpoint"]
        return m.StreamsHeartbeatAnswered(
            ErrorCode.none,
            sent_ms,
            answer["member_epoch"],
            answer["heartbeat_interval"],
            None if answer["active_tasks"] is None else self._decode_tasks(answer),
            self._statuses,
            None if endpoints is None else tuple(self._endpoint(one) for one in endpoints),
            wants_topology=self._pushes_topology and answer.get("topology_description_required", False),
        )

    def _take_statuses(self, statuses: m.Statuses) -> None:
        for code in sorted(statuses.keys() - self._statuses.keys()):
            level = logging.INFO if code == ASSIGNMENT_DELAYED else logging.WARNING
            _log.log(level, "The group %s has a status: %s", self._group, statuses[code])
        self._statuses = statuses

    def _described(self, answer: Message, member_id: str) -> m.StreamsMemberDescribed:
        [group] = answer["groups"]
        tasks, has_twin = None, False
        for member in group["members"]:
            if member["member_id"] == member_id:
                tasks = self._decode_tasks(member["assignment"])
            elif member["process_id"] == self._about["process_id"]:
                # A killed earlier run of this process remains a member until its session ends, and stays at its epoch.
                has_twin |= member["member_epoch"] == group["group_epoch"]
        return m.StreamsMemberDescribed(group["error_code"], tasks, has_twin)

    def _decode_tasks(self, answer: Message) -> m.StreamsTasks:
        """Return the tasks of an assignment, without tasks of unknown partitions."""
        return m.StreamsTasks(
            *(self._known(answer[key] or ()) for key in ("active_tasks", "standby_tasks", "warmup_tasks"))
        )

    def _known(self, by_subtopology: Sequence[Message]) -> frozenset[TaskId]:
        given = {TaskId(int(one["subtopology_id"]), n) for one in by_subtopology for n in one["partitions"]}
        if unknown := given - self._layout.groups.keys():
            _log.warning(
                "The group %s assigns tasks of partitions that this instance does not know: %s. It looks for new "
                "partitions every metadata.max.age.ms.",
                self._group,
                ", ".join(map(str, sorted(unknown))),
            )
        return frozenset(given - unknown)

    def _endpoint(self, answer: Message) -> Endpoint:
        address = answer["user_endpoint"]
        return Endpoint(
            f"{address['host']}:{address['port']}",
            self._readers(answer["active_partitions"]),
            self._readers(answer["standby_partitions"]),
        )

    def _readers(self, topics: Sequence[Message]) -> frozenset[TaskId]:
        """Return the tasks that read these partitions."""
        partitions = (TopicPartition(one["topic"], number) for one in topics for number in one["partitions"])
        return frozenset(self._layout.readers[each] for each in partitions if each in self._layout.readers)


def _pushed(answer: Message) -> m.TopologyPushed:
    return m.TopologyPushed(answer["error_code"], answer["error_message"] or "")


def encode_topology(layout: Layout) -> Message:
    """Return the topology of an application for StreamsGroupHeartbeat."""
    topics = {topic.name: topic for topic in internal_topics(layout)}
    subtopologies = [_subtopology(spec, layout, topics) for spec in layout.topology.subtopologies]
    return {"epoch": _TOPOLOGY_EPOCH, "subtopologies": sorted(subtopologies, key=lambda one: one["subtopology_id"])}


def _subtopology(spec: SubtopologySpec, layout: Layout, topics: Mapping[str, NewTopic]) -> Message:
    made = layout.topology.repartition_topics
    fixed = {name: each.partitions or 0 for name, each in made.items()}
    # the coordinator would take the number of partitions of a broadcast from the topics upstream
    fixed.update((name, topics[name].partitions) for name in read_broadcasts(spec.nodes))
    sources = sorted(topic for topic in spec.source_topics if topic not in made)
    repartition_sources = sorted(topic for topic in spec.source_topics if topic in made)
    changelogs = sorted({topic for topic, _ in spec.changelogs.values() if topic not in spec.source_topics})
    groups = [group for group in layout.topology.copartition_groups if group <= set(spec.source_topics)]
    return {
        "subtopology_id": str(spec.id),
        "source_topics": sources,
        "source_topic_regex": [],
        "state_changelog_topics": [_topic(topics[name], 0) for name in changelogs],
        "repartition_sink_topics": sorted(set(spec.sink_topics) & made.keys()),
        "repartition_source_topics": [_topic(topics[name], fixed[name]) for name in repartition_sources],
        "copartition_groups": [
            {
                "source_topics": [number for number, topic in enumerate(sources) if topic in group],
                "source_topic_regex": [],
                "repartition_source_topics": [
                    number for number, topic in enumerate(repartition_sources) if topic in group
                ],
            }
            for group in sorted(groups, key=sorted)
        ],
    }


def _topic(topic: NewTopic, partitions: int) -> Message:
    """Return an internal topic. partitions: 0 if the topology determines them."""
    configs = [{"key": key, "value": value} for key, value in sorted(topic.config.items())]
    return {
        "name": topic.name,
        "partitions": partitions,
        "replication_factor": max(0, topic.replication_factor),
        "topic_configs": configs,
    }


def _encode_tasks(tasks: m.StreamsTasks) -> Message:
    return {
        "active_tasks": _by_subtopology(tasks.active),
        "standby_tasks": _by_subtopology(tasks.standby),
        "warmup_tasks": _by_subtopology(tasks.warm_up),
    }


def _by_subtopology(tasks: Iterable[TaskId]) -> list[Message]:
    partitions: dict[int, list[int]] = {}
    for task in sorted(tasks):
        partitions.setdefault(task.subtopology, []).append(task.partition)
    return [{"subtopology_id": str(id), "partitions": numbers} for id, numbers in partitions.items()]
