"""The member of a group, as a table of states: what members of both protocols have in common (`GroupMember`), and the
member of the classic protocol (`Member`); `streams_member` has that of the protocol of Kafka Streams. No I/O, no clock,
no thread: `handle` takes what has happened and returns what is to be sent and told; `due_ms` says when a `Tick` is
needed.

What happens in which state (the tests have a line for each):

    UNJOINED  is in no generation; joins when a pause is over. Its tasks run on while the session lasts.
    JOINING   waits for the answer to JoinGroup. Its tasks run on, and commits go on.
    SYNCING   has joined; waits for its assignment. A commit is refused for that moment, and repeated.
    STABLE    sends heartbeats; joins when others do, and when the tasks that it had to give up are closed.
    FENCED    the group goes on without it: no commit. Joins as a new member when all tasks are closed.
    LEAVING   has left, or is about to.

Rules:
- The answer to a first join only names the member; the second join follows in the same breath, for all others wait
  for it.
- Whether another join is needed is judged by the tasks that the last join reported, not by those that are held when the
  assignment arrives: else a task that was closed in between would belong to nobody.
- What the core gives up and what it is assigned may cross. A task that the core has closed before it hears that the
  task is assigned again stays with the member: else a later join would leave it to another one while it runs here.
- A static member (`group.instance.id`) does not leave: whoever joins with its name within its session has its tasks,
  and the assignment of the life before, which the leader planned for what was reported then. If that life had other
  tasks, for topics have changed since, the member joins once more, and the group plans for what there is now.
- Where tasks wait for warm-ups, the leader joins again after a time, so that the group plans with what is ready then.
- A member that has not heard of the coordinator for its session has its tasks stand still; they are lost when the
  coordinator says so. After an outage of all brokers they go on, and nothing is processed twice.
- A member that shuts down the application joins with that wish. The leader tells it to all with their assignments, and
  each of them has it in its own joins from then on. The member that asked for it stays and joins again, a heartbeat
  later each time, until all members of a generation had it in their joins: so a slow one hears of it too.
- A member that was lost joins again only when its tasks are closed: a commit of the old membership must not meet the
  new one, which the group would accept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.errors import StreamsError, TaskMigratedError
from penstock.host.threads import vocabulary as v
from penstock.host.threads.subscription import Endpoint, IncompatibleMemberError, Rules, Share, follow, lead
from penstock.plan.subtopology import TaskId

NO_GENERATION: Final = -1


class StreamsTasks(NamedTuple):
    """The tasks of a member of the protocol of Kafka Streams. active: that it runs. standby: of which it keeps a copy.
    warm_up: of which it makes a copy, to run them later."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    warm_up: frozenset[TaskId] = frozenset()


class State(Enum):
    """Where a member stands; see the module."""

    UNJOINED = "UNJOINED"
    JOINING = "JOINING"
    SYNCING = "SYNCING"
    STABLE = "STABLE"
    FENCED = "FENCED"
    LEAVING = "LEAVING"


Statuses = Mapping[int, str]
"""What keeps a group of the protocol of Kafka Streams from going on: texts by code."""


# ---------------------------------------- what happens


@dataclass(frozen=True)
class Begin:
    """The member is to join."""


@dataclass(frozen=True)
class JoinAnswered:
    """The answer to JoinGroup. members: the subscriptions of all members, for the leader. ends: for it too, of the
    changelogs of each task, as the sum of their ends; None if they are not known."""

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

    epoch: of the member. heartbeat_ms: until the next heartbeat. tasks: its assignment, None if it is the same as
    before. statuses: of the group, by code. endpoints: None if they are the same as before. message: of an error.
    """

    code: int
    sent_ms: int = 0
    epoch: int = NO_GENERATION
    heartbeat_ms: int = 0
    tasks: StreamsTasks | None = None
    statuses: Statuses | None = None
    endpoints: tuple[Endpoint, ...] | None = None
    message: str = ""


@dataclass(frozen=True)
class StreamsMemberDescribed:
    """The answer to StreamsGroupDescribe. tasks: the assignment of this member, None if the group does not have it."""

    code: int
    tasks: StreamsTasks | None = None


@dataclass(frozen=True)
class LeaveAnswered:
    """The answer to LeaveGroup, or none came."""


@dataclass(frozen=True)
class Disconnected:
    """The coordinator cannot be reached; a request that was out has no answer."""


@dataclass(frozen=True)
class Unusable:
    """The coordinator cannot be asked, for a reason that does not pass."""

    error: Exception


@dataclass(frozen=True)
class CommitRefused:
    """The coordinator refused a commit of this generation for good."""

    code: int


@dataclass(frozen=True)
class GivenUp:
    """These tasks are closed here. assignments: how many assignments the core had taken when it closed them."""

    tasks: frozenset[TaskId]
    assignments: int


@dataclass(frozen=True)
class Stalled:
    """The instance has made no progress for longer than max.poll.interval.ms."""

    error: Exception


@dataclass(frozen=True)
class ShutDownRequested:
    """All members are to hear that the application ends."""


@dataclass(frozen=True)
class LeaveRequested:
    """The member is to leave."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Happening = (
    Begin
    | JoinAnswered
    | SyncAnswered
    | HeartbeatAnswered
    | StreamsHeartbeatAnswered
    | StreamsMemberDescribed
    | LeaveAnswered
    | Disconnected
    | Unusable
    | CommitRefused
    | GivenUp
    | Stalled
    | ShutDownRequested
    | LeaveRequested
    | Tick
)


# ---------------------------------------- what is to be done


@dataclass(frozen=True)
class Join:
    """Send JoinGroup. owned: the tasks that the member has, of `generation`. shuts_down: whether all members are to
    end."""

    member_id: str
    generation: int
    owned: frozenset[TaskId]
    shuts_down: bool = False


@dataclass(frozen=True)
class Sync:
    """Send SyncGroup. assignments: of all members, from the leader."""

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
    """Send StreamsGroupHeartbeat. owned: the tasks that the member has. shuts_down: whether all members are to end."""

    member_id: str
    epoch: int
    owned: StreamsTasks
    shuts_down: bool = False


@dataclass(frozen=True)
class DescribeStreamsMember:
    """Send StreamsGroupDescribe, to learn the assignment of this member."""

    member_id: str


@dataclass(frozen=True)
class LeaveGroup:
    """Tell the coordinator that the member leaves."""

    member_id: str


@dataclass(frozen=True)
class FindAgain:
    """Look for the coordinator again before the next request."""


@dataclass(frozen=True)
class Refused:
    """Tell the core that the group refuses this member for a reason that does not pass (`MembershipRefused`). message:
    of the coordinator."""

    code: int
    message: str = ""


Step = (
    Join
    | Sync
    | Heartbeat
    | JoinStreamsGroup
    | StreamsHeartbeat
    | DescribeStreamsMember
    | LeaveGroup
    | FindAgain
    | Refused
    | v.Assigned
    | v.MembershipLost
    | v.MembershipRefused
    | v.ApplicationShutDown
    | v.CutOff
    | v.Reconnected
)

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
    )
)


@dataclass(frozen=True)
class Timing:
    """session_ms, heartbeat_ms: session.timeout.ms and heartbeat.interval.ms; retry_ms: the pause after a lost
    connection; refused_ms: after a refusal that does not pass; probing_ms: probing.rebalance.interval.ms."""

    session_ms: int
    heartbeat_ms: int
    retry_ms: int = 100
    refused_ms: int = 1_000
    probing_ms: int = 600_000


class GroupMember(ABC):
    """What members have in common, whatever the protocol of their group; see the module.

    Args:
        timing: how long it waits.
        instance: the name of a static member, empty for another one.
        member_id: with which it joins as a new member, empty if the coordinator gives one.
    """

    def __init__(self, timing: Timing, instance: str = "", member_id: str = "") -> None:
        self._timing = timing
        self._instance = instance
        self._first_id = member_id
        self._held: frozenset[TaskId] = frozenset()
        self._pending: frozenset[TaskId] = frozenset()
        self._assignments = 0
        self._assigned_in: dict[TaskId, int] = {}
        """The number of the latest assignment that had each task."""
        self._out = False
        self._shuts_down = False
        """Whether all members are to end, for this member or another one."""
        self._session_until = 0
        self._is_cut_off = False
        self._next_ms: int | None = None
        self.state = State.UNJOINED
        self.member_id = member_id
        self.generation = NO_GENERATION
        self.losses = 0
        """How often it was lost, refused or left: commits of before are not those of a later membership."""
        self.has_left = False
        self.endpoints: tuple[Endpoint, ...] = ()
        """Where the state of all members can be asked for, as of the last assignment."""

    @abstractmethod
    def _join(self) -> list[Step]:
        """Return what joins the group."""

    @abstractmethod
    def _heartbeat(self) -> Step:
        """Return the next heartbeat."""

    @abstractmethod
    def _answered(self, happening: Happening, now: int) -> list[Step]:
        """Take an answer of the coordinator; one to a question that the member has forgotten is of no interest."""

    @abstractmethod
    def _freed(self, now: int) -> list[Step]:
        """Return what follows from tasks that are closed now."""

    @abstractmethod
    def _shut_down(self, now: int) -> list[Step]:
        """Return what tells all members that they are to end."""

    @property
    def may_commit(self) -> bool:
        """Whether offsets may be committed: the group has given tasks to this member, and it is not lost."""
        return self.state not in (State.FENCED, State.LEAVING) and self.generation != NO_GENERATION

    def due_ms(self) -> int | None:
        """Return when a `Tick` is needed if nothing else happens (ms), None for never."""
        is_waiting = self._out or (self.state is State.FENCED and bool(self._held))
        times = [] if is_waiting else [self._next_ms]
        if self._is_watched():
            times.append(self._session_until)
        return min((each for each in times if each is not None), default=None)

    def handle(self, happening: Happening, now: int) -> list[Step]:
        """Take what has happened at `now` (ms of the clock that all calls go by), and return what is to be done."""
        match happening:
            case GivenUp(tasks, assignments):
                return self._given_up(tasks, assignments, now)
            case Stalled(error):
                return self._step_back(error, now)
            case ShutDownRequested():
                return self._shut_down(now)
            case LeaveRequested():
                return self._leave()
            case LeaveAnswered():
                self.has_left = self.state is State.LEAVING
                return []
            case Begin() | Tick():
                return self._tick(now)
            case CommitRefused(code) if self.may_commit:
                return self._count_out(code, now)
            case Disconnected():
                return self._disconnected(now)
            case Unusable(error) if self.state is not State.LEAVING:
                return self._fail(error, now)
            case Unusable():
                return self._disconnected(now)
            case _:
                return self._answered(happening, now)

    def _is_watched(self) -> bool:
        """Return whether the tasks must stand still when the session ends: a coordinator that waits for others to join
        keeps the member meanwhile."""
        waits = self._out and self.state in (State.JOINING, State.SYNCING)
        return bool(self._held) and self.may_commit and not waits and not self._is_cut_off

    def _tick(self, now: int) -> list[Step]:
        steps: list[Step] = []
        if self._is_watched() and now >= self._session_until:
            self._is_cut_off = True
            steps.append(v.CutOff())
        if self._next_ms is not None and now < self._next_ms:
            return steps
        match self.state:
            case State.UNJOINED:
                steps += self._join()
            case State.FENCED if not self._held:
                steps += self._join()
            case State.STABLE if not self._out:
                self._out, self._next_ms = True, now + self._timing.heartbeat_ms
                steps.append(self._heartbeat())
            case _:
                pass
        return steps

    def _assigned(self, tasks: frozenset[TaskId], standbys: frozenset[TaskId]) -> Step:
        """Return what tells the core its tasks."""
        self._assignments += 1
        self._assigned_in.update(dict.fromkeys(tasks, self._assignments))
        return v.Assigned(tasks, standbys)

    def _given_up(self, tasks: frozenset[TaskId], assignments: int, now: int) -> list[Step]:
        # A task that an assignment on its way to the core has again will be open again.
        freed = frozenset(task for task in tasks if self._assigned_in.get(task, 0) <= assignments)
        self._held -= freed
        self._pending -= freed
        if self.state is State.FENCED:
            return self._tick(now)
        return self._freed(now)

    def _refused(self, code: int, now: int, message: str = "") -> list[Step]:
        """Take an error of the coordinator."""
        if code in _ELSEWHERE:
            return [*self._disconnected(now), FindAgain()]
        if code in _OUT:
            return self._count_out(code, now)
        self._fence(now)
        return [Refused(code, message)]

    def _count_out(self, code: int, now: int) -> list[Step]:
        """Go on as a new member, or as the same one where only its generation is over."""
        if code == ErrorCode.unknown_member_id:
            self.member_id = self._first_id
        if code not in _OUT:
            self._fence(now)
            return [Refused(code)]
        return self._lose(f"the group goes on without it ({ErrorCode(code).name.upper()})", now)

    def _lose(self, why: str, now: int) -> list[Step]:
        had_tasks = bool(self._held)
        self._fence(now)
        self._next_ms = None
        if not had_tasks:
            return self._join()
        error = TaskMigratedError(
            f"This instance has lost its tasks: {why}. Other instances may have them now; what it has not committed is "
            "processed again."
        )
        return [v.MembershipLost(error)]

    def _step_back(self, error: Exception, now: int) -> list[Step]:
        """Leave the tasks to others; join again as a new member when they are closed."""
        if not self.may_commit:
            return []
        left = self._left(now)
        self._next_ms = None
        return [*left, v.MembershipLost(error)] if self._held else [*left, *self._join()]

    def _left(self, now: int) -> list[Step]:
        """Become nobody; the group finds out about a static member when its session ends."""
        left: list[Step] = [LeaveGroup(self.member_id)] if not self._instance else []
        self._fence(now)
        self.member_id = self._first_id
        return left

    def _fail(self, error: Exception, now: int) -> list[Step]:
        self._fence(now)
        return [v.MembershipRefused(error)]

    def _fence(self, now: int) -> None:
        self.state, self._out, self._is_cut_off = State.FENCED, False, False
        self.generation, self.losses = NO_GENERATION, self.losses + 1
        self._pending = frozenset()
        self._next_ms = now + self._timing.refused_ms

    def _disconnected(self, now: int) -> list[Step]:
        self._out = False
        match self.state:
            case State.LEAVING:
                self.has_left = True
            case State.FENCED:
                pass
            case State.STABLE:
                self._next_ms = now + self._timing.retry_ms  # the next heartbeat may find another coordinator
            case _:
                self.state, self._next_ms = State.UNJOINED, now + self._timing.retry_ms
        return []

    def _leave(self) -> list[Step]:
        if self.state is State.LEAVING:
            return []
        is_known = bool(self.member_id) and (not self._instance or self._shuts_down)
        self.state, self._next_ms = State.LEAVING, None
        self.has_left = not is_known
        return [LeaveGroup(self.member_id)] if is_known else []


def shut_down_error(why: str) -> StreamsError:
    """Return the error of an instance that ends because of another one. why: which one, or what the coordinator says
    of it."""
    return StreamsError(
        f"Another instance has shut down the application (SHUTDOWN_APPLICATION): {why}. Its log has the error."
    )


class Member(GroupMember):
    """A member of a group of the classic protocol; see the module.

    Args:
        rules: the tasks that are assigned.
        timing: how long it waits.
        instance: the name of a static member, empty for another one.
    """

    def __init__(self, rules: Rules, timing: Timing, instance: str = "") -> None:
        super().__init__(timing, instance)
        self._rules = rules
        self._is_new = True
        """Whether the last join was the first one of this membership."""
        self._must_rejoin = False
        self._leads = False
        self._probe_ms: int | None = None

    def _heartbeat(self) -> Step:
        return Heartbeat(self.member_id, self.generation)

    def _answered(self, happening: Happening, now: int) -> list[Step]:
        match happening:
            case JoinAnswered() if self.state is State.JOINING:
                self._out = False
                return self._joined(happening, now)
            case SyncAnswered() if self.state is State.SYNCING:
                self._out = False
                return self._synced(happening, now)
            case HeartbeatAnswered() if self.state is State.STABLE:
                self._out = False
                return self._heard(happening, now)
            case _:
                return []

    def _join(self) -> list[Step]:
        self.state, self._out, self._next_ms = State.JOINING, True, None
        self._is_new = self.generation == NO_GENERATION
        self._must_rejoin, self._pending = False, frozenset()
        return [Join(self.member_id, self.generation, self._held, self._shuts_down)]

    def _joined(self, answer: JoinAnswered, now: int) -> list[Step]:
        if answer.code == ErrorCode.member_id_required:
            self.member_id = answer.member_id
            return self._join()
        if answer.code != ErrorCode.none:
            return self._refused(answer.code, now)
        self.member_id, self.generation = answer.member_id, answer.generation
        self._session_until = now + self._timing.session_ms
        assignments: Mapping[str, bytes] = {}
        self._leads = answer.leader == answer.member_id
        if self._leads:
            try:
                assignments = lead(answer.members or {}, self._rules, answer.ends)
            except IncompatibleMemberError as error:
                return self._withdraw(error, now)
        self.state, self._out = State.SYNCING, True
        return [Sync(self.member_id, self.generation, assignments)]

    def _synced(self, answer: SyncAnswered, now: int) -> list[Step]:
        if answer.code != ErrorCode.none:
            return self._refused(answer.code, now)
        try:
            share = follow(self._instance or self.member_id, answer.assignment, self._rules)
        except IncompatibleMemberError as error:
            if self._instance and self._is_new:
                return self._join()  # the plan may be that of the life before, when there were other tasks
            return self._withdraw(error, now)
        self._session_until = now + self._timing.session_ms
        self.state, self._next_ms = State.STABLE, now + self._timing.heartbeat_ms
        self._probe_ms = now + self._timing.probing_ms if self._leads and not share.is_final else None
        self._is_cut_off = False
        if share.shut_down_by:
            return self._told_to_end(share)
        self._must_rejoin = self._shuts_down or bool(share.reported - share.tasks)
        self._pending = frozenset() if self._shuts_down else self._held - share.tasks
        self.endpoints = share.endpoints
        self._held |= share.tasks
        return [self._assigned(share.tasks, share.standbys), *self._freed(now)]

    def _shut_down(self, now: int) -> list[Step]:
        """Join with the wish, behind an answer that is on its way."""
        self._shuts_down, self._must_rejoin, self._pending = True, True, frozenset()
        return self._freed(now)

    def _told_to_end(self, share: Share) -> list[Step]:
        """Have the tasks committed and closed, as they are; if this member knew it before, behind a generation in which
        all did."""
        self._must_rejoin, self._pending = self._shuts_down and not share.is_final, frozenset()
        if self._shuts_down:
            return [v.ApplicationShutDown(None)] if share.is_final else []
        self._shuts_down = True
        return [v.ApplicationShutDown(shut_down_error(share.shut_down_by))]

    def _withdraw(self, error: Exception, now: int) -> list[Step]:
        """Let the others go on without this member, whose tasks are not theirs."""
        return [*self._left(now), v.MembershipRefused(error)]

    def _freed(self, now: int) -> list[Step]:
        """Join again where the tasks that others wait for are closed."""
        is_free = self.state is State.STABLE and self._must_rejoin and not self._pending and not self._out
        return self._join() if is_free else []

    def _heard(self, answer: HeartbeatAnswered, now: int) -> list[Step]:
        if answer.code not in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            return self._refused(answer.code, now)
        self._session_until = answer.sent_ms + self._timing.session_ms
        steps: list[Step] = [v.Reconnected()] if self._is_cut_off else []
        self._is_cut_off = False
        must_probe = self._probe_ms is not None and now >= self._probe_ms
        if answer.code == ErrorCode.rebalance_in_progress or must_probe:
            return [*steps, *self._join()]
        return [*steps, *self._freed(now)]

    def _refused(self, code: int, now: int, message: str = "") -> list[Step]:
        return self._join() if code == ErrorCode.rebalance_in_progress else super()._refused(code, now, message)
