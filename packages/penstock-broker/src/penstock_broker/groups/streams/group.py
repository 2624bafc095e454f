"""A streams group: its topology, the tasks of its members, and its internal topics.

Not here: the target assignment (target.py), and what consumer groups and streams groups have in common (modern).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from penstock_broker.errors import ApiError
from penstock_broker.groups.context import GroupContext
from penstock_broker.groups.modern.group import ModernGroup
from penstock_broker.groups.schemas import GroupRecord
from penstock_broker.groups.streams.assignor import ASSIGNOR
from penstock_broker.groups.streams.description import describe_member, describe_topology, partitions_by_endpoint
from penstock_broker.groups.streams.heartbeat import StreamsHeartbeatRequest
from penstock_broker.groups.streams.member import StreamsGroupMember
from penstock_broker.groups.streams.records import StreamsGroupRecords
from penstock_broker.groups.streams.state import NEXT_STATES, StreamsGroupState, state_of
from penstock_broker.groups.streams.target import NOT_READY, StreamsTargetAssignment
from penstock_broker.groups.streams.task_offsets import MemberTaskOffsets
from penstock_broker.groups.streams.tasks import as_messages
from penstock_broker.groups.streams.topology import (
    ConfiguredTopology,
    GroupStatus,
    StreamsTopology,
    configured,
    size_of,
)
from penstock_broker.topics import check_replication_factor
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

TASK_OFFSET_INTERVAL_MS: Final = 60_000
"""Interval (ms) at which members report offsets of tasks, as in Kafka."""
ACCEPTABLE_RECOVERY_LAG: Final = 10_000
"""Records that a task may lag behind to take part in warm-ups, as in Kafka; there are no warm-ups."""

_log = logging.getLogger(__name__)


class StreamsGroup(ModernGroup[StreamsGroupMember, StreamsTargetAssignment, StreamsHeartbeatRequest]):
    """A streams group.

    Args:
        group_id: its name.
        context: its environment.
    """

    group_type = "streams"

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self._streams_records = StreamsGroupRecords(group_id)
        session_timeout_ms = context.config.group_streams_session_timeout_ms
        super().__init__(group_id, context, session_timeout_ms, self._streams_records, StreamsTargetAssignment())
        self._topology: StreamsTopology | None = None
        self._configured: ConfiguredTopology | None = None
        self._state = StreamsGroupState.EMPTY
        self._topology_description: Message | None = None
        self._endpoints_epoch = 0
        self._shutdown_by: str | None = None
        self._is_delayed = False
        self._delay_key = ("initial rebalance", group_id)

    def load(self, records: Iterable[GroupRecord]) -> None:
        """Load the group from its records, and start the sessions of its members.

        Args:
            records: the last record of each key.
        """
        stored = list(records)
        target, members = self._records.read(stored, self._new_target)
        self._topology = self._streams_records.read_topology(stored)
        self._load(target, members)
        self._state = state_of(members, target)

    @property
    def protocol_type(self) -> str:
        """Purpose of the group."""
        return "streams"

    @property
    def state(self) -> StreamsGroupState:
        """State of the group, after its last change."""
        return self._state

    def _update_state(self) -> None:
        state = state_of(self.members.values(), self._target)
        assert state in (self._state, *NEXT_STATES[self._state]), f"a group that is {self._state} cannot become {state}"
        self._state = state
        if self.is_empty:
            self._shutdown_by = None

    # Heartbeats

    def heartbeat(self, request: StreamsHeartbeatRequest) -> Message:
        """Handle StreamsGroupHeartbeat and return the response.

        Raises:
            ApiError: INVALID_REQUEST for another topology or for tasks that do not exist, STREAMS_INVALID_TOPOLOGY, and
                the errors of ModernGroup.heartbeat.
        """
        if request.member_epoch < 0:
            response = super().heartbeat(request)
            if request.shuts_down:
                self._shut_down(request.member_id)
            return response | {"status": []}
        topology = self._checked_topology(request)
        if self._configured is None or self._seen_topics != self._context.topics.revision:
            self._configured = configured(topology, self._topics())
        self._check_tasks(request, self._configured)
        response = super().heartbeat(request)
        self._topology = topology
        return response

    def _checked_topology(self, request: StreamsHeartbeatRequest) -> StreamsTopology:
        """Return the topology of the group, which its first member brings.

        Raises:
            ApiError: INVALID_REQUEST for another topology, or UNKNOWN_MEMBER_ID for a group without a topology.
        """
        given = request.topology
        if self._topology is None:
            if given is None:
                raise ApiError(ErrorCode.unknown_member_id, f"the group has no member {request.member_id}")
            return given
        if given is not None and given.epoch >= self._topology.epoch and given != self._topology:
            raise ApiError(ErrorCode.invalid_request, "Topology updates are not supported yet.")
        return self._topology

    def _topics(self) -> dict[str, tuple[uuid.UUID, int]]:
        return {topic.name: (topic.topic_id, len(topic.partitions)) for topic in self._context.topics.all()}

    def _check_tasks(self, request: StreamsHeartbeatRequest, topology: ConfiguredTopology) -> None:
        if topology.problem is not None:
            return
        for subtopology_id, number in request.owned or ():
            if not topology.has_task(subtopology_id, number):
                text = f"The topology has no task {number} of subtopology {subtopology_id}."
                raise ApiError(ErrorCode.invalid_request, text)

    def _added_records(self, request: StreamsHeartbeatRequest) -> list[GroupRecord]:
        if self._topology is not None or request.topology is None:
            return []
        return [self._streams_records.topology(request.topology)]

    def _check_size(self, member: StreamsGroupMember) -> None:
        assert self._configured is not None  # heartbeat has configured it
        tags = {
            **{each.member_id: each.client_tags for each in self.members.values()},
            member.member_id: member.client_tags,
        }
        if self._configured.topology.size + size_of(list(tags.values())) > self._context.config.group_max_bytes:
            text = "the topology and the client tags are larger than group_max_bytes"
            raise ApiError(ErrorCode.group_max_size_reached, text)

    def _new_member(self, member_id: str) -> StreamsGroupMember:
        return StreamsGroupMember(member_id)

    def _updated(self, member: StreamsGroupMember, request: StreamsHeartbeatRequest) -> StreamsGroupMember:
        assert self._configured is not None  # heartbeat has configured it
        updated = member.updated(request, self._configured.topology.subtopologies)
        if not request.offsets.has_changes:
            return updated
        others = (each for each in self.members.values() if each.member_id != member.member_id)
        size = sum(each.offsets.memory_bytes for each in (updated, *others))
        if size <= self._context.config.group_max_bytes:
            return updated
        _log.warning(
            "group %s: the task offsets of member %s have no room in group_max_bytes, so other members may get tasks "
            "whose state it has",
            self.group_id,
            member.member_id,
        )
        return replace(updated, offsets=MemberTaskOffsets())

    def _next_target(
        self,
        target: StreamsTargetAssignment,
        before: StreamsGroupMember,
        member: StreamsGroupMember,
        replaced: StreamsGroupMember | None,
    ) -> StreamsTargetAssignment:
        topology = self._configured
        assert topology is not None  # heartbeat has configured it
        # A static member that comes back as it was keeps its tasks without a new epoch.
        is_same = member == before if member.instance_id is None else member.has_process_of(before)
        ready_epoch = topology.topology.epoch if topology.problem is None else NOT_READY
        if not is_same or (topology.metadata_hash, ready_epoch) != (target.metadata_hash, target.topology_epoch):
            target = target.next_epoch(topology.metadata_hash, ready_epoch)
        if self.is_empty:
            self._delay_assignment()
        if not target.is_outdated or self._is_delayed:
            return target
        return target.assigned(self.members.after(member, replaced), topology)

    def _delay_assignment(self) -> None:
        delay_ms = self._context.config.group_streams_initial_rebalance_delay_ms
        if delay_ms > 0 and not self._is_delayed:
            self._is_delayed = True
            self._context.timers.schedule(self._delay_key, delay_ms, self._end_delay)

    def _end_delay(self) -> None:
        self._is_delayed = False

    def _response(
        self, request: StreamsHeartbeatRequest, before: StreamsGroupMember, member: StreamsGroupMember
    ) -> Message:
        assert self._configured is not None  # heartbeat has configured it
        if request.shuts_down:
            self._shut_down(member.member_id)
        has_moved = member.assigned != before.assigned
        response: Message = {
            "error_code": ErrorCode.none,
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval": self._context.config.group_streams_heartbeat_interval_ms,
            "task_offset_interval": TASK_OFFSET_INTERVAL_MS,
            "acceptable_recovery_lag": ACCEPTABLE_RECOVERY_LAG,
            "status": self._statuses(member, self._configured),
            "topology_description_required": self._topology_description is None,
        }
        if request.member_epoch == 0 or has_moved:
            response |= {"active_tasks": as_messages(member.assigned), "standby_tasks": [], "warmup_tasks": []}
        if member.endpoint != before.endpoint or (has_moved and member.endpoint is not None):
            self._endpoints_epoch += 1
        response["endpoint_information_epoch"] = self._endpoints_epoch
        if request.endpoints_epoch != self._endpoints_epoch:
            partitions = {name: count for name, (_, count) in self._topics().items()}
            response["partitions_by_user_endpoint"] = partitions_by_endpoint(
                self.members.values(), self._configured.topology, partitions
            )
        return response

    def _statuses(self, member: StreamsGroupMember, topology: ConfiguredTopology) -> list[Message]:
        found: list[tuple[GroupStatus, str]] = []
        epoch = topology.topology.epoch
        if member.topology_epoch < epoch:
            text = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {epoch}."
            found.append((GroupStatus.STALE_TOPOLOGY, text))
        if self._is_delayed:
            text = "Assignment delayed due to the configured initial rebalance delay."
            found.append((GroupStatus.ASSIGNMENT_DELAYED, text))
        if topology.problem is not None:
            text = "".join((topology.problem.detail, *self._create_topics(topology)))
            found.append((topology.problem.status, text))
        if self._shutdown_by is not None:
            text = (
                f"Streams group member {self._shutdown_by} encountered a fatal error and requested a shutdown for the "
                "entire application."
            )
            found.append((GroupStatus.SHUTDOWN_APPLICATION, text))
        return [{"status_code": status, "status_detail": detail} for status, detail in found]

    def _create_topics(self, topology: ConfiguredTopology) -> Iterator[str]:
        """Create the missing internal topics, which the next heartbeat finds; yield the failures."""
        for topic in topology.missing:
            name = topic["name"]
            try:
                check_replication_factor(topic["replication_factor"] or -1)
                configs = {each["key"]: each["value"] for each in topic["topic_configs"]}
                self._context.topics.create(name, topology.partitions[name], configs)
            except ApiError as error:
                _log.warning("group %s: internal topic %s cannot be created: %s", self.group_id, name, error)
                yield f"; creation of {name} failed: {error}"

    def _shut_down(self, member_id: str) -> None:
        if self._shutdown_by is None and not self.is_empty:
            _log.info("group %s: member %s requests the end of the application", self.group_id, member_id)
            self._shutdown_by = member_id

    # The end of a member

    def _target_without(self, member_id: str) -> StreamsTargetAssignment:
        target = self._target.without(member_id)
        target = target.next_epoch(target.metadata_hash, target.topology_epoch)
        is_last = self.members.keys() == {member_id}
        return replace(target, assignment_epoch=target.epoch) if is_last else target

    def close(self) -> None:
        """Cancel timers, because the group is deleted."""
        super().close()
        self._context.timers.cancel(self._delay_key)

    # Offsets

    def _assigned_since(self, member: StreamsGroupMember, topic: str, number: int) -> int | None:
        reader = None if self._topology is None else self._topology.readers.get(topic)
        return None if reader is None else member.since.get((reader, number))

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members read a topic."""
        return not self.is_empty and self._topology is not None and topic in self._topology.readers

    # Description

    def update_topology_description(self, member_id: str, topology_epoch: int, description: Message) -> None:
        """Keep the description of the topology, which a member sends because a heartbeat asked for it (KIP-1331).

        It is only in memory: a restarted broker asks for it again.

        Args:
            member_id: the member.
            topology_epoch: the epoch of the described topology.
            description: the description, for tools.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, INVALID_REQUEST for another epoch, or GROUP_MAX_SIZE_REACHED.
        """
        self.members.identified(member_id, None)
        if size_of(description) > self._context.config.group_max_bytes:
            text = "the description of the topology is larger than group_max_bytes"
            raise ApiError(ErrorCode.group_max_size_reached, text)
        epoch = None if self._topology is None else self._topology.epoch
        if topology_epoch != epoch:
            text = f"Topology epoch {topology_epoch} does not match the group's current topology epoch {epoch}."
            raise ApiError(ErrorCode.invalid_request, text)
        self._topology_description = description

    def description(self) -> Message:
        """Return the group in the form of StreamsGroupDescribe."""
        partitions = {} if self._configured is None else self._configured.partitions
        return {
            "group_id": self.group_id,
            "group_state": str(self.state),
            "group_epoch": self._target.epoch,
            "assignment_epoch": self._target.assignment_epoch,
            "topology": None if self._topology is None else describe_topology(self._topology, partitions),
            "members": [describe_member(member, self._target.of(member.member_id)) for member in self.members.values()],
            "assignor_name": ASSIGNOR,
            "topology_description": self._topology_description,
        }
