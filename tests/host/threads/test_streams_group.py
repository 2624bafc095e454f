"""The protocol of groups of Kafka Streams: what is sent, two members and a coordinator in memory, and real brokers."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from penstock.client.api import GroupIdentity, NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.client.sockets.connection import Api
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Repartitioned
from penstock.errors import (
    ConfigError,
    KafkaError,
    RetriableError,
    StreamsError,
    TaskMigratedError,
    TopologyError,
    UnsupportedVersionError,
)
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.group import GroupMembership
from penstock.host.threads.group_protocol import Request
from penstock.host.threads.member_file import MemberFile
from penstock.host.threads.streams_group import StreamsProtocol, encode_topology
from penstock.host.threads.subscription import Endpoint
from penstock.host.threads.takeover import members_in_the_way
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock_broker.embedded_broker import EmbeddedBroker
from penstock_broker.wire.codec import Message, request_decoder, request_encoder, response_decoder, response_encoder
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import Cursor, Sink
from tests.host.threads.support import Listening
from tests.host.threads.test_host import (
    NAMES,
    WordCount,
    check_that_a_static_member_goes_on_with_new_partitions,
    check_that_instances_share_and_take_over,
    check_that_one_instance_shuts_down_both,
)
from tests.support.brokers import RunningBroker
from tests.support.kafka import KAFKA_VERSION
from tests.support.protocol_client import ProtocolClient
from tests.support.waiting import until

WAIT_SECONDS = 120
TASKS = frozenset(TaskId(0, number) for number in range(4))
SETTINGS = {"group.protocol": "streams"}


def config_of(application: str = "app", servers: str = "localhost:1", **settings: object) -> StreamsConfig:
    given = {"application.id": application, "bootstrap.servers": servers, **SETTINGS, **settings}
    return StreamsConfig(given, environment={})


def layout_with(config: StreamsConfig, topic: str = "in") -> Layout:
    builder = StreamsBuilder()
    builder.stream(topic).foreach(lambda key, value: None)
    return layout_of(built_topology(builder.build(), str(config["application.id"])), config, {topic: 4})


# ---------------------------------------- what is sent


def test_the_topology_has_all_topics_with_their_settings() -> None:
    builder = StreamsBuilder()
    config = config_of(**{"topic.retention.ms": 5, "replication.factor": 3})
    clicks = builder.stream("clicks").repartition(Repartitioned.as_("r").with_number_of_partitions(4))
    clicks.join(builder.table("users"), lambda click, user: click).group_by(lambda key, value: value).count()
    topology = encode_topology(layout_of(built_topology(builder.build(), "app"), config, {"clicks": 2, "users": 4}))
    by_source = {tuple(one["source_topics"]): one for one in topology["subtopologies"]}
    assert topology["epoch"] == 0
    assert {one["subtopology_id"] for one in topology["subtopologies"]} == {"0", "1", "2"}
    assert by_source["clicks",]["repartition_sink_topics"] == ["app-r-repartition"]
    joined = by_source["users",]
    [repartition], [group] = joined["repartition_source_topics"], joined["copartition_groups"]
    assert (repartition["name"], repartition["partitions"], repartition["replication_factor"]) == (
        "app-r-repartition",
        4,
        3,
    )
    assert (group["source_topics"], group["repartition_source_topics"]) == ([0], [0])
    [counted] = [one for one in topology["subtopologies"] if not one["source_topics"]]
    [changelog], [source] = counted["state_changelog_topics"], counted["repartition_source_topics"]
    assert source["partitions"] == 0  # follows from the topics before it
    assert {"key": "cleanup.policy", "value": "compact"} in changelog["topic_configs"]
    assert {"key": "retention.ms", "value": "5"} in changelog["topic_configs"]


def test_a_broadcast_has_a_partition_for_each_task_whatever_the_coordinator_would_choose() -> None:
    builder = StreamsBuilder()
    builder.stream("control").broadcast(Repartitioned.as_("b")).merge(builder.stream("data"))
    counts = {"control": 1, "data": 5}
    topology = encode_topology(layout_of(built_topology(builder.build(), "app"), config_of(), counts))
    [source] = topology["subtopologies"][1]["repartition_source_topics"]
    assert (source["name"], source["partitions"]) == ("app-b-broadcast-repartition", 5)


def encoded_and_decoded(api: Api, body: Message, encoder: Any, decoder: Any) -> Message:
    sink = Sink()
    encoder(api.key, api.newest)(sink, body)
    content: Message = decoder(api.key, api.newest)(Cursor(memoryview(b"".join(bytes(chunk) for chunk in sink.chunks))))
    return content


class Coordinator:
    """Gives all tasks to the member that joined last, when the one before has given them up."""

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.epoch = 0
        self.assigned: dict[str, frozenset[int]] = {}
        self.told: dict[str, frozenset[int]] = {}
        self.owned: dict[str, frozenset[int]] = {}
        self.fenced: set[str] = set()
        self.members: dict[str, str] = {}
        """The member of each instance id that is not released."""
        self.addresses: dict[str, Message] = {}
        self.wants_topology = False
        self.push_error = ErrorCode.none

    def answer(self, request: Request) -> Message:
        """Return the answer to a request; both pass as bytes."""
        body = encoded_and_decoded(request.api, request.body, request_encoder, request_decoder)
        self.requests.append(body)
        content = self._content(request.api.key, body)
        return encoded_and_decoded(request.api, content, response_encoder, response_decoder)

    def _content(self, key: int, body: Message) -> Message:
        match key:
            case 88:
                return {**self._heard(body), "topology_description_required": self.wants_topology}
            case 93:
                self.wants_topology = self.push_error != ErrorCode.none
                return {"error_code": self.push_error, "error_message": "the store is full"}
            case _:
                return self._described()

    def _heard(self, body: Message) -> Message:
        member, epoch = body["member_id"], body["member_epoch"]
        instance = body["instance_id"]
        if epoch < 0:
            self.owned.pop(member, None)
            self.assigned.pop(member, None)
            if self.members.get(instance) == member:
                del self.members[instance]
            return {"member_epoch": epoch}
        if epoch == 0 and instance in self.members:
            return {"error_code": ErrorCode.unreleased_instance_id, "error_message": f"Owned by {self.members}."}
        if epoch == 0:
            if instance is not None:
                self.members[instance] = member
            self.epoch += 1
            self.assigned = {**dict.fromkeys(self.assigned, frozenset()), member: frozenset(range(4))}
            self.addresses[member] = body["user_endpoint"]
            self.told.pop(member, None)
            self.fenced.discard(member)
        if member in self.fenced or member not in self.assigned:
            return {"error_code": ErrorCode.fenced_member_epoch, "error_message": "too old"}
        self.owned[member] = frozenset(n for one in body["active_tasks"] for n in one["partitions"])
        others = frozenset[int]().union(*(owned for each, owned in self.owned.items() if each != member))
        given = self.assigned[member] - others
        answer = {"member_id": member, "member_epoch": self.epoch, "heartbeat_interval": 1_000, "status": []}
        answer |= {"partitions_by_user_endpoint": self._endpoints(), "endpoint_information_epoch": self.epoch}
        if self.told.get(member) == given:
            return answer
        self.told[member] = given
        return answer | {**self._tasks(given)}

    def _tasks(self, given: frozenset[int]) -> Message:
        active = [{"subtopology_id": "0", "partitions": sorted(given)}] if given else []
        return {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []}

    def _endpoints(self) -> list[Message]:
        return [
            {
                "user_endpoint": self.addresses[member],
                "active_partitions": [{"topic": "in", "partitions": sorted(given)}],
                "standby_partitions": [],
            }
            for member, given in self.told.items()
        ]

    def _described(self) -> Message:
        members = [
            {"member_id": member, "assignment": self._tasks(given), "target_assignment": self._tasks(given)}
            for member, given in self.told.items()
        ]
        return {"groups": [{"group_id": "app", "members": members, "group_state": "Stable"}]}


class State:
    """The state of tasks on disk (implements ChangelogPositions)."""

    def __init__(self, positions: Mapping[TaskId, int]) -> None:
        self._positions = positions

    def positions(self) -> Mapping[TaskId, int]:
        return self._positions

    def ends(self) -> Mapping[TaskId, int]:
        return self._positions


class Player:
    """A member of the coordinator in memory."""

    def __init__(
        self,
        coordinator: Coordinator,
        server: str,
        positions: Mapping[TaskId, int] | None = None,
        **settings: object,
    ) -> None:
        config = config_of(**{"application.server": server, "client.tag.zone": "north", **settings})
        state = None if positions is None else State(positions)
        self.protocol = StreamsProtocol(layout_with(config), config, f"process of {server}", state)
        self.coordinator = coordinator
        self.now = 0
        self.told: list[m.MemberCommand] = []

    def happen(self, event: m.MemberEvent, *, is_lost: bool = False) -> None:
        """Let something happen, and all that follows. is_lost: the answers do not arrive."""
        steps = self.protocol.member.handle(event, self.now)
        for step in steps:
            if (request := self.protocol.request(step)) is None:
                self.told.append(step)
                continue
            answer = self.coordinator.answer(request)
            self.happen(m.Disconnected() if is_lost else request.take(answer))

    def give_up(self, tasks: frozenset[TaskId]) -> None:
        """Close tasks behind all assignments."""
        self.happen(m.TasksRevoked(tasks, sum(isinstance(step, v.Assigned) for step in self.told)))

    def heartbeat(self, *, is_lost: bool = False) -> None:
        self.now += 1_000
        self.happen(m.Tick(), is_lost=is_lost)


def test_a_member_says_who_it_is_when_it_joins() -> None:
    coordinator = Coordinator()
    player = Player(coordinator, "p:1")
    player.happen(m.Begin())
    joined, acknowledged = coordinator.requests
    assert joined["process_id"] == "process of p:1"
    assert joined["user_endpoint"] == {"host": "p", "port": 1}
    assert joined["client_tags"] == [{"key": "zone", "value": "north"}]
    assert joined["rebalance_timeout"] == 300_000
    assert joined["topology"] == encode_topology(layout_with(config_of()))
    assert joined["active_tasks"] == joined["standby_tasks"] == joined["warmup_tasks"] == []
    assert acknowledged["topology"] is acknowledged["process_id"] is None
    assert acknowledged["active_tasks"] == [{"subtopology_id": "0", "partitions": [0, 1, 2, 3]}]
    assert player.told == [v.Assigned(TASKS)]


def test_tasks_move_when_their_owner_has_given_them_up() -> None:
    coordinator = Coordinator()
    first, second = Player(coordinator, "p:1"), Player(coordinator, "q:2")
    first.happen(m.Begin())
    second.happen(m.Begin())
    first.heartbeat()
    second.heartbeat()
    assert (first.told[-1], second.told[-1]) == (v.Assigned(frozenset()), v.Assigned(frozenset()))
    first.give_up(TASKS)
    second.heartbeat()
    assert second.told[-1] == v.Assigned(TASKS)
    second.heartbeat()
    assert sorted(second.protocol.member.endpoints) == [
        Endpoint("p:1", frozenset(), frozenset()),
        Endpoint("q:2", TASKS, frozenset()),
    ]


def test_an_assignment_whose_answer_was_lost_is_asked_for() -> None:
    coordinator = Coordinator()
    first, second = Player(coordinator, "p:1"), Player(coordinator, "q:2")
    first.happen(m.Begin())
    second.happen(m.Begin())
    first.heartbeat(is_lost=True)
    assert first.told == [v.Assigned(TASKS)]
    first.heartbeat()
    assert first.told[-1] == v.Assigned(frozenset())


def test_a_member_that_is_fenced_joins_again_with_nothing() -> None:
    coordinator = Coordinator()
    player = Player(coordinator, "p:1")
    player.happen(m.Begin())
    coordinator.fenced.add(player.protocol.member.member_id)
    player.heartbeat()
    assert isinstance(player.told[-1], v.MembershipLost)
    player.give_up(TASKS)
    assert player.told[-1] == v.Assigned(TASKS)
    assert [request["member_epoch"] for request in coordinator.requests] == [0, 1, 1, 0, 2]
    player.happen(m.LeaveRequested())
    assert player.protocol.member.has_left


STATIC = {"group.instance.id": "one"}


def test_a_static_member_sends_its_instance_id_with_each_heartbeat() -> None:
    coordinator = Coordinator()
    player = Player(coordinator, "p:1", **STATIC)
    player.happen(m.Begin())
    player.heartbeat()
    player.happen(m.LeaveRequested())
    assert [(one["instance_id"], one["member_epoch"]) for one in coordinator.requests] == [
        ("one-1", 0),
        ("one-1", 1),
        ("one-1", 1),
        ("one-1", -2),
    ]
    assert player.protocol.member.has_left
    assert Player(coordinator, "p:1").protocol.instance == ""


def test_a_static_member_joins_again_under_its_own_instance_id() -> None:
    coordinator = Coordinator()
    player = Player(coordinator, "p:1", **STATIC)
    player.happen(m.Begin())
    coordinator.fenced.add(player.protocol.member.member_id)
    player.heartbeat()
    player.give_up(TASKS)
    assert player.told[-1] == v.Assigned(TASKS)
    assert [request["member_epoch"] for request in coordinator.requests] == [0, 1, 1, -2, 0, 2]


def test_a_static_member_whose_first_answer_is_lost_joins_again() -> None:
    coordinator = Coordinator()
    player = Player(coordinator, "p:1", **STATIC)
    player.happen(m.Begin(), is_lost=True)
    player.heartbeat()
    assert player.told == [v.Assigned(TASKS)]


def test_a_second_member_with_an_instance_id_is_refused() -> None:
    coordinator = Coordinator()
    first, second = (Player(coordinator, server, **STATIC) for server in ("p:1", "q:2"))
    first.happen(m.Begin())
    second.happen(m.Begin())
    [refused] = second.told
    assert isinstance(refused, m.Refused)
    first.heartbeat()
    assert first.told == [v.Assigned(TASKS)]


@pytest.mark.parametrize(("settings", "epoch"), [({}, -1), (STATIC, -2)])
def test_the_member_of_a_killed_instance_is_removed(settings: dict[str, object], epoch: int) -> None:
    request = Player(Coordinator(), "p:1", **settings).protocol.removal("former")
    assert request is not None
    assert (request.body["member_id"], request.body["member_epoch"]) == ("former", epoch)


@pytest.mark.parametrize(
    ("code", "message", "error", "expected"),
    [
        (ErrorCode.unreleased_instance_id, "owned by x.", KafkaError, "'app' still has a member 'one-1': owned by x. "),
        (ErrorCode.fenced_instance_id, "fenced by x", KafkaError, "Another process is the member 'one-1' of the group"),
        (
            ErrorCode.invalid_request,
            "Static membership is not yet supported.",
            ConfigError,
            "the static member 'one-1' .* needs Kafka 4.4",
        ),
        (ErrorCode.invalid_request, "Other topology.", TopologyError, "does not accept this instance: Other topology"),
    ],
)
def test_refusals_of_a_static_member_name_it(
    code: ErrorCode, message: str, error: type[StreamsError], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        raise Player(Coordinator(), "p:1", **STATIC).protocol.refusal(code, message) or AssertionError


def test_offsets_of_tasks_are_sent_to_brokers_that_take_them() -> None:
    coordinator = Coordinator()
    player = Player(coordinator, "p:1", positions={TaskId(0, 1): 7})
    player.happen(m.Begin())
    joined, acknowledged = coordinator.requests
    assert joined["task_offsets"] == [{"subtopology_id": "0", "partition": 1, "offset": 7}]
    assert joined["task_end_offsets"] == []
    assert acknowledged["task_offsets"] == []  # the task runs
    request = player.protocol.request(m.JoinStreamsGroup("x"))
    assert request is not None
    assert request.fields(1) == request.body
    assert request.body.keys() - request.fields(0) == {"task_offsets", "task_end_offsets"}


def test_tasks_of_partitions_that_are_not_known_are_left_to_later() -> None:
    coordinator = Coordinator()
    player = Player(coordinator, "p:1")
    player.protocol.request(m.JoinStreamsGroup("x"))
    request = player.protocol.request(m.JoinStreamsGroup("x"))
    assert request is not None
    answer = coordinator.answer(request)
    answer["active_tasks"] = [{"subtopology_id": "0", "partitions": [0, 9]}, {"subtopology_id": "7", "partitions": [0]}]
    heard = request.take(answer)
    assert isinstance(heard, m.StreamsHeartbeatAnswered)
    assert heard.tasks == m.StreamsTasks(frozenset({TaskId(0, 0)}))


def descriptions(coordinator: Coordinator) -> list[Message]:
    return [request for request in coordinator.requests if "topology_description" in request]


def test_the_topology_is_pushed_when_the_coordinator_asks_for_it() -> None:
    coordinator = Coordinator()
    player = Player(coordinator, "p:1")
    player.happen(m.Begin())
    assert descriptions(coordinator) == []
    coordinator.wants_topology = True
    player.heartbeat()
    player.heartbeat()
    [push] = descriptions(coordinator)
    assert (push["group_id"], push["member_id"]) == ("app", player.protocol.member.member_id)
    [subtopology] = push["topology_description"]["subtopologies"]
    source, processor = subtopology["nodes"]
    assert (source["source_topics"], source["successors"]) == (["in"], [processor["name"]])
    assert coordinator.requests[-1]["member_epoch"] == 1


def test_a_topology_that_was_not_stored_is_pushed_again(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Coordinator()
    coordinator.wants_topology = True
    coordinator.push_error = ErrorCode.streams_topology_description_update_failed
    player = Player(coordinator, "p:1")
    player.happen(m.Begin())
    player.heartbeat()
    assert len(descriptions(coordinator)) == 2
    assert "the store is full (STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED)" in caplog.text
    coordinator.push_error = ErrorCode.none
    player.heartbeat()
    player.heartbeat()
    assert len(descriptions(coordinator)) == 3
    assert player.told == [v.Assigned(TASKS)]


def test_no_topology_is_pushed_against_the_configuration() -> None:
    coordinator = Coordinator()
    coordinator.wants_topology = True
    player = Player(coordinator, "p:1", **{"topology.description.push.enabled": "false"})
    player.happen(m.Begin())
    player.heartbeat()
    assert descriptions(coordinator) == []


# ---------------------------------------- brokers


class Instance:
    """A member, and the events that it gives to its core."""

    def __init__(
        self,
        layout: Layout,
        config: StreamsConfig,
        process: str,
        state: State | None = None,
        member_file: MemberFile | None = None,
    ) -> None:
        self.events: queue.SimpleQueue[v.Event] = queue.SimpleQueue()
        self.membership = GroupMembership(layout, config, self.events.put, process, state, member_file=member_file)
        self._assignments = 0

    def next(self) -> v.Event:
        event = self.events.get(timeout=WAIT_SECONDS)
        self._assignments += isinstance(event, v.Assigned)
        return event

    def give_up(self, tasks: frozenset[TaskId]) -> None:
        self.membership.give_up(tasks, self._assignments)

    def has(self, tasks: int) -> frozenset[TaskId]:
        """Wait until the member has so many tasks, and return them."""
        while not (isinstance(event := self.next(), v.Assigned) and len(event.tasks) == tasks):
            assert isinstance(event, v.Assigned), event
        return event.tasks


class Group:
    """A group with a topic of four partitions, and what joins it."""

    def __init__(self, servers: str, unique_name: NAMES, stack: ExitStack) -> None:
        self.name, self.topic = unique_name("app"), unique_name("in")
        self.servers = servers
        self._stack = stack
        self.config = config_of(self.name, servers)
        admin = ConfluentAdmin(self.config)
        stack.callback(admin.close)
        admin.create_topics([NewTopic(self.topic, 4)])

    def instance(
        self, process: str, state: State | None = None, member_file: MemberFile | None = None, **settings: object
    ) -> Instance:
        config = config_of(self.name, self.servers, **settings)
        instance = Instance(layout_with(config, self.topic), config, process, state, member_file)
        self._stack.callback(instance.membership.close)
        instance.membership.start()
        return instance

    def wait_for_topic(self) -> None:
        """Wait until the coordinator knows the topic.

        Before that, Kafka 4.4.0 answers UNKNOWN_SERVER_ERROR to a member with an endpoint: EndpointToPartitionsManager
        expects a topology whose source topics exist. Members without an endpoint wait.
        """
        probe = self.instance("probe")
        probe.has(4)
        probe.membership.leave()
        probe.membership.close()


@pytest.fixture
def kafka(broker: RunningBroker) -> RunningBroker:
    """A broker that has the protocol; the test is skipped on an older Kafka."""
    if broker.kind == "kafka" and tuple(map(int, KAFKA_VERSION.split("."))) < (4, 2):
        pytest.skip(f"Kafka {KAFKA_VERSION} does not have group.protocol=streams")
    return broker


@pytest.fixture
def group(kafka: RunningBroker, unique_name: NAMES) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(kafka.bootstrap_servers, unique_name, stack)


def test_brokers_without_the_protocol_are_named_and_what_to_set(unique_name: NAMES) -> None:
    with EmbeddedBroker() as broker, ExitStack() as stack:
        broker.fail("StreamsGroupHeartbeat", "UNSUPPORTED_VERSION")
        failed = Group(broker.bootstrap_servers, unique_name, stack).instance("p").next()
        assert isinstance(failed, v.MembershipRefused)
        assert isinstance(failed.error, UnsupportedVersionError)
        assert "it needs Kafka 4.2 or later" in str(failed.error)
        assert "set group.protocol=classic" in str(failed.error)


def test_an_error_of_the_coordinator_ends_the_membership(unique_name: NAMES) -> None:
    with EmbeddedBroker() as broker, ExitStack() as stack:
        broker.fail("StreamsGroupHeartbeat", "UNKNOWN_SERVER_ERROR")
        failed = Group(broker.bootstrap_servers, unique_name, stack).instance("p").next()
        assert isinstance(failed, v.MembershipRefused)
        assert not isinstance(failed.error, RetriableError)
        assert "UNKNOWN_SERVER_ERROR" in str(failed.error)


def test_members_share_the_tasks_commit_and_take_over(group: Group) -> None:
    group.wait_for_topic()
    first = group.instance("p", **{"application.server": "p:1"})
    first.has(4)
    second = group.instance("q", **{"application.server": "q:2"})
    kept = first.has(2)
    first.give_up(TASKS - kept)
    assert second.has(2) == TASKS - kept
    there = [Endpoint("p:1", kept, frozenset()), Endpoint("q:2", TASKS - kept, frozenset())]
    assert until(lambda: sorted(first.membership.endpoints()) == there)
    second.membership.commit({TopicPartition(group.topic, 0): OffsetAndMetadata(7, "text")})
    assert second.next() == v.OffsetsCommitted()
    first.membership.leave()
    first.membership.close()
    second.has(4)
    other = StreamsBuilder()
    other.stream(group.topic).group_by_key().count()
    changed = layout_of(built_topology(other.build(), group.name), group.config, {group.topic: 4})
    with ExitStack() as stack:
        refused = Instance(changed, group.config, "r")
        stack.callback(refused.membership.close)
        refused.membership.start()
        failed = refused.next()
        assert isinstance(failed, v.MembershipRefused)
        assert isinstance(failed.error, TopologyError)


def test_a_group_is_in_the_way_of_a_takeover_as_long_as_it_has_members(group: Group) -> None:
    instance = group.instance("p")
    instance.has(4)
    admin = GroupAdmin(group.config)
    described = admin.describe_group(group.name)
    [member] = described.members
    assert (described.group_type, described.state) == ("Streams", "Stable")
    assert list(member.partitions) == [TopicPartition(group.topic, number) for number in range(4)]
    assert "has 1 member" in "".join(members_in_the_way(described))
    instance.membership.leave()
    assert until(lambda: not admin.describe_group(group.name).members)
    empty = admin.describe_group(group.name)
    assert (empty.group_type, list(members_in_the_way(empty))) == ("Streams", [])
    first = TopicPartition(group.topic, 0)
    admin.commit_offsets(group.name, {first: OffsetAndMetadata(0, "text")})  # as Spark and an export do
    classic = Consumer({"bootstrap.servers": group.servers, "group.id": group.name})
    try:
        classic.subscribe([group.topic])
        assert until(lambda: classic.poll(0.1) is not None or bool(classic.assignment()))
        assert admin.committed_offsets(group.name, [first]) == {first: OffsetAndMetadata(0, "text")}
    finally:
        classic.close()
        admin.close()


def test_a_member_that_is_removed_hears_of_it_and_joins_again(group: Group) -> None:
    instance = group.instance("p")
    instance.has(4)
    identity = instance.membership.identity()
    assert identity is not None
    body = {"group_id": group.name, "member_id": identity.member_id, "member_epoch": -1}
    with ProtocolClient(group.servers) as client:
        assert client.call(88, 0, {**body, "endpoint_information_epoch": -1})["error_code"] == ErrorCode.none
    lost = instance.next()
    assert isinstance(lost, v.MembershipLost)
    assert isinstance(lost.error, TaskMigratedError)
    instance.give_up(TASKS)
    instance.has(4)


@pytest.fixture
def static_group(group: Group) -> Group:
    """A group on brokers that have static members; the test is skipped on an older Kafka."""
    if tuple(map(int, KAFKA_VERSION.split("."))) < (4, 4):
        pytest.skip(f"Kafka {KAFKA_VERSION} does not have static members of group.protocol=streams")
    return group


TWO = {"group.instance.id": "two"}


def shared(group: Group) -> tuple[Instance, Instance, frozenset[TaskId]]:
    """Return two static members, and the two tasks of the first one."""
    first = group.instance("p", **STATIC)
    first.has(4)
    second = group.instance("q", **TWO)
    kept = first.has(2)
    first.give_up(TASKS - kept)
    assert second.has(2) == TASKS - kept
    epoch = identity_of(first).generation
    assert until(lambda: identity_of(second).generation >= epoch)
    return first, second, kept


def identity_of(instance: Instance) -> GroupIdentity:
    identity = instance.membership.identity()
    assert identity is not None
    return identity


def test_a_static_member_that_starts_again_has_its_tasks_without_a_rebalance(static_group: Group) -> None:
    first, second, kept = shared(static_group)
    before = identity_of(second)
    first.membership.leave()
    first.membership.close()
    again = static_group.instance("p", **STATIC)
    assert again.has(2) == kept
    second.membership.commit({TopicPartition(static_group.topic, 0): OffsetAndMetadata(7, "text")})
    assert second.next() == v.OffsetsCommitted()
    assert identity_of(second) == before
    assert (identity_of(again).generation, identity_of(again).instance_id) == (before.generation, "one-1")
    again.membership.commit({TopicPartition(static_group.topic, 1): OffsetAndMetadata(8, "text")})
    assert again.next() == v.OffsetsCommitted()


def test_a_second_process_with_an_instance_id_is_refused(static_group: Group) -> None:
    first = static_group.instance("p", **STATIC)
    first.has(4)
    failed = static_group.instance("q", **STATIC).next()
    assert isinstance(failed, v.MembershipRefused)
    assert "still has a member 'one-1'" in str(failed.error)
    assert identity_of(first).member_id in str(failed.error)
    first.membership.commit({TopicPartition(static_group.topic, 0): OffsetAndMetadata(7, "text")})
    assert first.next() == v.OffsetsCommitted()


def test_a_static_member_that_another_process_has_replaced_is_refused(static_group: Group) -> None:
    first = static_group.instance("p", **STATIC)
    first.has(4)
    body = {"group_id": static_group.name, "member_id": identity_of(first).member_id, "instance_id": "one-1"}
    with ProtocolClient(static_group.servers) as client:
        released = client.call(88, 0, {**body, "member_epoch": -2, "endpoint_information_epoch": -1})
        assert released["error_code"] == ErrorCode.none
    static_group.instance("q", **STATIC).has(4)
    lost = first.next()
    if isinstance(lost, v.MembershipLost):  # it had a heartbeat while its instance id was released
        first.give_up(TASKS)
        lost = first.next()
    assert isinstance(lost, v.MembershipRefused)
    assert "member 'one-1'" in str(lost.error)


def test_the_instance_id_of_a_killed_process_is_released_at_its_next_start(static_group: Group, tmp_path: Path) -> None:
    path = tmp_path / "member"
    killed = static_group.instance("p", member_file=MemberFile(path), **STATIC)
    killed.has(4)
    killed.membership.close()
    assert path.exists()
    static_group.instance("p", member_file=MemberFile(path), **STATIC).has(4)


def test_a_static_member_that_is_removed_joins_again(static_group: Group) -> None:
    instance = static_group.instance("p", **STATIC)
    instance.has(4)
    body = {"group_id": static_group.name, "member_id": identity_of(instance).member_id, "instance_id": "one-1"}
    with ProtocolClient(static_group.servers) as client:
        removed = client.call(88, 0, {**body, "member_epoch": -1, "endpoint_information_epoch": -1})
        assert removed["error_code"] == ErrorCode.none
    assert isinstance(instance.next(), v.MembershipLost)
    instance.give_up(TASKS)
    instance.has(4)


@pytest.mark.parametrize("operation", GroupMembershipOperation)
def test_a_closed_static_member_leaves_for_good_only_on_request(
    static_group: Group, operation: GroupMembershipOperation
) -> None:
    first, second, kept = shared(static_group)
    first.membership.leave(operation)
    first.membership.close()
    if operation is GroupMembershipOperation.LEAVE_GROUP:
        assert second.has(4) == TASKS
        return
    with pytest.raises(queue.Empty):  # its tasks wait for it
        second.events.get_nowait()
    assert static_group.instance("p", **STATIC).has(2) == kept


def test_a_dynamic_member_may_remain_in_its_group(group: Group, tmp_path: Path) -> None:
    path = tmp_path / "member"
    instance = group.instance("p", member_file=MemberFile(path))
    instance.has(4)
    member = identity_of(instance).member_id
    instance.membership.leave(GroupMembershipOperation.REMAIN_IN_GROUP)
    instance.membership.close()
    admin = GroupAdmin(group.config)
    try:
        assert [each.member_id for each in admin.describe_group(group.name).members] == [member]
    finally:
        admin.close()
    group.instance("p", member_file=MemberFile(path)).has(4)


def test_tasks_are_assigned_to_members_with_their_state(static_group: Group) -> None:
    first, last = (frozenset(TaskId(0, number) for number in numbers) for numbers in ((0, 1), (2, 3)))
    owner = static_group.instance("o")
    owner.has(4)
    one = static_group.instance("p", State(dict.fromkeys(last, 10)))
    other = static_group.instance("q", State(dict.fromkeys(first, 10)))
    one.has(0)
    other.has(0)
    owner.membership.leave()
    owner.membership.close()  # both are members, so one assignment gives them all of its tasks
    assert (one.has(2), other.has(2)) == (last, first)


def test_a_static_member_goes_on_with_new_partitions(
    static_group: Group, kafka: RunningBroker, tmp_path: Path, unique_name: NAMES
) -> None:
    words = WordCount(kafka, tmp_path, unique_name)
    words.settings |= SETTINGS
    check_that_a_static_member_goes_on_with_new_partitions(words)


def test_of_two_instances_with_one_instance_id_the_second_ends(
    static_group: Group, kafka: RunningBroker, tmp_path: Path, unique_name: NAMES
) -> None:
    words = WordCount(kafka, tmp_path, unique_name)
    del words.settings["session.timeout.ms"]
    words.settings |= {**SETTINGS, **STATIC, "processing.guarantee": "exactly_once_v2"}
    options: dict[str, Any] = {"until_end": False, "make_membership": None}
    first, listening, refused = words.host(**options), Listening(), Listening()
    first.start(listening)
    try:
        words.write("a b", "a c")
        assert until(lambda: words.counts() == {"a": 2, "b": 1, "c": 1})
        own = words.settings["state.dir"]
        words.settings["state.dir"] = str(tmp_path / "other")
        second = words.host(**options)
        second.start(refused)
        assert refused.ended.wait(WAIT_SECONDS)
        assert second.close(60_000)
        assert f"group {words.app!r} still has a member 'one-1'" in str(refused.error)
        assert first.close(60_000)
        words.settings["state.dir"] = own
        first = words.host(**options)
        first.start(listening)
        words.write("a b", "a c")
        assert until(lambda: words.counts() == {"a": 4, "b": 2, "c": 2})
    finally:
        assert first.close(60_000)
    assert listening.error is None


def test_instances_of_one_group_share_the_tasks_and_take_them_over(
    kafka: RunningBroker, tmp_path: Path, unique_name: NAMES
) -> None:
    words = WordCount(kafka, tmp_path, unique_name)
    del words.settings["session.timeout.ms"]
    words.settings |= {**SETTINGS, "processing.guarantee": "exactly_once_v2"}
    check_that_instances_share_and_take_over(words, tmp_path)


def test_one_instance_shuts_down_the_application(kafka: RunningBroker, tmp_path: Path, unique_name: NAMES) -> None:
    words = WordCount(kafka, tmp_path, unique_name)
    words.settings |= SETTINGS
    check_that_one_instance_shuts_down_both(words, tmp_path)
