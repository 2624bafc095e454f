"""The member of a Kafka Streams group (KIP-1071), as a state machine.

`member` has the code shared with members of the classic protocol. The coordinator assigns the tasks, and one request
does everything: a heartbeat reports the tasks of the member, and its answer has the assignment. The states (the tests
have a line for each event):

    UNJOINED  could not reach the coordinator to join; joins after a pause.
    JOINING   has sent its topology, and waits for the answer.
    STABLE    sends heartbeats. When its assignment changes, it gives up the lost tasks, and acknowledges the assignment
              once they are closed: only then does the coordinator give these tasks to others.
    FENCED    the group continues without it: no commit. Joins again when all tasks are closed.
    LEAVING   waits for the answer to its last heartbeat.
    LEFT      has left.

Rules:
- A member joins without tasks, because the coordinator gives its former tasks to others.
- The coordinator sends an assignment once. After a lost answer, the member requests its assignment with
  StreamsGroupDescribe. It does so after an answered heartbeat, because the description has only durably written data.
- A static member (`group.instance.id`) releases its instance id when it is closed. The next member with this id gets
  its tasks within the session timeout. While a member owns the id, the coordinator refuses another one
  (UNRELEASED_INSTANCE_ID), so a member that joins again first releases its own.
- The epoch of the member is the generation of its commits. It may change while the tasks stay: if a commit is refused
  because of it, a heartbeat returns the current one.
- The coordinator may ask for the description of the topology (KIP-1331), which tools show. It asks until it has one.
- The coordinator sets the session timeout but does not send it: see `SESSION_MS`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from penstock.client.sockets.connection import error_name
from penstock.errors import MissingSourceTopicError, StreamsError, TopologyError
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.member import AbstractMember, Timing, shut_down_error
from penstock.host.threads.member_messages import StreamsTasks
from penstock.host.threads.member_states import STREAMS_TRANSITIONS, MemberState
from penstock_broker.wire.error_codes import ErrorCode

_log = logging.getLogger(__name__)

SESSION_MS: Final = 45_000
"""Processing stops after that time without an answer: the brokers' default group.streams.session.timeout.ms."""

STALE_TOPOLOGY: Final = 0
MISSING_SOURCE_TOPICS: Final = 1
INCORRECTLY_PARTITIONED_TOPICS: Final = 2
MISSING_INTERNAL_TOPICS: Final = 3
SHUTDOWN_APPLICATION: Final = 4
ASSIGNMENT_DELAYED: Final = 5

_NOT_READY: Final = frozenset((MISSING_SOURCE_TOPICS, MISSING_INTERNAL_TOPICS, ASSIGNMENT_DELAYED))
"""While the group has one of these statuses, the coordinator assigns no tasks yet."""


class StreamsMember(AbstractMember):
    """A member of a Kafka Streams group; see the module.

    Args:
        member_id: its unique id.
        timing: its waiting times; the coordinator sets the time between heartbeats.
        max_poll_interval_ms: longest absence of source topics (max.poll.interval.ms).
        instance: the name of a static member, empty for a dynamic member.
    """

    def __init__(self, member_id: str, timing: Timing, max_poll_interval_ms: int, instance: str = "") -> None:
        super().__init__(STREAMS_TRANSITIONS, timing, instance, member_id)
        self._max_poll_interval_ms = max_poll_interval_ms
        self._tasks = StreamsTasks()
        self._is_reported = False
        self._must_acknowledge = False
        self._must_describe = False
        self._must_look = False
        """Whether to check for another member with the process id of this one."""
        self._must_ask = False
        """Whether to ask for the epoch after the answer to the request in flight, unless that is a heartbeat."""
        self._missing_since: int | None = None
        self._is_told = False
        """Whether a heartbeat has requested the end of the application for this member."""
        self._is_ending = False
        self._has_instance = False
        """Whether the group may know this member as the owner of its instance id."""

    def _join(self, now: int) -> list[m.MemberCommand]:
        self._state.change(MemberState.JOINING)
        self._out, self._next_ms = True, None
        self._tasks, self._is_reported = StreamsTasks(), False
        self._must_acknowledge = self._must_describe = self._must_look = False
        self._missing_since = None
        if self._has_instance:
            return [m.ReleaseInstance(self.member_id)]
        return [self._enter()]

    def _enter(self) -> m.MemberCommand:
        self._has_instance = bool(self._instance)
        return m.JoinStreamsGroup(self.member_id)

    def _farewell(self, operation: GroupMembershipOperation) -> m.MemberCommand | None:
        farewell = super()._farewell(operation)
        return m.ReleaseInstance(self.member_id) if farewell is None and self._has_instance else farewell

    def _heartbeat(self) -> m.MemberCommand:
        owned = StreamsTasks(self._held, self._tasks.standby, self._tasks.warm_up)
        self._is_told = self._shuts_down
        return m.StreamsHeartbeat(self.member_id, self.generation, owned, self._shuts_down)

    def _answered(self, event: m.MemberEvent, now: int) -> list[m.MemberCommand]:
        match event:
            case m.StreamsHeartbeatAnswered() if self.state in (MemberState.JOINING, MemberState.STABLE):
                self._out = False
                return self._heard(event, now)
            case m.LeaveAnswered() if self.state is MemberState.JOINING and self._has_instance:
                return [self._enter()]
            case m.StreamsMemberDescribed() if self.state is MemberState.STABLE:
                self._out = False
                return [*self._described(event, now), *self._ask_now(now)]
            case m.TopologyPushed() if self.state is MemberState.STABLE:
                self._out = False
                return [*self._pushed(event, now), *self._ask_now(now)]
            case m.ProducerFenced():
                self._must_look = True
                return []
            case _:
                return []

    def _heard(self, answer: m.StreamsHeartbeatAnswered, now: int) -> list[m.MemberCommand]:
        self._must_ask = False
        if answer.code != ErrorCode.none:
            return self._refused(answer.code, now, answer.message)
        statuses = answer.statuses or {}
        if (error := self._blocker(statuses, now)) is not None:
            return self._fail(error, now)
        commands = self._heard_of_coordinator(answer.sent_ms)
        self._state.change(MemberState.STABLE)
        self.generation = answer.epoch
        self._timing = replace(self._timing, heartbeat_ms=answer.heartbeat_ms or self._timing.heartbeat_ms)
        self._next_ms = now + self._timing.heartbeat_ms
        if answer.endpoints is not None:
            self.endpoints = answer.endpoints
        if SHUTDOWN_APPLICATION in statuses or self._is_told:
            return [*commands, *self._told_to_end(statuses)]
        if answer.tasks is not None:
            self._take(answer.tasks)
        elif self._must_describe or self._must_look:
            self._out = True
            return [*commands, m.DescribeStreamsMember(self.member_id)]
        is_ready = _NOT_READY.isdisjoint(statuses)
        commands += [*self._reported(is_ready), *self._freed(now)]
        return [*commands, self._push()] if answer.wants_topology and not self._out else commands

    def _push(self) -> m.MemberCommand:
        """Send the description of the topology; if something else is in flight, the next answer asks again."""
        self._out = True
        return m.PushTopology(self.member_id)

    def _pushed(self, answer: m.TopologyPushed, now: int) -> list[m.MemberCommand]:
        """Continue after a push. The coordinator asks again for a description that it could not store."""
        if answer.code == ErrorCode.unknown_member_id:
            return self._refused(answer.code, now, answer.message)
        if answer.code != ErrorCode.none:
            _log.warning(
                "The coordinator did not store the description of the topology: %s (%s).",
                answer.message.rstrip(".") or "no reason given",
                error_name(answer.code),
            )
        return self._freed(now)

    def _blocker(self, statuses: m.Statuses, now: int) -> StreamsError | None:
        """Return the error of a group that cannot continue, or None if it may."""
        if INCORRECTLY_PARTITIONED_TOPICS in statuses:
            return TopologyError(
                f"The group assigns no tasks: {statuses[INCORRECTLY_PARTITIONED_TOPICS].rstrip('.')}. Give these "
                "topics the numbers of partitions that the topology needs."
            )
        if MISSING_SOURCE_TOPICS not in statuses:
            self._missing_since = None
            return None
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since < self._max_poll_interval_ms:
            return None
        return MissingSourceTopicError(
            f"The group has assigned no tasks for {self._max_poll_interval_ms} ms (max.poll.interval.ms): "
            f"{statuses[MISSING_SOURCE_TOPICS].rstrip('.')}. Create these topics."
        )

    def _shut_down(self, now: int) -> list[m.MemberCommand]:
        """Send a heartbeat with the shutdown request, after the answer to one in flight."""
        self._shuts_down, self._must_acknowledge, self._pending = True, True, frozenset()
        return self._freed(now)

    def _told_to_end(self, statuses: m.Statuses) -> list[m.MemberCommand]:
        """Return the event that commits and closes the current tasks, once."""
        if self._is_told:
            self._is_told = False
            return [v.ApplicationShutDown(None)]
        if self._is_ending:
            return []
        self._is_ending = True
        return [v.ApplicationShutDown(shut_down_error(statuses[SHUTDOWN_APPLICATION].rstrip(".")))]

    def _take(self, tasks: StreamsTasks) -> None:
        self._must_describe, self._must_acknowledge = False, True
        if tasks == self._tasks:
            return
        self._tasks, self._is_reported = tasks, False
        self._pending = self._held - tasks.active
        self._held |= tasks.active

    def _reported(self, is_ready: bool) -> list[m.MemberCommand]:
        """Report the assignment to the core, unless it is empty and tasks will follow soon."""
        if self._is_reported or not (is_ready or self._held):
            return []
        self._is_reported = True
        return [self._assigned(self._tasks.active, self._tasks.standby | self._tasks.warm_up)]

    def _described(self, answer: m.StreamsMemberDescribed, now: int) -> list[m.MemberCommand]:
        if answer.code != ErrorCode.none:
            return self._refused(answer.code, now)
        self.has_twin, self._must_look = answer.has_twin, False
        if answer.tasks is None or not self._must_describe:
            return []  # if the group lacks the member, the next heartbeat returns the reason
        self._take(answer.tasks)
        return [*self._reported(is_ready=True), *self._freed(now)]

    def _freed(self, now: int) -> list[m.MemberCommand]:
        """Acknowledge the assignment once the tasks that others wait for are closed."""
        is_free = self.state is MemberState.STABLE and self._must_acknowledge and not self._pending and not self._out
        if not is_free:
            return []
        self._must_acknowledge = False
        return self._ask_generation(now)

    def _doubts(self) -> bool:
        return self._out or self._doubted != self.generation

    def _ask_generation(self, now: int) -> list[m.MemberCommand]:
        """Send a heartbeat to get the epoch from its answer, unless one is in flight."""
        self._must_ask = self._out
        if self._out or self.state is not MemberState.STABLE:
            return []
        self._out, self._next_ms = True, now + self._timing.heartbeat_ms
        return [self._heartbeat()]

    def _ask_now(self, now: int) -> list[m.MemberCommand]:
        """Ask for the epoch if a commit was refused while another request than a heartbeat was in flight."""
        return self._ask_generation(now) if self._must_ask else []

    def _refused(self, code: int, now: int, message: str = "") -> list[m.MemberCommand]:
        if code == ErrorCode.group_id_not_found and self.state is MemberState.STABLE:
            return self._lose("the group was deleted", now)
        if code in (ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id):
            self._has_instance = False  # it belongs to another member
        return super()._refused(code, now, message)

    def _disconnected(self, now: int) -> list[m.MemberCommand]:
        self._must_describe |= self._out and self.state is MemberState.STABLE
        return super()._disconnected(now)
