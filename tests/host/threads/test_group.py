"""A member of a group at a broker: joins, shares tasks, commits, and hears that it is lost."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.errors import ConfigError, KafkaError, TaskMigratedError
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.classic_group import ASSIGNOR, ClassicProtocol
from penstock.host.threads.group import GroupMembership
from penstock.host.threads.group_protocol import Request
from penstock.host.threads.member_file import MemberFile
from penstock.host.threads.member_states import MemberState
from penstock.host.threads.subscription import Endpoint, Rules, Subscription, encode_subscription
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock.testing import EmbeddedBroker
from penstock.windows import TimeWindows
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import JOIN_GROUP, LEAVE_GROUP, OFFSET_FETCH, SYNC_GROUP
from tests.support.brokers import RunningBroker
from tests.support.protocol_client import ProtocolClient
from tests.support.waiting import until

TASKS = frozenset(TaskId(0, number) for number in range(4))
WAIT_SECONDS = 120
NEVER_MS = 3_600_000
SHORT_SESSION = {"session.timeout.ms": 6_000}
"""For a member whose end the others wait for; brokers accept no less."""


class Instance:
    """A member, and the events that it gives to its core."""

    def __init__(
        self, layout: Layout, config: StreamsConfig, process: str, workers: int, member_file: MemberFile | None
    ) -> None:
        self.events: queue.SimpleQueue[v.Event] = queue.SimpleQueue()
        self.membership = GroupMembership(
            layout, config, self.events.put, process, workers=workers, member_file=member_file
        )
        self._assignments = 0

    def next(self) -> v.Event:
        event = self.events.get(timeout=WAIT_SECONDS)
        self._assignments += isinstance(event, v.Assigned)
        return event

    def give_up(self, tasks: frozenset[TaskId]) -> None:
        self.membership.give_up(tasks, self._assignments)

    def assigned(self) -> frozenset[TaskId]:
        event = self.next()
        assert isinstance(event, v.Assigned), event
        return event.tasks


class Group:
    """A group with a topic of four partitions, and what joins it."""

    def __init__(self, broker: RunningBroker, unique_name: Callable[[str], str], stack: ExitStack) -> None:
        self.name, self.topic = unique_name("app"), unique_name("in")
        self.servers = broker.bootstrap_servers
        self._settings = {
            "application.id": self.name,
            "bootstrap.servers": self.servers,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 60_000,  # nobody leaves because a machine is busy
        }
        self.config = StreamsConfig(self._settings)
        self.admin = ConfluentAdmin(self.config)
        stack.callback(self.admin.close)
        self.admin.create_topics([NewTopic(self.topic, 4)])
        builder = StreamsBuilder()
        builder.stream(self.topic).foreach(lambda key, value: None)
        self.layout = layout_of(built_topology(builder.build(), self.name), self.config, {self.topic: 4})
        self._stack = stack

    def instance(
        self,
        process: str = "p",
        layout: Layout | None = None,
        workers: int = 1,
        member_file: MemberFile | None = None,
        **settings: object,
    ) -> Instance:
        config = StreamsConfig({**self._settings, **settings})
        instance = Instance(layout or self.layout, config, process, workers, member_file)
        self._stack.callback(instance.membership.close)
        instance.membership.start()
        return instance

    def client(self) -> ProtocolClient:
        return self._stack.enter_context(ProtocolClient(self.servers))

    def offsets(self, offset: int, metadata: str = "") -> dict[TopicPartition, OffsetAndMetadata]:
        return {TopicPartition(self.topic, 0): OffsetAndMetadata(offset, metadata)}

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Ask the broker itself: librdkafka may add bytes of its memory to the metadata."""
        body = {"group_id": self.name, "topics": [{"name": self.topic, "partition_indexes": [0]}]}
        [found] = self.client().call(OFFSET_FETCH, 7, body)["topics"][0]["partitions"]
        assert found["error_code"] == ErrorCode.none
        offset: int = found["committed_offset"]
        return self.offsets(offset, found["metadata"]) if offset >= 0 else {}


@pytest.fixture
def group(broker: RunningBroker, unique_name: Callable[[str], str]) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(broker, unique_name, stack)


def test_one_member_has_all_tasks_and_commits(group: Group) -> None:
    instance = group.instance()
    assert instance.assigned() == TASKS
    identity = instance.membership.identity()
    assert identity is not None
    assert (identity.group, identity.generation) == (group.name, 1)
    instance.membership.commit(group.offsets(7, "text"))
    assert instance.next() == v.OffsetsCommitted()
    assert group.committed() == group.offsets(7, "text")


def test_kafkas_tools_see_the_member_and_its_partitions(group: Group) -> None:
    assert group.instance().assigned() == TASKS
    described = group.admin.describe_group(group.name)
    [member] = described.members
    assert (described.state, described.assignor) == ("Stable", ASSIGNOR)
    assert sorted(member.partitions) == [TopicPartition(group.topic, number) for number in range(4)]


def test_a_member_with_more_workers_gets_more_tasks(group: Group) -> None:
    first = group.instance("p", workers=3)
    assert first.assigned() == TASKS
    group.instance("q")
    assert len(first.assigned()) == 3


def test_members_share_the_tasks_when_their_owner_has_given_them_up(group: Group) -> None:
    first = group.instance("p", **{"application.server": "p:1"})
    assert first.assigned() == TASKS
    second = group.instance("q", **{"application.server": "q:2"})
    assert second.assigned() == frozenset()
    kept = first.assigned()
    assert len(kept) == 2
    first.give_up(TASKS - kept)
    assert second.assigned() == TASKS - kept
    assert first.assigned() == kept
    there = Endpoint("p:1", kept, frozenset()), Endpoint("q:2", TASKS - kept, frozenset())
    assert sorted(first.membership.endpoints()) == sorted(second.membership.endpoints()) == list(there)


def test_the_tasks_of_a_member_that_leaves_go_to_the_others(group: Group) -> None:
    first = group.instance("p")
    assert first.assigned() == TASKS
    second = group.instance("q")
    assert second.assigned() == frozenset()
    first.membership.leave()
    first.membership.close()
    # How many assignments lie between depends on when the first one left.
    assert until(lambda: second.assigned() == TASKS)


def test_the_tasks_of_a_member_that_is_killed_go_to_the_others_after_its_session(group: Group) -> None:
    first = group.instance("p", **SHORT_SESSION)
    assert first.assigned() == TASKS
    second = group.instance("q")
    assert second.assigned() == frozenset()
    first.membership.close()  # without leaving
    assert until(lambda: second.assigned() == TASKS)


def test_a_process_that_was_killed_has_its_tasks_again_without_waiting_for_its_session(
    group: Group, tmp_path: Path
) -> None:
    path, session = tmp_path / "group-member", {"session.timeout.ms": 600_000}
    first = group.instance("p", member_file=MemberFile(path), **session)
    assert first.assigned() == TASKS
    first.membership.close()  # without leaving
    again = group.instance("p", member_file=MemberFile(path), **session)
    assert again.assigned() == TASKS
    [member] = group.admin.describe_group(group.name).members
    assert path.read_text() == member.member_id
    again.membership.leave()
    again.membership.close()
    assert not path.exists()


def test_a_member_that_is_removed_is_told_so_and_commits_nothing(group: Group) -> None:
    instance = group.instance()
    assert instance.assigned() == TASKS
    [member] = group.admin.describe_group(group.name).members
    removed = group.client().call(
        LEAVE_GROUP, 4, {"group_id": group.name, "members": [{"member_id": member.member_id}]}
    )
    assert removed["error_code"] == ErrorCode.none
    instance.membership.commit(group.offsets(9))
    lost = instance.next()
    assert isinstance(lost, v.MembershipLost)
    assert isinstance(lost.error, TaskMigratedError)
    assert instance.membership.identity() is None
    assert group.committed() == {}
    instance.give_up(TASKS)
    assert instance.assigned() == TASKS
    instance.membership.commit(group.offsets(9))
    assert instance.next() == v.OffsetsCommitted()


def test_a_commit_of_a_membership_that_was_lost_is_not_made_by_the_next_one(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = group.instance()
    assert instance.assigned() == TASKS
    ask, asked = instance.membership._ask_to_commit, list[int]()
    is_asking, may_answer = threading.Event(), threading.Event()

    def held(body: Message, doing: str, deadline: float) -> int:
        [one] = body["topics"][0]["partitions"]
        asked.append(one["committed_offset"])
        if len(asked) > 1:
            return ask(body, doing, deadline)
        is_asking.set()
        assert may_answer.wait(WAIT_SECONDS)
        return int(ErrorCode.coordinator_not_available)

    monkeypatch.setattr(instance.membership, "_ask_to_commit", held)
    instance.membership.commit(group.offsets(9))
    assert is_asking.wait(WAIT_SECONDS)
    [member] = group.admin.describe_group(group.name).members
    group.client().call(LEAVE_GROUP, 4, {"group_id": group.name, "members": [{"member_id": member.member_id}]})
    assert isinstance(instance.next(), v.MembershipLost)
    instance.give_up(TASKS)
    assert instance.assigned() == TASKS
    may_answer.set()
    instance.membership.commit(group.offsets(3))
    assert instance.next() == v.OffsetsCommitted()
    assert asked == [9, 3]
    assert group.committed() == group.offsets(3)


def test_a_static_member_that_starts_again_has_its_tasks_without_a_rebalance(group: Group) -> None:
    first = group.instance("p", **{"group.instance.id": "one"})
    assert first.assigned() == TASKS
    second = group.instance("q", **{"group.instance.id": "two"})
    assert second.assigned() == frozenset()
    kept = first.assigned()
    first.give_up(TASKS - kept)
    assert (second.assigned(), first.assigned()) == (TASKS - kept, kept)
    before = first.membership.identity()
    first.membership.leave()
    first.membership.close()
    again = group.instance("p", **{"group.instance.id": "one"})
    assert again.assigned() == kept
    after = again.membership.identity()
    assert before is not None
    assert after is not None
    assert (before.generation, "one-1") == (after.generation, after.instance_id)
    again.membership.commit(group.offsets(3))
    assert again.next() == v.OffsetsCommitted()


def test_of_two_static_members_with_one_name_the_first_is_refused(group: Group) -> None:
    first = group.instance("p", **{"group.instance.id": "one"})
    assert first.assigned() == TASKS
    assert group.instance("q", **{"group.instance.id": "one"}).assigned() == TASKS
    failed = first.next()
    assert isinstance(failed, v.MembershipRefused)
    assert "Another process is the member 'one-1'" in str(failed.error)
    assert first.membership.identity() is None


def test_a_member_that_steps_back_leaves_its_tasks_and_joins_again(group: Group) -> None:
    first = group.instance("p")
    assert first.assigned() == TASKS
    second = group.instance("q")
    assert second.assigned() == frozenset()
    first.membership.step_back(RuntimeError("stalled"))
    assert until(lambda: isinstance(first.next(), v.MembershipLost))
    assert until(lambda: second.assigned() == TASKS)
    first.give_up(TASKS)
    assert first.assigned() == frozenset()


def test_all_members_hear_that_one_shuts_down_the_application(group: Group) -> None:
    first = group.instance("p")
    assert first.assigned() == TASKS
    second = group.instance("q", **{"group.instance.id": "two"})
    assert second.assigned() == frozenset()
    first.give_up(TASKS - first.assigned())
    assert until(lambda: bool(second.assigned()))
    second.membership.shut_down()
    events = iter(first.next, None)
    told = next(event for event in events if isinstance(event, v.ApplicationShutDown))
    assert "(SHUTDOWN_APPLICATION): member two-1." in str(told.error)
    first.membership.commit(group.offsets(7))
    assert first.next() == v.OffsetsCommitted()
    assert until(lambda: second.next() == v.ApplicationShutDown(None))
    for instance in (first, second):
        instance.membership.leave()
        instance.membership.close()
    assert until(lambda: not group.admin.describe_group(group.name).members)
    again = group.instance("q", **{"group.instance.id": "two"})
    assert again.assigned() == TASKS


def join(group: Group, member: str = "") -> Message:
    """Return the request of a member that has nothing."""
    rules = Rules(group.layout.groups)
    metadata = encode_subscription(Subscription(1, "raw", rules.application, -1, []), rules)
    return {
        "group_id": group.name,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": ASSIGNOR, "metadata": metadata}],
    }


def raw_member(group: Group, client: ProtocolClient) -> str:
    """Return the id of a new member, which has not joined yet."""
    answer = client.call(JOIN_GROUP, 9, join(group))
    assert answer["error_code"] == ErrorCode.member_id_required
    member: str = answer["member_id"]
    return member


def test_commits_go_on_while_a_join_waits_for_others(group: Group) -> None:
    instance = group.instance()
    assert instance.assigned() == TASKS
    slow, other = group.client(), group.client()
    member = raw_member(group, slow)
    joined = slow.call(JOIN_GROUP, 9, join(group, member))
    body: dict[str, Any] = {"group_id": group.name, "member_id": member, "generation_id": joined["generation_id"]}
    body |= {"protocol_type": "consumer", "protocol_name": ASSIGNOR, "assignments": []}
    assert slow.call(SYNC_GROUP, 5, body)["error_code"] == ErrorCode.none
    kept = instance.assigned()
    # A third member joins. The instance joins too, and both wait for the second one.
    third = raw_member(group, other)
    other.send(JOIN_GROUP, 9, join(group, third))
    assert until(lambda: group.admin.describe_group(group.name).state.startswith("Preparing"))
    for offset in range(20):
        instance.membership.commit(group.offsets(offset))
        assert instance.next() == v.OffsetsCommitted()
    assert group.committed() == group.offsets(19)
    slow.send(JOIN_GROUP, 9, join(group, member))
    assert instance.assigned() <= kept


@pytest.fixture
def faulty() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_a_member_joins_and_commits_though_the_coordinator_fails_at_first(
    faulty: EmbeddedBroker, unique_name: Callable[[str], str]
) -> None:
    with ExitStack() as stack:
        group = Group(RunningBroker("embedded", faulty.bootstrap_servers), unique_name, stack)
        faulty.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=1)
        faulty.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=1)
        faulty.lose_answer("JoinGroup")
        faulty.drop_connection("SyncGroup")
        instance = group.instance(**SHORT_SESSION)  # a lost answer leaves a member that its session alone ends
        assert instance.assigned() == TASKS
        faulty.fail("OffsetCommit", "NOT_COORDINATOR", times=1)
        faulty.drop_connection("OffsetCommit")
        faulty.fail("OffsetCommit", "REBALANCE_IN_PROGRESS", times=2)
        faulty.lose_answer("OffsetCommit")
        instance.membership.commit(group.offsets(3))
        assert instance.next() == v.OffsetsCommitted()
        assert group.committed() == group.offsets(3)
        faulty.fail("Heartbeat", "NOT_COORDINATOR", times=1)
        faulty.drop_connection("Heartbeat")
        faulty.fail("Heartbeat", "REBALANCE_IN_PROGRESS", times=1)
        assert instance.assigned() == TASKS


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_an_answer_that_is_lost_while_its_connection_stays_open_is_asked_for_again(
    faulty: EmbeddedBroker, unique_name: Callable[[str], str], api: str
) -> None:
    with ExitStack() as stack:
        group = Group(RunningBroker("embedded", faulty.bootstrap_servers), unique_name, stack)
        instance = group.instance(**SHORT_SESSION)
        assert instance.assigned() == TASKS
        member = instance.membership.identity()
        assert member is not None
        faulty.delay(api, NEVER_MS)
        faulty.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
        assert instance.assigned() == TASKS
        again = instance.membership.identity()
        assert again is not None
        assert again.member_id == member.member_id  # the session has not ended


def test_a_member_whose_leader_dies_before_it_has_planned_goes_on_without_it_though_it_is_not_told(
    faulty: EmbeddedBroker, unique_name: Callable[[str], str]
) -> None:
    with ExitStack() as stack:
        group = Group(RunningBroker("embedded", faulty.bootstrap_servers), unique_name, stack)
        client = group.client()
        leader = raw_member(group, client)
        assert client.call(JOIN_GROUP, 9, join(group, leader))["leader"] == leader
        faulty.delay("SyncGroup", NEVER_MS)
        instance = group.instance(**SHORT_SESSION)
        assert until(lambda: group.admin.describe_group(group.name).state.startswith("Preparing"))
        assert client.call(JOIN_GROUP, 9, join(group, leader))["leader"] == leader
        assert until(lambda: instance.membership._member.state is MemberState.SYNCING)
        left = {"group_id": group.name, "members": [{"member_id": leader}]}
        assert group.client().call(LEAVE_GROUP, 4, left)["error_code"] == ErrorCode.none
        assert instance.assigned() == TASKS


def test_a_refused_commit_of_a_transaction_ends_a_membership_whose_join_got_no_answer(
    faulty: EmbeddedBroker, unique_name: Callable[[str], str]
) -> None:
    with ExitStack() as stack:
        group = Group(RunningBroker("embedded", faulty.bootstrap_servers), unique_name, stack)
        instance = group.instance()  # its session is so long that it does not ask again
        assert instance.assigned() == TASKS
        member = instance.membership.identity()
        assert member is not None
        faulty.delay("JoinGroup", NEVER_MS)
        faulty.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
        removed = {"group_id": group.name, "members": [{"member_id": member.member_id}]}
        assert until(lambda: instance.membership._member.state is MemberState.JOINING)
        assert group.client().call(LEAVE_GROUP, 4, removed)["error_code"] == ErrorCode.none
        instance.membership.commit_refused(ErrorCode.unknown_member_id, member)
        assert isinstance(instance.next(), v.MembershipLost)
        instance.give_up(TASKS)
        assert instance.assigned() == TASKS


def test_heartbeats_come_before_the_session_ends(group: Group) -> None:
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms=60000: expected less than session"):
        group.instance(**{"heartbeat.interval.ms": 60_000})


def test_members_of_one_process_id_see_each_other(group: Group) -> None:
    first = group.instance("p")
    assert first.assigned() == TASKS
    assert not first.membership.fenced()
    group.instance("p")
    assert len(first.assigned()) < len(TASKS)
    assert first.membership.fenced()


def test_a_member_joins_again_after_an_error_of_its_own(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = group.instance()
    assert instance.assigned() == TASKS
    request, left = ClassicProtocol.request, [KeyError("unexpected")]

    def failing(protocol: ClassicProtocol, step: m.MemberCommand) -> Request | None:
        if left and isinstance(step, m.Heartbeat):
            raise left.pop()
        return request(protocol, step)

    monkeypatch.setattr(ClassicProtocol, "request", failing)
    refused = instance.next()
    assert isinstance(refused, v.MembershipRefused)
    assert isinstance(refused.error, KeyError)
    instance.give_up(TASKS)
    assert instance.assigned() == TASKS


def test_a_newcomer_whose_store_is_of_another_kind_is_refused(group: Group) -> None:
    def layout(windowed: bool) -> Layout:
        builder = StreamsBuilder()
        grouped = builder.stream(group.topic).group_by_key()
        counted = grouped.windowed_by(TimeWindows.of_size_with_no_grace(5_000)) if windowed else grouped
        counted.count(Materialized.as_("counts"))
        return layout_of(built_topology(builder.build(), group.name), group.config, {group.topic: 4})

    assert group.instance(layout=layout(windowed=False)).assigned() == TASKS
    failed = group.instance("q", layout(windowed=True)).next()
    assert isinstance(failed, v.MembershipRefused)
    assert "need the same topology with the same stores" in str(failed.error)


def test_a_newcomer_with_another_topology_is_refused_and_the_others_go_on(group: Group) -> None:
    running = group.instance()
    assert running.assigned() == TASKS
    builder = StreamsBuilder()
    builder.stream(group.topic).group_by_key().count()
    builder.stream("bills").foreach(lambda key, value: None)
    topics = {group.topic: 4, "bills": 4}
    failed = group.instance("q", layout_of(built_topology(builder.build(), group.name), group.config, topics)).next()
    assert isinstance(failed, v.MembershipRefused)
    assert "All programs under one application.id need the same topology" in str(failed.error)
    assert running.assigned() == TASKS
    running.membership.commit(group.offsets(3))
    assert until(lambda: isinstance(running.next(), v.OffsetsCommitted))


def test_a_group_of_others_is_refused_with_the_reason(group: Group) -> None:
    settings = {"bootstrap.servers": group.servers, "group.id": group.name, "log_level": 0}
    consumer = Consumer(settings)
    consumer.subscribe([group.topic])
    try:
        assert until(lambda: bool(consumer.poll(0.05)) or bool(consumer.assignment()))
        failed = group.instance().next()
        assert isinstance(failed, v.MembershipRefused)
        assert isinstance(failed.error, KafkaError)
        assert "members of another program" in str(failed.error)
    finally:
        consumer.close()
