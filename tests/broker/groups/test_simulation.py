"""Groups under random clients, time and restarts, in one process without sockets.

Steps are drawn by Hypothesis, which finds a short list of steps for a failure; many more with PENSTOCK_CRASH=all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.group import ClassicGroup
from penstock_broker.groups.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from penstock_broker.groups.consumer.group import ConsumerGroup
from penstock_broker.groups.modern.heartbeat import LEAVE, LEAVE_FOR_A_WHILE
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.support import REBALANCE_MS, Client, code_of
from tests.broker.groups.consumer.test_group import SESSION_MS, Consumer
from tests.broker.groups.support import GroupBroker

EXAMPLES = 3_000 if os.environ.get("PENSTOCK_CRASH") == "all" else 60
PARTITIONS = 6
TIMES = [0, 300, 3_000, 11_000, 30_000, 70_000]
GONE = (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id, ErrorCode.illegal_generation)

Step = tuple[str, int, int]

_many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class ClassicMember(Client):
    """A client of a classic group that does what a consumer does next.

    Args:
        simulation: receives what it is assigned.
        instance_id: its name as a static member.
        settings: other fields of its JoinGroup.
    """

    def __init__(self, simulation: ClassicSimulation, instance_id: str | None, **settings: Any) -> None:
        super().__init__(simulation.broker, "c", instance_id, **settings)
        self._simulation = simulation
        self._waits_since = 0
        self.phase = "out"

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer."""
        return (self.phase == "joining" and self.joined is None) or (self.phase == "syncing" and self.synced is None)

    def forget(self) -> None:
        """Start as a new process."""
        self.member_id, self.generation, self.phase = "", -1, "out"

    def lose_connection(self) -> None:
        """Lose what it waits for; it asks again."""
        if self.is_waiting:
            self.phase = "out"

    def step(self) -> None:
        """Send the next request, unless it waits for an answer."""
        self.look()
        if self.is_waiting:
            return
        try:
            match self.phase:
                case "out":
                    self.phase = "joining"
                    self.join()
                case "joined":
                    self.phase = "syncing"
                    self.sync(self._assignments() if self.is_leader else None, protocol=None)
                case _:
                    self._note(self.beat())
        except ApiError as error:
            self._note(error.code)
        self.look()

    def _note(self, code: ErrorCode) -> None:
        if code in GONE:
            self.forget()
        elif code != ErrorCode.none:
            self.phase = "out"

    def look(self) -> None:
        """Take note of an answer that has come."""
        if self.phase == "joining" and self.joined is not None:
            code = self.joined["error_code"]
            self.phase = "joined"
            if code == ErrorCode.member_id_required:
                self.member_id = self.joined["member_id"]
                self.phase = "out"
            elif code != ErrorCode.none:
                self._note(code)
        elif self.phase == "syncing" and self.synced is not None:
            self.phase = "stable"
            if self.synced["error_code"] == ErrorCode.none:
                self._simulation.check_assignment(self.generation, self.member_id, self.synced["assignment"])
            else:
                self._note(self.synced["error_code"])

    def _assignments(self) -> dict[str, bytes]:
        assert self.joined is not None
        members: list[Message] = self.joined["members"]
        shares: dict[str, bytes] = {member["member_id"]: b"" for member in members}
        for partition in range(PARTITIONS if members else 0):
            shares[members[partition % len(members)]["member_id"]] += bytes([partition])
        return shares


class ClassicSimulation:
    """A classic group and its clients.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: GroupBroker) -> None:
        self.broker = broker
        self.members = [
            ClassicMember(self, None),
            ClassicMember(self, None, needs_member_id=True),
            ClassicMember(self, "one"),
            ClassicMember(self, "two"),
            ClassicMember(self, "two"),  # a second process under the same name
        ]
        self._given: dict[int, dict[str, bytes]] = {}

    @property
    def group(self) -> ClassicGroup | None:
        """The group, if it exists."""
        [found] = self.broker.groups.groups() or [None]
        assert found is None or isinstance(found, ClassicGroup)
        return found

    def check_assignment(self, generation: int, member_id: str, assignment: bytes) -> None:
        """Check that a generation has one assignment, with one owner for a partition."""
        given = self._given.setdefault(generation, {})
        assert given.setdefault(member_id, assignment) == assignment
        owned = b"".join(given.values())
        # A static member that is back under another id has what it had before.
        instances = {member.member_id: member.instance_id for member in self.members}
        if not any(instances.get(each) in ("one", "two") for each in given):
            assert len(owned) == len(set(owned))

    def run(self, steps: Sequence[Step]) -> None:
        """Take steps, and check after each of them what must hold."""
        for action, number, other in steps:
            member = self.members[number % len(self.members)]
            match action:
                case "step":
                    member.step()
                case "all":
                    for each in self.members:
                        each.step()
                case "leave":
                    if member.member_id:
                        member.leave()
                    member.forget()
                case "crash":
                    member.forget()
                case "stale":
                    self._act_as_of_old(member, other)
                case "restart":
                    self.broker.restart()
                    for each in self.members:
                        each.look()
                        each.lose_connection()
                case _:
                    self.broker.timers.advance(TIMES[other % len(TIMES)])
            self._check()
        self._end()

    def _act_as_of_old(self, member: ClassicMember, back: int) -> None:
        identity = member.identity._replace(generation=member.generation - 1 - back)
        if not member.member_id or identity.generation < 0:
            return
        groups = self.broker.groups
        assert code_of(lambda: groups.classic_group("g").heartbeat(identity)) in GONE
        assert code_of(lambda: groups.check_commit("g", *identity, 8)) in GONE
        assert code_of(lambda: groups.check_member("g", *identity)) in GONE

        def sync() -> None:
            groups.classic_group("g").sync(
                identity, None, None, {}, lambda response: pytest.fail("an old member was answered")
            )

        assert code_of(sync) in GONE

    def _check(self) -> None:
        group = self.group
        for member in self.members:
            member.look()
        members = len(group.members) if group is not None else 0
        assert members <= len(self.members) + 40
        known = {} if group is None else group.members
        for member in self.members:
            if member.phase != "stable" or group is None:
                continue
            accepted = code_of(lambda member=member: self.broker.groups.classic_group("g").heartbeat(member.identity))  # type: ignore[misc]  # bound now
            if accepted == ErrorCode.none and group.state == "Stable":
                assert member.generation == group.generation.number
                assert known[member.member_id].assignment == self._given[group.generation.number][member.member_id]

    def _end(self) -> None:
        """Let all clients stop; everything is answered and nothing is left."""
        for _ in range(20):
            self.broker.timers.advance(NEW_MEMBER_JOIN_TIMEOUT_MS + 2 * REBALANCE_MS)
        for member in self.members:
            member.look()
            assert not member.is_waiting
        assert self.group is None or self.group.is_empty
        if self.group is not None:
            self.broker.groups.delete_group("g")
        assert self.broker.groups.groups() == []
        assert len(self.broker.timers) == 1  # the expiry of offsets


_actions = st.sampled_from(["step", "step", "step", "all", "all", "leave", "crash", "stale", "time", "restart"])
_steps = st.lists(st.tuples(_actions, st.integers(0, 4), st.integers(0, 5)), max_size=60)


@_many
@given(steps=_steps)
def test_a_classic_group_keeps_its_rules(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    broker = GroupBroker(tmp_path_factory.mktemp("classic"))
    try:
        ClassicSimulation(broker).run(steps)
    finally:
        broker.close()


@_many
@given(steps=_steps)
def test_clients_that_go_on_reach_a_stable_group(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    broker = GroupBroker(tmp_path_factory.mktemp("classic"))
    try:
        simulation = ClassicSimulation(broker)
        simulation.members.pop()  # two processes under one name fence each other for ever
        ClassicSimulation.run(simulation, [])
        for action, number, other in steps:
            simulation.members[number % 4].step() if action != "time" else broker.timers.advance(TIMES[other])
        for _ in range(60):
            for member in simulation.members:
                member.step()
            broker.timers.advance(3_000)
        assert [member.phase for member in simulation.members] == ["stable"] * 4
        group = simulation.group
        assert group is not None
        owned = b"".join(member.assignment for member in group.members.values())
        assert sorted(owned) == list(range(PARTITIONS))
    finally:
        broker.close()


class ConsumerSimulation:
    """A consumer group and its clients, which keep to the protocol or vanish.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: GroupBroker) -> None:
        self.broker = broker
        self.consumers = [
            Consumer(broker, "t"),
            Consumer(broker, "t", "u"),
            Consumer(broker, topic_names=(), topic_regex="[tuv]"),
            Consumer(broker, "t", instance_id="one"),
        ]

    @property
    def group(self) -> ConsumerGroup | None:
        """The group, if it exists."""
        [found] = self.broker.groups.groups() or [None]
        assert found is None or isinstance(found, ConsumerGroup)
        return found

    def run(self, steps: Sequence[Step]) -> None:
        """Take steps, and check after each of them what must hold."""
        for action, number, other in steps:
            at = number % len(self.consumers)
            match action:
                case "step":
                    self.beat(at)
                case "lost":
                    self._beat_without_answer(at)
                case "all":
                    for each in range(len(self.consumers)):
                        self.beat(each)
                case "leave":
                    self._leave(at, LEAVE)
                case "crash":
                    self._replace(at)
                case "away":
                    self._leave(at, LEAVE_FOR_A_WHILE)
                case "topics":
                    self._change_topics("tuv"[number % 3], other)
                case "restart":
                    self.broker.restart()
                case _:
                    self.broker.timers.advance(TIMES[other % len(TIMES)])
            self._check()
        self._end()

    def _replace(self, at: int) -> None:
        old = self.consumers[at]
        new = Consumer(self.broker, *old.topics, instance_id=old.instance_id, **old.settings)
        self.consumers[at] = new

    def beat(self, at: int) -> None:
        """Let a client send a heartbeat; one that is fenced gives up everything and joins again."""
        try:
            self.consumers[at].follow()
        except ApiError as error:
            if error.code != ErrorCode.unreleased_instance_id:
                self._replace(at)

    def _beat_without_answer(self, at: int) -> None:
        consumer = self.consumers[at]
        before = (consumer.epoch, consumer.owned, consumer.wanted)
        self.beat(at)
        if self.consumers[at] is consumer:
            consumer.epoch, consumer.owned, consumer.wanted = before
            consumer.has_missed_an_answer = True

    def _leave(self, at: int, epoch: int) -> None:
        consumer = self.consumers[at]
        if consumer.epoch > 0 and (epoch == LEAVE or consumer.instance_id is not None):
            code = code_of(lambda: consumer.leave(epoch))
            assert code in (*GONE, ErrorCode.none, ErrorCode.group_id_not_found)
        self._replace(at)

    def _change_topics(self, name: str, other: int) -> None:
        topics = self.broker.topics
        existing = {topic.name: topic for topic in topics.all()}
        if name not in existing:
            self.broker.create_topic(name, 2)
        elif other < 2:
            self.broker.delete_topic(name)
        elif len(existing[name].partitions) < 8:
            topics.grow(existing[name], len(existing[name].partitions) + 2)

    def _check(self) -> None:
        group = self.group
        if group is None:
            return
        held = [partition for member in group.members.values() for partition in member.assigned | member.revoking]
        assert len(held) == len(set(held))
        owned = [each for consumer in self.consumers if consumer.member_id in group.members for each in consumer.owned]
        assert len(owned) == len(set(owned))
        for consumer in self.consumers:
            member = group.members.get(consumer.member_id)
            if member is not None:
                assert consumer.owned <= member.assigned | member.revoking
        assert len(self.broker.timers) <= 2 * len(group.members) + 1

    def _end(self) -> None:
        """Let clients settle: all partitions have one owner. Then all vanish, and nothing is left."""
        for _ in range(SESSION_MS // 1_000 + 15):  # members that crashed are removed meanwhile
            for at in range(len(self.consumers)):
                self.beat(at)
            self._check()
            self.broker.timers.advance(1_000)
        owned = sorted(each for consumer in self.consumers for each in consumer.owned)
        assert owned == sorted(
            (topic.topic_id, number)
            for topic in self.broker.topics.all()
            for number in range(len(topic.partitions))
            if topic.name in "tuv"
        )
        self.broker.timers.advance(SESSION_MS)
        assert self.group is not None
        assert self.group.is_empty
        self.broker.groups.delete_group("g")
        assert self.broker.groups.groups() == []
        assert len(self.broker.timers) == 1  # the expiry of offsets


_consumer_actions = st.sampled_from(
    ["step", "step", "step", "all", "all", "lost", "leave", "crash", "away", "topics", "time", "restart"]
)


@_many
@given(steps=st.lists(st.tuples(_consumer_actions, st.integers(0, 3), st.integers(0, 5)), max_size=60))
@example(steps=[("step", 1, 0), ("all", 0, 0), ("step", 1, 0), ("lost", 0, 0)])
def test_a_consumer_group_keeps_its_rules(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    broker = GroupBroker(tmp_path_factory.mktemp("consumer"))
    broker.create_topic("t", 6)
    try:
        ConsumerSimulation(broker).run(steps)
    finally:
        broker.close()
