"""The coordinator of the group of a simulation, on the classic protocol: joins, generations, sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.host.threads import member_messages as m
from penstock_broker.wire.error_codes import ErrorCode
from tests.host.threads.simulation.world import World

Reply = Callable[[m.MemberEvent], None]


@dataclass(eq=False)
class _Member:
    """A member as the coordinator knows it. reply: to its join or sync, while that waits."""

    expires: int
    subscription: bytes = b""
    is_watched: bool = False
    joining: Reply | None = None
    syncing: Reply | None = None


@dataclass(eq=False)
class Group:
    """One group. A request is answered by a call of its `reply`."""

    world: World
    session_ms: int
    rebalance_ms: int
    generation: int = 0
    phase: str = "EMPTY"
    leader: str = ""
    members: dict[str, _Member] = field(default_factory=dict)
    _assignments: dict[str, bytes] = field(default_factory=dict)
    _static: dict[str, str] = field(default_factory=dict)
    """The member of each group.instance.id."""
    _fenced: set[str] = field(default_factory=set)
    """Members in whose place another one of their group.instance.id has come."""
    _names: int = 0

    # ---------------------------------------- commits

    def commits(self, member_id: str, generation: int) -> int:
        """Return whether a member may commit offsets, as a code."""
        if self.phase == "SYNCING" and self._is_current(member_id, generation) == ErrorCode.none:
            return ErrorCode.rebalance_in_progress
        return self._is_current(member_id, generation)

    def commits_in_transaction(self, member_id: str, generation: int) -> int:
        """Return whether a transaction of a member may commit offsets; one that names no member always may."""
        return ErrorCode.none if generation < 0 and not member_id else self._is_current(member_id, generation)

    def _is_current(self, member_id: str, generation: int) -> int:
        if member_id not in self.members:
            return ErrorCode.fenced_instance_id if member_id in self._fenced else ErrorCode.unknown_member_id
        return ErrorCode.none if generation == self.generation else ErrorCode.illegal_generation

    # ---------------------------------------- requests

    def join(self, member_id: str, subscription: bytes, reply: Reply, instance: str = "") -> None:
        """Take a JoinGroup. instance: group.instance.id, empty for a member that is not static."""
        if not member_id:
            self._names += 1
            member_id = f"m{self._names}"
            before = self._static.get(instance)
            if before in self.members:
                is_kept = self._replace(before, member_id, instance)
                if is_kept:
                    self.members[member_id].subscription = subscription
                    reply(m.JoinAnswered(ErrorCode.none, member_id, self.generation))
                    return
            else:
                self.members[member_id] = member = _Member(self.world.now + self.session_ms)
                self._watch(member_id, member)
            if not instance:
                reply(m.JoinAnswered(ErrorCode.member_id_required, member_id))
                return
            self._static[instance] = member_id
        known = self._heard(member_id)
        if known is None:
            reply(m.JoinAnswered(self._is_current(member_id, self.generation)))
            return
        member = known
        is_new = member.subscription != subscription or (member_id == self.leader and self.phase == "STABLE")
        member.subscription, member.joining = subscription, reply
        if self.phase in ("STABLE", "SYNCING") and not is_new:
            self._answer_join(member_id, member)  # the answer to the same join was lost
            return
        self._prepare()
        self._complete()

    def _replace(self, before: str, member_id: str, instance: str) -> bool:
        """Let a new member have the place of the one before of its group.instance.id; return whether the generation
        goes on."""
        member = self.members.pop(before)
        self._fenced.add(before)
        self._static[instance] = member_id
        self.members[member_id] = member
        member.expires = self.world.now + self.session_ms
        self._watch(member_id, member)
        if member.joining is not None:
            member.joining(m.JoinAnswered(ErrorCode.fenced_instance_id))
        if member.syncing is not None:
            member.syncing(m.SyncAnswered(ErrorCode.fenced_instance_id))
        member.joining = member.syncing = None
        if self.leader == before:
            self.leader = member_id
        if before in self._assignments:
            self._assignments[member_id] = self._assignments.pop(before)
        return self.phase == "STABLE"

    def sync(self, member_id: str, generation: int, assignments: Mapping[str, bytes], reply: Reply) -> None:
        """Take a SyncGroup."""
        member = self._heard(member_id)
        code = self._is_current(member_id, generation)
        if member is None or code != ErrorCode.none:
            reply(m.SyncAnswered(code))
        elif self.phase == "PREPARING":
            reply(m.SyncAnswered(ErrorCode.rebalance_in_progress))
        else:
            member.syncing = reply
            if self.phase == "SYNCING" and member_id == self.leader:
                self._assignments, self.phase = dict(assignments), "STABLE"
            if self.phase == "STABLE":
                self._answer_syncs(ErrorCode.none)

    def heartbeat(self, member_id: str, generation: int, sent_ms: int, reply: Reply) -> None:
        """Take a Heartbeat."""
        self._heard(member_id)
        code = self._is_current(member_id, generation)
        if code == ErrorCode.none and self.phase == "PREPARING":
            code = ErrorCode.rebalance_in_progress
        reply(m.HeartbeatAnswered(code, sent_ms))

    def leave(self, member_id: str, reply: Reply) -> None:
        """Take a LeaveGroup."""
        self._remove(member_id)
        reply(m.LeaveAnswered())

    # ---------------------------------------- sessions

    def _heard(self, member_id: str) -> _Member | None:
        member = self.members.get(member_id)
        if member is not None:
            member.expires = self.world.now + self.session_ms
        return member

    def _watch(self, member_id: str, member: _Member) -> None:
        """Count the member out when its session ends; that of one which waits for others does not end."""
        if self.members.get(member_id) is not member:
            return
        left = member.expires - self.world.now
        if left <= 0 and member.joining is None and member.syncing is None:
            self.world.note("group", f"counts {member_id} out")
            self._remove(member_id)
        else:
            self.world.after(left if left > 0 else self.session_ms, lambda: self._watch(member_id, member))

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.joining is not None:
            member.joining(m.JoinAnswered(ErrorCode.unknown_member_id))
        if member.syncing is not None:
            member.syncing(m.SyncAnswered(ErrorCode.unknown_member_id))
        if member.subscription or self.phase == "PREPARING":
            self._prepare()
            self._complete()

    # ---------------------------------------- generations

    def _prepare(self) -> None:
        if self.phase != "PREPARING":
            self.phase = "PREPARING"
            self._answer_syncs(ErrorCode.rebalance_in_progress)
            generation = self.generation
            self.world.after(self.rebalance_ms, lambda: self._give_up_waiting(generation))

    def _give_up_waiting(self, generation: int) -> None:
        """Go on without the members that do not join."""
        if self.phase == "PREPARING" and self.generation == generation:
            for name in [name for name, member in self.members.items() if member.joining is None]:
                self._remove(name)

    def _complete(self) -> None:
        if self.phase != "PREPARING" or any(member.joining is None for member in self.members.values()):
            return
        self.generation += 1
        if not self.members:
            self.phase = "EMPTY"
            return
        self.leader = self.leader if self.leader in self.members else min(self.members)
        self.phase, self._assignments = "SYNCING", {}
        self.world.note("group", f"generation {self.generation}: {', '.join(self.members)}")
        for name, member in list(self.members.items()):
            self._answer_join(name, member)

    def _answer_join(self, name: str, member: _Member) -> None:
        reply, member.joining = member.joining, None
        member.expires = self.world.now + self.session_ms
        subscriptions = {each: one.subscription for each, one in self.members.items()} if name == self.leader else {}
        assert reply is not None
        reply(m.JoinAnswered(ErrorCode.none, name, self.generation, self.leader, subscriptions))

    def _answer_syncs(self, code: int) -> None:
        for name, member in self.members.items():
            if member.syncing is not None:
                reply, member.syncing = member.syncing, None
                member.expires = self.world.now + self.session_ms
                reply(m.SyncAnswered(code, self._assignments.get(name, b"")))
