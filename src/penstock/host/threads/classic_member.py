"""A group member of the classic protocol, as a state machine. `member` has the parts shared with the streams protocol.

States and events (the tests have a line for each):

    UNJOINED  is in no generation; joins after a pause. Its tasks keep running while the session lasts.
    JOINING   waits for the JoinGroup response. Its tasks keep running, and commits continue.
    SYNCING   has joined; waits for its assignment. A commit is refused during this time, and retried.
    STABLE    sends heartbeats; rejoins when others do, and once the tasks that it had to give up are closed.
    FENCED    the group goes on without it: no commits. Joins as a new member once all tasks are closed.
    LEAVING   waits for the LeaveGroup response.
    LEFT      has left.

Rules:
- The response to a first join only names the member; the second join follows immediately, because all other members
  wait for it.
- JoinGroup and SyncGroup wait for other members, and their responses may be lost while the connection stays open. So
  the same request is sent several times per session, each time over a new connection: brokers accept no heartbeats on a
  connection with a waiting request. The coordinator makes the repeated request wait instead, sends the lost response
  again, or reports that the member was removed.
- The tasks reported in the last join decide whether another join is needed, not the tasks held when the assignment
  arrives: otherwise a task closed in between would have no owner.
- A static member (`group.instance.id`) does not leave. A process that joins under its name within its session gets its
  tasks, and its previous assignment, which the leader planned for the tasks reported then. If these were different
  tasks, because topics have changed since, the member joins once more, and the group plans for the current tasks.
- While tasks wait for warm-ups, the leader rejoins after a time, so that the group plans again with the warm-ups that
  are ready then.
- A member that shuts down the application says so in its join. The leader passes this on to all members with their
  assignments, and each member repeats it in its own joins from then on. The first member stays and rejoins, a heartbeat
  later each time, until all members of a generation had it in their joins, so that slow members learn of it too.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.member import AbstractMember, Timing, shut_down_error
from penstock.host.threads.member_messages import NO_GENERATION
from penstock.host.threads.member_states import CLASSIC_TRANSITIONS, MemberState
from penstock.host.threads.subscription import IncompatibleMemberError, MemberShare, Rules, follow, lead
from penstock_broker.wire.error_codes import ErrorCode


class ClassicMember(AbstractMember):
    """A member of a group of the classic protocol; see the module.

    Args:
        rules: the tasks to assign, and the settings of the assignment.
        timing: timeouts and intervals.
        instance: the name of a static member, empty for a dynamic member.
    """

    def __init__(self, rules: Rules, timing: Timing, instance: str = "") -> None:
        super().__init__(CLASSIC_TRANSITIONS, timing, instance)
        self._rules = rules
        self._is_new = True
        """Whether the last join was the first of this membership."""
        self._must_rejoin = False
        self._leads = False
        self._probe_ms: int | None = None

    def _heartbeat(self) -> m.MemberCommand:
        return m.Heartbeat(self.member_id, self.generation)

    def _answered(self, event: m.MemberEvent, now: int) -> list[m.MemberCommand]:
        match event:
            case m.JoinAnswered() if self.state is MemberState.JOINING:
                self._out = False
                return self._joined(event, now)
            case m.SyncAnswered() if self.state is MemberState.SYNCING:
                self._out = False
                return self._synced(event, now)
            case m.HeartbeatAnswered() if self.state is MemberState.STABLE:
                self._out = False
                return self._heard(event, now)
            case _:
                return []

    def _join(self, now: int) -> list[m.MemberCommand]:
        self._state.change(MemberState.JOINING)
        self._out, self._next_ms = True, now + self._timing.again_ms
        self._is_new = self.generation == NO_GENERATION
        self._must_rejoin, self._pending = False, frozenset()
        return [m.Join(self.member_id, self.generation, self._held, self._shuts_down)]

    def _joined(self, answer: m.JoinAnswered, now: int) -> list[m.MemberCommand]:
        if answer.code == ErrorCode.member_id_required:
            self.member_id = answer.member_id
            return self._join(now)
        if answer.code != ErrorCode.none:
            return self._refused(answer.code, now)
        self.member_id, self.generation = answer.member_id, answer.generation
        commands = self._heard_of_coordinator(now)
        assignments: Mapping[str, bytes] = {}
        self._leads = answer.leader == answer.member_id
        if self._leads:
            try:
                assignments = lead(answer.members or {}, self._rules, answer.ends)
            except IncompatibleMemberError as error:
                return self._withdraw(error, now)
        self._state.change(MemberState.SYNCING)
        self._out, self._next_ms = True, now + self._timing.again_ms
        return [*commands, m.Sync(self.member_id, self.generation, assignments)]

    def _synced(self, answer: m.SyncAnswered, now: int) -> list[m.MemberCommand]:
        if answer.code != ErrorCode.none:
            return self._refused(answer.code, now)
        try:
            share = follow(self._instance or self.member_id, answer.assignment, self._rules)
        except IncompatibleMemberError as error:
            if self._instance and self._is_new:
                return self._join(now)  # the plan may be from the previous run, with other tasks
            return self._withdraw(error, now)
        self._session_until = now + self._timing.session_ms
        self._state.change(MemberState.STABLE)
        self._next_ms = now + self._timing.heartbeat_ms
        self._probe_ms = now + self._timing.probing_ms if self._leads and not share.is_final else None
        self.has_twin = share.has_twin
        if share.shut_down_by:
            return self._told_to_end(share)
        self._must_rejoin = self._shuts_down or bool(share.reported - share.tasks)
        self._pending = frozenset() if self._shuts_down else self._held - share.tasks
        self.endpoints = share.endpoints
        self._held |= share.tasks
        return [self._assigned(share.tasks, share.standbys), *self._freed(now)]

    def _shut_down(self, now: int) -> list[m.MemberCommand]:
        """Join with the request to shut down, after a pending answer."""
        self._shuts_down, self._must_rejoin, self._pending = True, True, frozenset()
        return self._freed(now)

    def _told_to_end(self, share: MemberShare) -> list[m.MemberCommand]:
        """Shut down the application: all tasks are committed and closed. A member that already knew of it waits for a
        generation in which all members knew."""
        self._must_rejoin, self._pending = self._shuts_down and not share.is_final, frozenset()
        if self._shuts_down:
            return [v.ApplicationShutDown(None)] if share.is_final else []
        self._shuts_down = True
        return [v.ApplicationShutDown(shut_down_error(share.shut_down_by))]

    def _withdraw(self, error: Exception, now: int) -> list[m.MemberCommand]:
        """Leave the group, whose tasks differ from those of this member."""
        return [*self._left(now), v.MembershipRefused(error)]

    def _freed(self, now: int) -> list[m.MemberCommand]:
        """Rejoin once the tasks that others wait for are closed."""
        is_free = self.state is MemberState.STABLE and self._must_rejoin and not self._pending and not self._out
        return self._join(now) if is_free else []

    def _heard(self, answer: m.HeartbeatAnswered, now: int) -> list[m.MemberCommand]:
        if answer.code not in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            return self._refused(answer.code, now)
        commands = self._heard_of_coordinator(answer.sent_ms)
        must_probe = self._probe_ms is not None and now >= self._probe_ms
        if answer.code == ErrorCode.rebalance_in_progress or must_probe:
            return [*commands, *self._join(now)]
        return [*commands, *self._freed(now)]

    def _doubts(self) -> bool:
        return self.state in (MemberState.UNJOINED, MemberState.JOINING)

    def _ask_generation(self, now: int) -> list[m.MemberCommand]:
        """Repeat JoinGroup soon, unless it is answered first."""
        if self.state is MemberState.JOINING and self._next_ms is not None:
            self._next_ms = min(self._next_ms, now + self._timing.retry_ms)
        return []

    def _refused(self, code: int, now: int, message: str = "") -> list[m.MemberCommand]:
        return self._join(now) if code == ErrorCode.rebalance_in_progress else super()._refused(code, now, message)
