"""The member of a group of the classic protocol, as a table of states; `member` has what it shares with that of the
protocol of Kafka Streams.

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
- JoinGroup and SyncGroup wait for other members, and their answers may be lost while the connection stays open. So the
  same request is sent again several times in a session, over a new connection: brokers keep a connection whose request
  waits from sending heartbeats. The coordinator lets the repetition wait instead, gives the lost answer again, or says
  that the member is counted out.
- Whether another join is needed is judged by the tasks that the last join reported, not by those that are held when the
  assignment arrives: else a task that was closed in between would belong to nobody.
- A static member (`group.instance.id`) does not leave: whoever joins with its name within its session has its tasks,
  and the assignment of the life before, which the leader planned for what was reported then. If that life had other
  tasks, for topics have changed since, the member joins once more, and the group plans for what there is now.
- Where tasks wait for warm-ups, the leader joins again after a time, so that the group plans with what is ready then.
- A member that shuts down the application joins with that wish. The leader tells it to all with their assignments, and
  each of them has it in its own joins from then on. The member that asked for it stays and joins again, a heartbeat
  later each time, until all members of a generation had it in their joins: so a slow one hears of it too.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.host.threads import member as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.member import NO_GENERATION, AbstractMember, MemberState
from penstock.host.threads.subscription import IncompatibleMemberError, MemberShare, Rules, follow, lead
from penstock_broker.wire.error_codes import ErrorCode


class ClassicMember(AbstractMember):
    """A member of a group of the classic protocol; see the module.

    Args:
        rules: the tasks that are assigned.
        timing: how long it waits.
        instance: the name of a static member, empty for another one.
    """

    def __init__(self, rules: Rules, timing: m.Timing, instance: str = "") -> None:
        super().__init__(timing, instance)
        self._rules = rules
        self._is_new = True
        """Whether the last join was the first one of this membership."""
        self._must_rejoin = False
        self._leads = False
        self._probe_ms: int | None = None

    def _heartbeat(self) -> m.Step:
        return m.Heartbeat(self.member_id, self.generation)

    def _answered(self, happening: m.Happening, now: int) -> list[m.Step]:
        match happening:
            case m.JoinAnswered() if self.state is MemberState.JOINING:
                self._out = False
                return self._joined(happening, now)
            case m.SyncAnswered() if self.state is MemberState.SYNCING:
                self._out = False
                return self._synced(happening, now)
            case m.HeartbeatAnswered() if self.state is MemberState.STABLE:
                self._out = False
                return self._heard(happening, now)
            case _:
                return []

    def _join(self, now: int) -> list[m.Step]:
        self.state, self._out, self._next_ms = MemberState.JOINING, True, now + self._timing.again_ms
        self._is_new = self.generation == NO_GENERATION
        self._must_rejoin, self._pending = False, frozenset()
        return [m.Join(self.member_id, self.generation, self._held, self._shuts_down)]

    def _joined(self, answer: m.JoinAnswered, now: int) -> list[m.Step]:
        if answer.code == ErrorCode.member_id_required:
            self.member_id = answer.member_id
            return self._join(now)
        if answer.code != ErrorCode.none:
            return self._refused(answer.code, now)
        self.member_id, self.generation = answer.member_id, answer.generation
        steps = self._heard_of_coordinator(now)
        assignments: Mapping[str, bytes] = {}
        self._leads = answer.leader == answer.member_id
        if self._leads:
            try:
                assignments = lead(answer.members or {}, self._rules, answer.ends)
            except IncompatibleMemberError as error:
                return self._withdraw(error, now)
        self.state, self._out, self._next_ms = MemberState.SYNCING, True, now + self._timing.again_ms
        return [*steps, m.Sync(self.member_id, self.generation, assignments)]

    def _synced(self, answer: m.SyncAnswered, now: int) -> list[m.Step]:
        if answer.code != ErrorCode.none:
            return self._refused(answer.code, now)
        try:
            share = follow(self._instance or self.member_id, answer.assignment, self._rules)
        except IncompatibleMemberError as error:
            if self._instance and self._is_new:
                return self._join(now)  # the plan may be that of the life before, when there were other tasks
            return self._withdraw(error, now)
        self._session_until = now + self._timing.session_ms
        self.state, self._next_ms = MemberState.STABLE, now + self._timing.heartbeat_ms
        self._probe_ms = now + self._timing.probing_ms if self._leads and not share.is_final else None
        self.has_twin = share.has_twin
        if share.shut_down_by:
            return self._told_to_end(share)
        self._must_rejoin = self._shuts_down or bool(share.reported - share.tasks)
        self._pending = frozenset() if self._shuts_down else self._held - share.tasks
        self.endpoints = share.endpoints
        self._held |= share.tasks
        return [self._assigned(share.tasks, share.standbys), *self._freed(now)]

    def _shut_down(self, now: int) -> list[m.Step]:
        """Join with the wish, behind an answer that is on its way."""
        self._shuts_down, self._must_rejoin, self._pending = True, True, frozenset()
        return self._freed(now)

    def _told_to_end(self, share: MemberShare) -> list[m.Step]:
        """Have the tasks committed and closed, as they are; if this member knew it before, behind a generation in which
        all did."""
        self._must_rejoin, self._pending = self._shuts_down and not share.is_final, frozenset()
        if self._shuts_down:
            return [v.ApplicationShutDown(None)] if share.is_final else []
        self._shuts_down = True
        return [v.ApplicationShutDown(m.shut_down_error(share.shut_down_by))]

    def _withdraw(self, error: Exception, now: int) -> list[m.Step]:
        """Let the others go on without this member, whose tasks are not theirs."""
        return [*self._left(now), v.MembershipRefused(error)]

    def _freed(self, now: int) -> list[m.Step]:
        """Join again where the tasks that others wait for are closed."""
        is_free = self.state is MemberState.STABLE and self._must_rejoin and not self._pending and not self._out
        return self._join(now) if is_free else []

    def _heard(self, answer: m.HeartbeatAnswered, now: int) -> list[m.Step]:
        if answer.code not in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            return self._refused(answer.code, now)
        steps = self._heard_of_coordinator(answer.sent_ms)
        must_probe = self._probe_ms is not None and now >= self._probe_ms
        if answer.code == ErrorCode.rebalance_in_progress or must_probe:
            return [*steps, *self._join(now)]
        return [*steps, *self._freed(now)]

    def _doubts(self) -> bool:
        return self.state in (MemberState.UNJOINED, MemberState.JOINING)

    def _ask_generation(self, now: int) -> list[m.Step]:
        """Repeat JoinGroup soon, if it is not answered before."""
        if self.state is MemberState.JOINING and self._next_ms is not None:
            self._next_ms = min(self._next_ms, now + self._timing.retry_ms)
        return []

    def _refused(self, code: int, now: int, message: str = "") -> list[m.Step]:
        return self._join(now) if code == ErrorCode.rebalance_in_progress else super()._refused(code, now, message)
