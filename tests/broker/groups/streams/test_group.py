"""Groups of Kafka Streams (KIP-1071): topology, topics, tasks, epochs, static members, endpoints, restarts."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.groups.modern.heartbeat import LEAVE, LEAVE_FOR_A_WHILE
from penstock_broker.groups.streams.heartbeat import read_request
from penstock_broker.groups.streams.tasks import NO_TASKS, TaskId, Tasks, as_messages, as_tasks
from penstock_broker.groups.streams.topology import GroupStatus
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.test_group import Client as ClassicClient
from tests.broker.groups.classic.test_group import code_of
from tests.broker.groups.consumer.test_group import Consumer
from tests.broker.groups.support import DAY_MS, GroupBroker

SESSION_MS = 45_000
REBALANCE_MS = 20_000
NO_REPORT: Message = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"))
TAGS = [{"key": "k", "value": "v"}]


def topic_info(name: str, partitions: int = 0, **configs: str) -> Message:
    """Return an internal topic as members send it."""
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": 0,
        "topic_configs": [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def subtopology(id: str, *sources: str, **fields: Any) -> Message:
    """Return a sub-topology as members send it."""
    empty: Message = {
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    return {"subtopology_id": id, "source_topics": list(sources), **empty, **fields}


def topology(*subtopologies: Message, epoch: int = 0) -> Message:
    """Return a topology as members send it."""
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


READS_T = topology(subtopology("0", "t"))
COUNTS = topology(
    subtopology("0", "t", repartition_sink_topics=["r"]),
    subtopology(
        "1",
        repartition_source_topics=[topic_info("r", cleanup_policy="delete")],
        state_changelog_topics=[topic_info("c", cleanup_policy="compact")],
    ),
)


class StreamsClient:
    """A member of the group `g` that keeps to the protocol.

    Args:
        broker: the broker.
        sent: the topology of its program.
        settings: other fields of its first heartbeat.
    """

    def __init__(self, broker: GroupBroker, sent: Message = READS_T, **settings: Any) -> None:
        self._broker = broker
        self._sent = sent
        self._settings = settings
        self.member_id = str(uuid.uuid4())
        self.instance_id: str | None = settings.pop("instance_id", None)
        self.epoch = 0
        self.endpoints_epoch = -1
        self.owned: Tasks = NO_TASKS
        self.wanted: Tasks = NO_TASKS

    def beat(self, **changes: Any) -> Message:
        """Send a heartbeat; take over what the answer says."""
        joins = self.epoch == 0
        body: Message = {
            "group_id": "g",
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "endpoint_information_epoch": self.endpoints_epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_MS if joins else -1,
            "topology": self._sent if joins else None,
            "active_tasks": as_messages(self.owned),
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": self.member_id if joins else None,
            "user_endpoint": None,
            "client_tags": [] if joins else None,
            "task_offsets": None,
            "task_end_offsets": None,
            "shutdown_application": False,
        }
        settings = self._settings if joins else {}
        request = read_request(body | settings | changes, "client", "/127.0.0.1")
        answer = self._broker.groups.streams_heartbeat("g", request)
        if answer["member_epoch"] >= 0:
            self.epoch = answer["member_epoch"]
            self.endpoints_epoch = answer["endpoint_information_epoch"]
            if "active_tasks" in answer:
                self.wanted = as_tasks(answer["active_tasks"])
        return answer

    def follow(self) -> Message:
        """Send a heartbeat, and own what the answer says."""
        answer = self.beat()
        self.owned = self.wanted
        return answer

    def leave(self, epoch: int = LEAVE, **changes: Any) -> Message:
        """Leave the group."""
        return self.beat(
            member_epoch=epoch, topology=None, active_tasks=None, standby_tasks=None, warmup_tasks=None, **changes
        )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    opened = GroupBroker(tmp_path)
    opened.create_topic("t", 4)
    yield opened
    opened.close()


def settle(*clients: StreamsClient) -> None:
    """Let members exchange heartbeats until all have what they are to have."""
    for _ in range(8):
        for client in clients:
            client.follow()
            owned = [task for each in clients for task in each.owned]
            assert len(owned) == len(set(owned))


def described(broker: GroupBroker) -> Message:
    return broker.groups.streams_group("g").description()


def statuses(answer: Message) -> dict[int, str]:
    return {each["status_code"]: each["status_detail"] for each in answer["status"]}


def tasks(*numbers: int, of: str = "0") -> Tasks:
    return frozenset((of, number) for number in numbers)


def test_the_first_member_gets_all_tasks(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    answer = client.beat()
    assert answer["error_code"] == ErrorCode.none
    assert (answer["member_epoch"], answer["heartbeat_interval"], answer["status"]) == (2, 1_000, [])
    assert answer["active_tasks"] == [{"subtopology_id": "0", "partitions": [0, 1, 2, 3]}]
    assert (answer["standby_tasks"], answer["warmup_tasks"]) == ([], [])
    assert described(broker)["group_state"] == "Stable"
    assert "active_tasks" not in client.beat()  # nothing has changed


def test_tasks_move_once_their_owner_has_given_them_up(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    one.follow()
    two.follow()
    assert (two.epoch, two.owned) == (3, NO_TASKS)
    one.beat()
    assert (one.epoch, len(one.wanted)) == (2, 2)  # its epoch changes once it has given up the others
    assert described(broker)["group_state"] == "Reconciling"
    two.follow()
    assert two.owned == NO_TASKS
    one.owned = one.wanted
    one.follow()
    assert one.epoch == 3
    two.follow()
    assert one.owned | two.owned == tasks(0, 1, 2, 3)
    assert len(two.owned) == 2
    assert described(broker)["group_state"] == "Stable"


def test_the_tasks_of_a_member_that_leaves_are_assigned_again(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    settle(one, two)
    two.leave()
    assert described(broker)["group_state"] == "Assigning"
    settle(one)
    assert one.owned == tasks(0, 1, 2, 3)


def test_the_group_stays_with_its_topology(broker: GroupBroker) -> None:
    one = StreamsClient(broker)
    one.beat()
    other = StreamsClient(broker, topology(subtopology("0", "t"), subtopology("1", "t")))
    assert code_of(other.beat) == ErrorCode.invalid_request
    one.leave()
    assert code_of(other.beat) == ErrorCode.invalid_request


def test_an_older_topology_is_stale(broker: GroupBroker) -> None:
    one = StreamsClient(broker, topology(subtopology("0", "t"), epoch=2))
    assert statuses(one.beat()) == {}
    answer = StreamsClient(broker, topology(subtopology("0", "t"), epoch=1)).beat()
    assert statuses(answer) == {
        GroupStatus.STALE_TOPOLOGY: "The member's topology epoch 1 is behind the group's topology epoch 2."
    }


def test_internal_topics_are_created_with_the_partitions_of_their_sources(broker: GroupBroker) -> None:
    client = StreamsClient(broker, COUNTS)
    answer = client.follow()
    assert statuses(answer) == {GroupStatus.MISSING_INTERNAL_TOPICS: "Internal topics are missing: c, r"}
    assert client.owned == NO_TASKS
    assert described(broker)["group_state"] == "NotReady"
    assert {name: len(broker.topics.by_name(name).partitions) for name in "rc"} == {"r": 4, "c": 4}
    assert broker.topics.by_name("c").configs == {"cleanup.policy": "compact"}
    answer = client.follow()
    assert statuses(answer) == {}
    assert client.owned == tasks(0, 1, 2, 3) | tasks(0, 1, 2, 3, of="1")
    shown = described(broker)["topology"]["subtopologies"][1]
    assert [
        topic["partitions"] for topic in (*shown["state_changelog_topics"], *shown["repartition_source_topics"])
    ] == [
        4,
        4,
    ]


def test_internal_topics_that_cannot_be_created_are_named(broker: GroupBroker) -> None:
    replicated = topic_info("c") | {"replication_factor": 3}
    answer = StreamsClient(broker, topology(subtopology("0", "t", state_changelog_topics=[replicated]))).beat()
    [(code, detail)] = statuses(answer).items()
    assert code == GroupStatus.MISSING_INTERNAL_TOPICS
    assert detail == (
        "Internal topics are missing: c; creation of c failed: Unable to replicate the partition 3 time(s): there is 1 "
        "broker"
    )


def test_tasks_are_assigned_when_the_source_topics_appear(broker: GroupBroker) -> None:
    client = StreamsClient(broker, topology(subtopology("0", "t", "later")))
    assert statuses(client.follow()) == {GroupStatus.MISSING_SOURCE_TOPICS: "Source topics later are missing."}
    assert (client.epoch, client.owned) == (2, NO_TASKS)
    broker.create_topic("later", 6)
    assert statuses(client.follow()) == {}
    assert (client.epoch, client.owned) == (3, tasks(*range(6)))
    broker.delete_topic("later")
    client.follow()
    client.follow()
    assert (client.owned, described(broker)["group_state"]) == (NO_TASKS, "NotReady")


def test_a_topic_that_grows_has_more_tasks(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    client.follow()
    broker.topics.grow(broker.topics.by_name("t"), 6)
    client.follow()
    assert (client.epoch, client.owned) == (3, tasks(*range(6)))


def test_an_application_is_shut_down_for_all_members(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    settle(one, two)
    expected = (
        f"Streams group member {one.member_id} encountered a fatal error and requested a shutdown for the entire "
        "application."
    )
    assert statuses(one.beat(shutdown_application=True)) == {GroupStatus.SHUTDOWN_APPLICATION: expected}
    assert statuses(two.beat()) == {GroupStatus.SHUTDOWN_APPLICATION: expected}
    one.leave()
    two.leave()
    assert statuses(StreamsClient(broker).beat()) == {}  # an empty group begins anew


def test_a_member_that_leaves_may_shut_down_the_others(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    settle(one, two)
    assert one.leave(shutdown_application=True)["status"] == []
    assert GroupStatus.SHUTDOWN_APPLICATION in statuses(two.beat())


def test_the_first_assignment_may_wait_for_more_members(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_streams_initial_rebalance_delay_ms=3_000)
    broker.create_topic("t", 4)
    one, two = StreamsClient(broker), StreamsClient(broker)
    text = "Assignment delayed due to the configured initial rebalance delay."
    assert statuses(one.follow()) == {GroupStatus.ASSIGNMENT_DELAYED: text}
    assert statuses(two.follow()) == {GroupStatus.ASSIGNMENT_DELAYED: text}
    assert (one.epoch, one.owned, described(broker)["group_state"]) == (1, NO_TASKS, "Assigning")
    broker.timers.advance(3_000)
    settle(one, two)
    assert (len(one.owned), len(two.owned)) == (2, 2)
    broker.close()


def test_the_first_assignment_comes_although_a_member_has_left(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_streams_initial_rebalance_delay_ms=3_000)
    broker.create_topic("t", 4)
    one, two = StreamsClient(broker), StreamsClient(broker)
    one.follow()
    two.follow()
    one.leave()
    assert described(broker)["group_state"] == "Assigning"
    broker.timers.advance(3_000)
    settle(two)
    assert two.owned == tasks(0, 1, 2, 3)
    broker.close()


def test_members_learn_the_endpoints_of_all(broker: GroupBroker) -> None:
    one = StreamsClient(broker, user_endpoint={"host": "one", "port": 1})
    two = StreamsClient(broker, user_endpoint={"host": "two", "port": 2})
    assert one.follow()["partitions_by_user_endpoint"] == [
        {
            "user_endpoint": {"host": "one", "port": 1},
            "active_partitions": [{"topic": "t", "partitions": [0, 1, 2, 3]}],
            "standby_partitions": [],
        }
    ]
    assert "partitions_by_user_endpoint" not in one.follow()
    two.follow()
    assert "partitions_by_user_endpoint" in one.beat()
    settle(one, two)
    [for_one, for_two] = two.beat(endpoint_information_epoch=-1)["partitions_by_user_endpoint"]
    assert (for_one["user_endpoint"]["host"], for_two["user_endpoint"]["port"]) == ("one", 2)
    read = [
        number for each in (for_one, for_two) for part in each["active_partitions"] for number in part["partitions"]
    ]
    assert sorted(read) == [0, 1, 2, 3]


def test_members_without_an_endpoint_are_left_out(broker: GroupBroker) -> None:
    assert StreamsClient(broker).beat()["partitions_by_user_endpoint"] == []


# ---------------------------------------- task offsets


def state_of(*numbers: int) -> list[Message]:
    return [{"subtopology_id": "0", "partition": number, "offset": 10} for number in numbers]


@pytest.fixture
def waiting_broker(tmp_path: Path) -> Iterator[GroupBroker]:
    """A broker whose groups wait for members, and then assign to all of them at once."""
    opened = GroupBroker(tmp_path, group_streams_initial_rebalance_delay_ms=3_000)
    opened.create_topic("t", 4)
    yield opened
    opened.close()


def test_tasks_are_assigned_to_members_with_their_state(waiting_broker: GroupBroker) -> None:
    one, two = StreamsClient(waiting_broker), StreamsClient(waiting_broker)
    one.beat(task_offsets=state_of(1, 3))
    two.beat(task_offsets=state_of(0, 2))
    waiting_broker.timers.advance(3_000)
    settle(one, two)
    assert (one.owned, two.owned) == (tasks(1, 3), tasks(0, 2))


def test_the_last_report_of_a_member_counts(waiting_broker: GroupBroker) -> None:
    one, two = StreamsClient(waiting_broker), StreamsClient(waiting_broker)
    one.beat(task_offsets=state_of(1, 3))
    two.beat(task_offsets=state_of(0, 1))
    two.beat()
    one.beat(task_offsets=state_of(2, 3))
    waiting_broker.timers.advance(3_000)
    settle(one, two)
    assert (one.owned, two.owned) == (tasks(2, 3), tasks(0, 1))


def test_a_report_begins_no_epoch(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    settle(one, two)
    epoch, owned = one.epoch, one.owned
    one.beat(task_offsets=state_of(0, 1, 2, 3), task_end_offsets=state_of(0, 1, 2, 3))
    settle(one, two)
    assert (one.epoch, one.owned) == (epoch, owned)


def test_offsets_are_described_and_end_with_the_broker(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    client.beat(task_offsets=state_of(1, 0), task_end_offsets=state_of(0))
    [member] = described(broker)["members"]
    assert (member["task_offsets"], member["task_end_offsets"]) == (state_of(0, 1), state_of(0))
    broker.restart()
    [member] = described(broker)["members"]
    assert (member["task_offsets"], member["task_end_offsets"]) == ([], [])


def test_offsets_of_a_static_member_end_with_its_process(broker: GroupBroker) -> None:
    one = StreamsClient(broker, instance_id="a", process_id="p")
    one.beat(task_offsets=state_of(0))
    one.leave(LEAVE_FOR_A_WHILE)
    assert described(broker)["members"][0]["task_offsets"] == state_of(0)
    StreamsClient(broker, instance_id="a", process_id="p").beat(task_offsets=state_of(1))
    [member] = described(broker)["members"]
    assert member["task_offsets"] == state_of(1)


def test_offsets_of_a_group_have_limited_memory(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_max_bytes=1_000)
    broker.create_topic("t", 4)
    one, two = StreamsClient(broker), StreamsClient(broker)
    one.beat(task_offsets=state_of(0, 1))
    two.beat(task_offsets=state_of(0, 1, 2))
    shown = {each["member_id"]: each["task_offsets"] for each in described(broker)["members"]}
    assert shown == {one.member_id: state_of(0, 1), two.member_id: []}
    one.leave()
    two.beat(task_offsets=state_of(0, 1, 2))
    assert described(broker)["members"][0]["task_offsets"] == state_of(0, 1, 2)
    broker.close()


# ---------------------------------------- the end of members


def test_a_member_without_heartbeats_is_removed(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    settle(one, two)
    broker.timers.advance(SESSION_MS - 1)
    one.beat()
    broker.timers.advance(1)
    assert code_of(two.beat) == ErrorCode.unknown_member_id
    settle(one)
    assert one.owned == tasks(0, 1, 2, 3)


def test_a_member_that_does_not_give_up_its_tasks_is_removed(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    one.follow()
    two.follow()
    one.beat()
    broker.timers.advance(REBALANCE_MS)
    assert code_of(one.beat) == ErrorCode.unknown_member_id


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_member_with_another_epoch_is_fenced(broker: GroupBroker, epoch: int) -> None:
    client = StreamsClient(broker)
    client.follow()
    assert code_of(lambda: client.beat(member_epoch=epoch)) == ErrorCode.fenced_member_epoch


def test_a_member_whose_answer_was_lost_may_continue(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    settle(one, two)
    before = one.epoch
    two.leave()
    one.beat()
    assert one.beat(member_epoch=before)["member_epoch"] == one.epoch
    assert code_of(lambda: one.beat(member_epoch=before, **NO_REPORT)) == (ErrorCode.fenced_member_epoch)


def test_tasks_that_do_not_exist_are_refused(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    client.follow()
    for owned in (tasks(4), tasks(0, of="1")):
        assert code_of(lambda owned=owned: client.beat(active_tasks=as_messages(owned))) == ErrorCode.invalid_request


def test_a_static_member_that_comes_back_keeps_its_tasks(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker, instance_id="a", process_id="p"), StreamsClient(broker)
    settle(one, two)
    epoch, owned = one.epoch, one.owned
    assert code_of(StreamsClient(broker, instance_id="a", process_id="p").beat) == ErrorCode.unreleased_instance_id
    assert one.leave(LEAVE_FOR_A_WHILE)["member_epoch"] == LEAVE_FOR_A_WHILE
    two.follow()
    back = StreamsClient(broker, instance_id="a", process_id="p")
    back.follow()
    assert (back.epoch, back.owned) == (epoch, owned)
    assert described(broker)["group_epoch"] == epoch
    assert code_of(one.beat) == ErrorCode.fenced_instance_id


def test_a_static_member_of_another_process_begins_a_new_epoch(broker: GroupBroker) -> None:
    one = StreamsClient(broker, instance_id="a", process_id="p")
    one.follow()
    one.leave(LEAVE_FOR_A_WHILE)
    back = StreamsClient(broker, instance_id="a", process_id="q")
    back.follow()
    assert (back.epoch, back.owned) == (one.epoch + 1, tasks(0, 1, 2, 3))


def test_the_tasks_of_a_static_member_that_stays_away_are_given_away(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker, instance_id="a"), StreamsClient(broker)
    settle(one, two)
    one.leave(LEAVE_FOR_A_WHILE)
    broker.timers.advance(SESSION_MS - 1)
    two.follow()
    broker.timers.advance(1)
    settle(two)
    assert two.owned == tasks(0, 1, 2, 3)


def test_a_group_has_a_limited_number_of_members(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_max_size=1)
    broker.create_topic("t", 4)
    one = StreamsClient(broker)
    one.beat()
    assert code_of(StreamsClient(broker).beat) == ErrorCode.group_max_size_reached
    one.beat()
    broker.close()


def test_a_group_has_a_limited_size(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_max_bytes=1_000)
    broker.create_topic("t", 4)
    tags = [{"key": "k", "value": "v" * 400}]
    one, two = StreamsClient(broker, client_tags=tags), StreamsClient(broker, client_tags=tags)
    settle(one, two)
    assert code_of(StreamsClient(broker, client_tags=tags).beat) == ErrorCode.group_max_size_reached
    settle(one, two)
    one.leave()
    two.leave()
    broker.groups.delete_group("g")
    large = topology(subtopology("0", "t", repartition_sink_topics=["r" * 1_000]))
    assert code_of(StreamsClient(broker, large).beat) == ErrorCode.group_max_size_reached
    assert broker.groups.groups() == []
    broker.close()


def test_the_description_of_a_topology_has_a_limited_size(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_max_bytes=1_000)
    broker.create_topic("t", 4)
    one = StreamsClient(broker)
    one.follow()
    text: Message = {"subtopologies": [{"subtopology_id": "0" * 1_001, "nodes": []}], "global_stores": []}
    update = broker.groups.streams_group("g").update_topology_description
    assert code_of(lambda: update(one.member_id, 0, text)) == ErrorCode.group_max_size_reached
    broker.close()


# ---------------------------------------- offsets


def commit(
    broker: GroupBroker, client: StreamsClient, epoch: int, *partitions: tuple[str, int], version: int = 9
) -> None:
    broker.groups.check_commit("g", client.member_id, None, epoch, version, partitions)


def test_members_commit_in_their_epoch(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    settle(one, two)
    commit(broker, one, one.epoch, ("t", 0))
    assert code_of(lambda: commit(broker, one, one.epoch + 1, ("t", 0))) == ErrorCode.stale_member_epoch
    assert code_of(lambda: commit(broker, one, one.epoch, ("t", 0), version=8)) == ErrorCode.unsupported_version
    assert code_of(lambda: broker.groups.check_commit("g", "x", None, 1, 9)) == ErrorCode.unknown_member_id
    later = ("g", one.member_id, None, one.epoch + 1, [("t", 0)])
    assert code_of(lambda: broker.groups.check_member(*later)) == ErrorCode.illegal_generation


def test_a_member_commits_the_tasks_that_it_kept_in_an_earlier_epoch(broker: GroupBroker) -> None:
    one, two = StreamsClient(broker), StreamsClient(broker)
    settle(one)
    before = one.epoch
    settle(one, two)
    assert one.epoch > before
    [kept, *_] = sorted(one.owned)
    [moved, *_] = sorted(two.owned)
    commit(broker, one, before, ("t", kept[1]))
    assert code_of(lambda: commit(broker, one, before, ("t", moved[1]))) == ErrorCode.stale_member_epoch
    broker.create_topic("u")
    assert code_of(lambda: commit(broker, one, before, ("u", 0))) == ErrorCode.stale_member_epoch


def test_members_fetch_in_their_epoch(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    client.follow()
    broker.groups.check_fetch("g", client.member_id, client.epoch)
    broker.groups.check_fetch("g", None, -1)
    assert code_of(lambda: broker.groups.check_fetch("g", client.member_id, 1)) == ErrorCode.stale_member_epoch


def test_offsets_of_topics_that_members_read_stay(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    broker.commit("g", "t", 0, 7)
    client.follow()
    assert broker.groups.delete_offsets("g", {"t": [0]}) == {("t", 0): ErrorCode.group_subscribed_to_topic}
    client.leave()
    assert broker.groups.delete_offsets("g", {"t": [0]}) == {("t", 0): ErrorCode.none}


# ---------------------------------------- the group among others


def test_a_group_has_one_protocol_while_it_has_members(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    client.follow()
    assert code_of(Consumer(broker).beat) == ErrorCode.group_id_not_found
    assert code_of(lambda: ClassicClient(broker).join()) == ErrorCode.inconsistent_group_protocol
    assert code_of(lambda: broker.groups.describe_consumers("g")) == ErrorCode.group_id_not_found
    client.leave()
    ClassicClient(broker).join()
    assert code_of(StreamsClient(broker).beat) == ErrorCode.group_id_not_found
    assert code_of(lambda: broker.groups.streams_group("g")) == ErrorCode.group_id_not_found


def test_another_topology_may_follow_a_classic_group(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    client.follow()
    client.leave()
    classic = Consumer(broker)
    classic.beat()
    classic.leave()
    other = StreamsClient(broker, topology(subtopology("0", "t"), subtopology("1", "t")))
    other.follow()
    assert len(other.owned) == 8


def test_a_refused_member_leaves_no_group(broker: GroupBroker) -> None:
    assert code_of(StreamsClient(broker).leave) == ErrorCode.group_id_not_found
    loop = topology(
        subtopology("0", repartition_source_topics=[topic_info("r")], repartition_sink_topics=["r"]),
    )
    assert code_of(StreamsClient(broker, loop).beat) == ErrorCode.streams_invalid_topology
    assert broker.groups.groups() == []


def test_a_group_without_members_is_deleted(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    client.follow()
    assert code_of(lambda: broker.groups.delete_group("g")) == ErrorCode.non_empty_group
    client.leave()
    broker.groups.delete_group("g")
    broker.restart()
    assert broker.groups.groups() == []


def test_an_unused_group_expires(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    client.follow()
    client.leave()
    broker.timers.advance(8 * DAY_MS)
    broker.groups.expire_offsets()
    assert broker.groups.groups() == []


def test_a_restarted_broker_continues(broker: GroupBroker) -> None:
    one = StreamsClient(broker, COUNTS, user_endpoint={"host": "one", "port": 1}, client_tags=TAGS)
    two = StreamsClient(broker, COUNTS, instance_id="a")
    settle(one, two)
    one.beat()
    three = StreamsClient(broker, COUNTS)
    three.follow()
    one.beat()  # it has tasks to give up
    before = described(broker)
    broker.restart()
    after = described(broker)
    assert {**before, "topology": None} == {**after, "topology": None}
    settle(one, two, three)
    assert sorted(len(each.owned) for each in (one, two, three)) == [2, 3, 3]
    assert described(broker)["topology"] == before["topology"]
    broker.restart()
    broker.timers.advance(SESSION_MS)
    assert described(broker)["members"] == []


def test_the_description_of_the_topology_is_asked_for_until_there_is_one(broker: GroupBroker) -> None:
    client = StreamsClient(broker)
    assert client.follow()["topology_description_required"]
    assert described(broker)["topology_description"] is None
    group = broker.groups.streams_group("g")
    pushed: Message = {"subtopologies": [{"subtopology_id": "0", "nodes": []}], "global_stores": []}
    assert code_of(lambda: group.update_topology_description("x", 0, pushed)) == ErrorCode.unknown_member_id
    assert code_of(lambda: group.update_topology_description(client.member_id, 1, pushed)) == ErrorCode.invalid_request
    assert client.follow()["topology_description_required"]
    group.update_topology_description(client.member_id, 0, pushed)
    assert not client.follow()["topology_description_required"]
    assert described(broker)["topology_description"] == pushed
    broker.restart()
    assert client.follow()["topology_description_required"]


def test_a_description_has_members_with_their_tasks(broker: GroupBroker) -> None:
    client = StreamsClient(broker, user_endpoint={"host": "h", "port": 65_535}, client_tags=TAGS)
    client.follow()
    group = described(broker)
    [member] = group["members"]
    assert (group["group_epoch"], group["assignment_epoch"], group["assignor_name"]) == (2, 2, "sticky")
    assert group["topology"]["subtopologies"][0]["source_topics"] == ["t"]
    assert (member["member_id"], member["process_id"], member["topology_epoch"]) == (client.member_id,) * 2 + (0,)
    assert (member["user_endpoint"], member["client_tags"]) == (
        {"host": "h", "port": 65_535},
        TAGS,
    )
    assert as_tasks(member["assignment"]["active_tasks"]) == client.owned
    assert member["target_assignment"] == member["assignment"]
    listed: list[TaskId] = sorted(client.owned)
    assert listed == [("0", number) for number in range(4)]
