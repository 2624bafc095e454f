"""The messages of the member of a group (`member`): the events that it processes and the commands that it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import vocabulary as v
from penstock.host.threads.subscription import Endpoint
from penstock.plan.subtopology import TaskId

NO_GENERATION: Final = -1


class StreamsTasks(NamedTuple):
    """The tasks of a member of the streams protocol. active: tasks to run. standby: tasks with a copy here. warm_up:
    tasks being copied here, to run later."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    warm_up: frozenset[TaskId] = frozenset()


Statuses = Mapping[int, str]
"""The problems that stop a group of the streams protocol: texts by code."""


# ---------------------------------------- events


@dataclass(frozen=True)
class Begin:
    """The start of the membership: the member should join."""


@dataclass(frozen=True)
class JoinAnswered:
    """The answer to JoinGroup. members: for the leader, the subscriptions of all members. ends: for the leader, the sum
    of the changelog ends of each task; None if unknown."""

    code: int
    member_id: str = ""
    generation: int = NO_GENERATION
    leader: str = ""
    members: Mapping[str, bytes | memoryview] | None = None
    ends: Mapping[TaskId, int] | None = None


@dataclass(frozen=True)
class SyncAnswered:
    """The answer to SyncGroup."""

    code: int
    assignment: bytes | memoryview = b""


@dataclass(frozen=True)
class HeartbeatAnswered:
    """The answer to Heartbeat, which was sent at `sent_ms`."""

    code: int
    sent_ms: int = 0


@dataclass(frozen=True)
class StreamsHeartbeatAnswered:
    """The answer to StreamsGroupHeartbeat, which was sent at `sent_ms`.

    epoch: the member epoch. heartbeat_ms: until the next heartbeat. tasks: the assignment, None if unchanged. statuses:
    of the group, by code. endpoints: None if unchanged. message: of an error. wants_topology: whether the coordinator
    asks for the description of the topology.
    """

    code: int
    sent_ms: int = 0
    epoch: int = NO_GENERATION
    heartbeat_ms: int = 0
    tasks: StreamsTasks | None = None
    statuses: Statuses | None = None
    endpoints: tuple[Endpoint, ...] | None = None
    message: str = ""
    wants_topology: bool = False


@dataclass(frozen=True)
class StreamsMemberDescribed:
    """The answer to StreamsGroupDescribe. tasks: the assignment of this member, None if the group does not have the
    member. has_twin: whether another member at the epoch of the group has its process id."""

    code: int
    tasks: StreamsTasks | None = None
    has_twin: bool = False


@dataclass(frozen=True)
class TopologyPushed:
    """The answer to StreamsGroupTopologyDescriptionUpdate. message: of an error."""

    code: int
    message: str = ""


@dataclass(frozen=True)
class LeaveAnswered:
    """The answer to LeaveGroup, or its absence."""


@dataclass(frozen=True)
class Disconnected:
    """The coordinator cannot be reached; an outstanding request has no answer."""


@dataclass(frozen=True)
class Unusable:
    """The coordinator cannot be asked, for a permanent reason."""

    error: Exception


@dataclass(frozen=True)
class CommitRefused:
    """The coordinator refused a commit of this member in this generation."""

    code: int
    member_id: str
    generation: int


@dataclass(frozen=True)
class ProducerFenced:
    """Another producer has fenced the producer of this instance."""


@dataclass(frozen=True)
class TasksRevoked:
    """These tasks are closed here. assignments: the number that the core had received when it closed them."""

    tasks: frozenset[TaskId]
    assignments: int


@dataclass(frozen=True)
class Stalled:
    """The instance has made no progress for longer than max.poll.interval.ms."""

    error: Exception


@dataclass(frozen=True)
class ShutDownRequested:
    """All members should learn of the end of the application."""


@dataclass(frozen=True)
class LeaveRequested:
    """The membership should end. operation: whether the group learns of it at once."""

    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


MemberEvent = (
    Begin
    | JoinAnswered
    | SyncAnswered
    | HeartbeatAnswered
    | StreamsHeartbeatAnswered
    | StreamsMemberDescribed
    | TopologyPushed
    | LeaveAnswered
    | Disconnected
    | Unusable
    | CommitRefused
    | ProducerFenced
    | TasksRevoked
    | Stalled
    | ShutDownRequested
    | LeaveRequested
    | Tick
)


# ---------------------------------------- commands


@dataclass(frozen=True)
class Join:
    """Send JoinGroup. owned: the tasks of the member, from `generation`. shuts_down: whether all members should end."""

    member_id: str
    generation: int
    owned: frozenset[TaskId]
    shuts_down: bool = False


@dataclass(frozen=True)
class Sync:
    """Send SyncGroup. assignments: from the leader, for all members."""

    member_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True)
class Heartbeat:
    """Send Heartbeat."""

    member_id: str
    generation: int


@dataclass(frozen=True)
class JoinStreamsGroup:
    """Send StreamsGroupHeartbeat to join, with the topology."""

    member_id: str


@dataclass(frozen=True)
class StreamsHeartbeat:
    """Send StreamsGroupHeartbeat. owned: the tasks of the member. shuts_down: whether all members should end."""

    member_id: str
    epoch: int
    owned: StreamsTasks
    shuts_down: bool = False


@dataclass(frozen=True)
class DescribeStreamsMember:
    """Send StreamsGroupDescribe, to learn the assignment of this member."""

    member_id: str


@dataclass(frozen=True)
class PushTopology:
    """Send StreamsGroupTopologyDescriptionUpdate, with the description of the topology."""

    member_id: str


@dataclass(frozen=True)
class LeaveGroup:
    """Inform the coordinator that the member leaves."""

    member_id: str


@dataclass(frozen=True)
class ReleaseInstance:
    """Inform the coordinator that a static member leaves for now: its tasks wait for the next member with its instance
    id until the session times out."""

    member_id: str


@dataclass(frozen=True)
class AskAgain:
    """Repeat the last request over a new connection, because its answer may be lost."""


@dataclass(frozen=True)
class FindAgain:
    """Look for the coordinator again before the next request."""


@dataclass(frozen=True)
class Refused:
    """Report to the core that the group refuses this member permanently (`MembershipRefused`). message: from the
    coordinator."""

    code: int
    message: str = ""


MemberCommand = (
    Join
    | Sync
    | Heartbeat
    | JoinStreamsGroup
    | StreamsHeartbeat
    | DescribeStreamsMember
    | PushTopology
    | LeaveGroup
    | ReleaseInstance
    | AskAgain
    | FindAgain
    | Refused
    | v.Assigned
    | v.MembershipLost
    | v.MembershipRefused
    | v.ApplicationShutDown
    | v.SessionTimedOut
    | v.Reconnected
)
