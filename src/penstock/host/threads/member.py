"""The member of a group as a state machine (`member_states`): the common parts of both protocols.

`classic_member` implements the classic protocol, `streams_member` the streams protocol. No I/O, no clock, no threads:
`handle` takes an event and returns requests and reports; `due_ms` returns the due time of the next `Tick`.

Rules:
- A task that the core gives up and a new assignment may cross. If the core closes a task before it learns that the task
  is assigned again, the task stays with the member: otherwise a later join would leave it to another member while it
  runs here.
- A member that has not heard from the coordinator for a session pauses its tasks; they are lost only if the coordinator
  says so. After an outage of all brokers they continue, and nothing is processed twice.
- A refused commit ends the membership, whichever request carried the commit. If only the generation is refused, and the
  answer with the next one may be on its way or lost, the member asks for it. If the generation is refused again, the
  tasks pause until the answer comes.
- A lost member joins again only after its tasks are closed: a commit of the old membership must not reach the new one,
  because the group would accept it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from penstock.errors import StreamsError, TaskMigratedError
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.member_states import MemberState, MemberTransitions
from penstock.host.threads.state_machine import StateMachine
from penstock.host.threads.subscription import Endpoint
from penstock.plan.subtopology import TaskId
from penstock_broker.wire.error_codes import ErrorCode

_ELSEWHERE: Final = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    )
)
_OUT: Final = frozenset(
    (
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_member_epoch,
        ErrorCode.stale_member_epoch,
    )
)
_OLD_GENERATION: Final = frozenset((ErrorCode.illegal_generation, ErrorCode.stale_member_epoch))
_GONE: Final = (MemberState.LEAVING, MemberState.LEFT)
_ASKS_IN_A_SESSION: Final = 3


@dataclass(frozen=True)
class Timing:
    """The timeouts and intervals of a member.

    Args:
        session_ms: session.timeout.ms.
        heartbeat_ms: heartbeat.interval.ms.
        retry_ms: the pause after a lost connection.
        refused_ms: the pause after a permanent refusal.
        probing_ms: probing.rebalance.interval.ms.
    """

    session_ms: int
    heartbeat_ms: int
    retry_ms: int = 100
    refused_ms: int = 1_000
    probing_ms: int = 600_000

    @property
    def again_ms(self) -> int:
        """The time (ms) after which an unanswered request is repeated: several times per session."""
        return self.session_ms // _ASKS_IN_A_SESSION


class AbstractMember(ABC):
    """The common parts of members of both protocols; see the module.

    Args:
        transitions: those of the protocol.
        timing: timeouts and intervals.
        instance: the name of a static member, empty for a dynamic member.
        member_id: the id of a new member, empty if the coordinator assigns one.
    """

    def __init__(self, transitions: MemberTransitions, timing: Timing, instance: str = "", member_id: str = "") -> None:
        self._state = StateMachine(MemberState.UNJOINED, transitions)
        self._timing = timing
        self._instance = instance
        self._first_id = member_id
        self._held: frozenset[TaskId] = frozenset()
        self._pending: frozenset[TaskId] = frozenset()
        self._assignments = 0
        self._assigned_in: dict[TaskId, int] = {}
        """The number of the latest assignment with each task."""
        self._out = False
        self._shuts_down = False
        """Whether all members should end, at the request of this member or another one."""
        self._session_until = 0
        self._is_cut_off = False
        self._next_ms: int | None = None
        self._doubted: int | None = None
        """The generation of a refused commit, while the next generation may be on its way."""
        self.member_id = member_id
        self.generation = m.NO_GENERATION
        self.losses = 0
        """The number of times it was lost, refused or left. Earlier commits do not belong to a later membership."""
        self.endpoints: tuple[Endpoint, ...] = ()
        """The endpoints for queries of all members' state, as of the last assignment."""
        self.has_twin = False
        """Whether another member has the process id of this one, as last reported."""
        self.remains = False
        """Whether the group may have the member until its session times out, although it has ended here."""

    @abstractmethod
    def _join(self, now: int) -> list[m.MemberCommand]:
        """Return the commands that join the group."""

    @abstractmethod
    def _heartbeat(self) -> m.MemberCommand:
        """Return the next heartbeat."""

    @abstractmethod
    def _answered(self, event: m.MemberEvent, now: int) -> list[m.MemberCommand]:
        """Process an answer of the coordinator; answers to forgotten requests are ignored."""

    @abstractmethod
    def _freed(self, now: int) -> list[m.MemberCommand]:
        """Return the commands that follow from the closing of tasks."""

    @abstractmethod
    def _doubts(self) -> bool:
        """Return whether a later generation may exist that the member has not heard of yet."""

    @abstractmethod
    def _ask_generation(self, now: int) -> list[m.MemberCommand]:
        """Return the commands that ask for the generation."""

    @abstractmethod
    def _shut_down(self, now: int) -> list[m.MemberCommand]:
        """Return the commands that end all members."""

    @property
    def state(self) -> MemberState:
        """The current state."""
        return self._state.current

    @property
    def has_left(self) -> bool:
        """Whether the member has left, and the coordinator knows of it as far as possible."""
        return self.state is MemberState.LEFT

    @property
    def may_commit(self) -> bool:
        """Whether offsets may be committed: the member has been given tasks, and is not lost."""
        return self.state not in (MemberState.FENCED, *_GONE) and self.generation != m.NO_GENERATION

    def due_ms(self) -> int | None:
        """Return the time (ms) of the next `m.Tick` without another event, None for never."""
        is_waiting = (
            self._out if self.state is MemberState.STABLE else self.state is MemberState.FENCED and bool(self._held)
        )
        times = [] if is_waiting else [self._next_ms]
        if self._is_watched():
            times.append(self._session_until)
        return min((each for each in times if each is not None), default=None)

    def handle(self, event: m.MemberEvent, now: int) -> list[m.MemberCommand]:
        """Process an event at `now`, and return the commands that follow. now: ms of the clock used by all calls."""
        match event:
            case m.TasksRevoked(tasks, assignments):
                return self._revoked(tasks, assignments, now)
            case m.Stalled(error):
                return self._step_back(error, now)
            case m.ShutDownRequested():
                return self._shut_down(now)
            case m.LeaveRequested(operation):
                return self._leave(operation)
            case m.LeaveAnswered() if self.state is MemberState.LEAVING:
                self._state.change(MemberState.LEFT)
                return []
            case m.Begin() | m.Tick():
                return self._tick(now)
            case m.CommitRefused() if self.may_commit:
                return self._commit_refused(event, now)
            case m.Unusable(error) if self.state not in _GONE:
                return self._fail(error, now)
            case m.Disconnected() | m.Unusable():
                return self._disconnected(now)
            case _:
                return self._answered(event, now)

    def _is_watched(self) -> bool:
        """Return whether the tasks must pause when the session ends. A coordinator that waits for other members to join
        keeps the member during this time."""
        waits = self._out and self.state in (MemberState.JOINING, MemberState.SYNCING)
        return bool(self._held) and self.may_commit and not waits and not self._is_cut_off

    def _tick(self, now: int) -> list[m.MemberCommand]:
        commands: list[m.MemberCommand] = []
        if self._is_watched() and now >= self._session_until:
            self._is_cut_off = True
            commands.append(v.SessionTimedOut())
        if self._next_ms is not None and now < self._next_ms:
            return commands
        match self.state:
            case MemberState.UNJOINED:
                commands += self._join(now)
            case MemberState.FENCED if not self._held:
                commands += self._join(now)
            case MemberState.JOINING | MemberState.SYNCING if self._next_ms is not None:
                self._next_ms = now + self._timing.again_ms
                commands.append(m.AskAgain())
            case MemberState.STABLE if not self._out:
                self._out, self._next_ms = True, now + self._timing.heartbeat_ms
                commands.append(self._heartbeat())
            case _:
                pass
        return commands

    def _assigned(self, tasks: frozenset[TaskId], standbys: frozenset[TaskId]) -> m.MemberCommand:
        """Return the command that reports the member's tasks to the core."""
        self._assignments += 1
        self._assigned_in.update(dict.fromkeys(tasks, self._assignments))
        return v.Assigned(tasks, standbys)

    def _revoked(self, tasks: frozenset[TaskId], assignments: int, now: int) -> list[m.MemberCommand]:
        # A task in an assignment that is on its way to the core will be open again.
        freed = frozenset(task for task in tasks if self._assigned_in.get(task, 0) <= assignments)
        self._held -= freed
        self._pending -= freed
        if self.state is MemberState.FENCED:
            return self._tick(now)
        return self._freed(now)

    def _refused(self, code: int, now: int, message: str = "") -> list[m.MemberCommand]:
        """Process an error of the coordinator."""
        if code in _ELSEWHERE:
            return [*self._disconnected(now), m.FindAgain()]
        return self._fenced(code, now, message)

    def _commit_refused(self, refused: m.CommitRefused, now: int) -> list[m.MemberCommand]:
        """Process a refused commit; refusals of an earlier generation are ignored."""
        if (refused.member_id, refused.generation) != (self.member_id, self.generation):
            return []
        if refused.code not in _OLD_GENERATION or not self._doubts():
            return self._fenced(refused.code, now)
        if self._doubted != self.generation:  # in every rebalance, a commit may cross an answer that is on its way
            self._doubted = self.generation
            return self._ask_generation(now)
        was_cut_off, self._is_cut_off = self._is_cut_off, True
        return [] if was_cut_off else [v.SessionTimedOut()]

    def _heard_of_coordinator(self, at_ms: int) -> list[m.MemberCommand]:
        """Note that the coordinator knew the member at `at_ms`, and let its tasks continue."""
        was_cut_off, self._is_cut_off = self._is_cut_off, False
        self._session_until = at_ms + self._timing.session_ms
        return [v.Reconnected()] if was_cut_off else []

    def _fenced(self, code: int, now: int, message: str = "") -> list[m.MemberCommand]:
        """Continue as a new member, or as the same one if its generation has ended."""
        if code == ErrorCode.unknown_member_id:
            self.member_id = self._first_id
        if code not in _OUT:
            self._fence(now)
            return [m.Refused(code, message)]
        return self._lose(f"the group goes on without it ({ErrorCode(code).name.upper()})", now)

    def _lose(self, why: str, now: int) -> list[m.MemberCommand]:
        had_tasks = bool(self._held)
        self._fence(now)
        self._next_ms = None
        if not had_tasks:
            return self._join(now)
        error = TaskMigratedError(
            f"This instance has lost its tasks: {why}. Other instances may have them now; what it has not committed is "
            "processed again."
        )
        return [v.MembershipLost(error)]

    def _step_back(self, error: Exception, now: int) -> list[m.MemberCommand]:
        """Leave the tasks to others; rejoin as a new member when they are closed."""
        if not self.may_commit:
            return []
        left = self._left(now)
        self._next_ms = None
        return [*left, v.MembershipLost(error)] if self._held else [*left, *self._join(now)]

    def _left(self, now: int) -> list[m.MemberCommand]:
        """Give up the membership; for a static member, the group notices when its session ends."""
        left: list[m.MemberCommand] = [m.LeaveGroup(self.member_id)] if not self._instance else []
        self._fence(now)
        self.member_id = self._first_id
        return left

    def _fail(self, error: Exception, now: int) -> list[m.MemberCommand]:
        self._fence(now)
        return [v.MembershipRefused(error)]

    def _fence(self, now: int) -> None:
        self._state.change(MemberState.FENCED)
        self._out = self._is_cut_off = False
        self.generation, self.losses, self._doubted = m.NO_GENERATION, self.losses + 1, None
        self._pending = frozenset()
        self._next_ms = now + self._timing.refused_ms

    def _disconnected(self, now: int) -> list[m.MemberCommand]:
        self._out = False
        match self.state:
            case MemberState.LEAVING:
                self.remains = True
                self._state.change(MemberState.LEFT)
            case MemberState.FENCED | MemberState.LEFT:
                pass
            case MemberState.STABLE:
                self._next_ms = now + self._timing.retry_ms  # the next heartbeat may find another coordinator
            case _:
                self._state.change(MemberState.UNJOINED)
                self._next_ms = now + self._timing.retry_ms
        return []

    def _leave(self, operation: GroupMembershipOperation) -> list[m.MemberCommand]:
        if self.state in _GONE:
            return []
        self._state.change(MemberState.LEAVING)
        self._next_ms = None
        farewell = self._farewell(operation)
        if farewell is not None:
            return [farewell]
        self.remains = bool(self.member_id)
        self._state.change(MemberState.LEFT)  # no answer to wait for
        return []

    def _farewell(self, operation: GroupMembershipOperation) -> m.MemberCommand | None:
        """Return the request that ends the membership, None to let the session time out."""
        is_default = operation is GroupMembershipOperation.DEFAULT
        leaves = operation is GroupMembershipOperation.LEAVE_GROUP or (
            is_default and (not self._instance or self._shuts_down)
        )
        return m.LeaveGroup(self.member_id) if leaves and self.member_id else None


def shut_down_error(why: str) -> StreamsError:
    """Return the error of an instance that another one has shut down. why: the other instance, or the coordinator's
    explanation."""
    return StreamsError(
        f"Another instance has shut down the application (SHUTDOWN_APPLICATION): {why}. Its log has the error."
    )
