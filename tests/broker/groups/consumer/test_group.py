"""The consumer protocol of groups (KIP-848): targets, reconciliation, epochs, static members, restarts."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.groups.assignment import Assignment, as_assignment
from penstock_broker.groups.consumer.heartbeat import HeartbeatRequest
from penstock_broker.groups.modern.heartbeat import LEAVE, LEAVE_FOR_A_WHILE
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.test_group import Client as ClassicClient
from tests.broker.groups.classic.test_group import code_of
from tests.broker.groups.support import DAY_MS, GroupBroker

SESSION_MS = 45_000
REBALANCE_MS = 20_000


class Consumer:
    """A client of the group `g` that keeps to the protocol.

    Args:
        broker: the broker.
        topics: what it reads.
        instance_id: its name as a static member.
        settings: other fields of its heartbeats.
    """

    def __init__(self, broker: GroupBroker, *topics: str, instance_id: str | None = None, **settings: Any) -> None:
        self._broker = broker
        self.topics = topics or ("t",)
        self.settings = settings
        self.instance_id = instance_id
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: Assignment = frozenset()
        self.wanted: Assignment = frozenset()
        self.has_missed_an_answer = False

    def beat(self, **changes: Any) -> Message:
        """Send a heartbeat; take over what the answer says."""
        says_all = self.epoch == 0 or self.has_missed_an_answer
        request = HeartbeatRequest(
            self.member_id,
            self.epoch,
            self.instance_id,
            None,
            REBALANCE_MS if says_all else None,
            "client",
            "/127.0.0.1",
            self.topics if says_all else None,
            None,
            None,
            self.owned,
        )
        self.has_missed_an_answer = False
        if says_all:
            request = request._replace(**self.settings)
        answer = self._broker.groups.consumer_heartbeat("g", request._replace(**changes))
        if answer["error_code"] == ErrorCode.none and answer["member_epoch"] >= 0:
            self.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.wanted = as_assignment(answer["assignment"]["topic_partitions"])
        return answer

    def follow(self) -> None:
        """Send a heartbeat, and own what the answer says."""
        self.beat()
        self.owned = self.wanted

    def leave(self, epoch: int = LEAVE) -> None:
        """Leave the group."""
        self.beat(member_epoch=epoch, owned=None)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the partitions that it owns."""
        return sorted(number for _, number in self.owned)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    opened = GroupBroker(tmp_path)
    opened.create_topic("t", 6)
    yield opened
    opened.close()


def settle(*consumers: Consumer) -> None:
    """Let consumers exchange heartbeats until all have what they are to have."""
    for _ in range(10):
        for consumer in consumers:
            consumer.follow()
            owned = [partition for each in consumers for partition in each.owned]
            assert len(owned) == len(set(owned))


def state_of(broker: GroupBroker) -> str:
    state: str = broker.groups.describe_consumers("g")["group_state"]
    return state


def failure(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


def test_the_first_member_gets_everything_at_once(broker: GroupBroker) -> None:
    consumer = Consumer(broker)
    consumer.follow()
    assert (consumer.epoch, consumer.numbers) == (1, [0, 1, 2, 3, 4, 5])
    assert state_of(broker) == "Stable"
    assert consumer.beat()["assignment"] is None  # nothing changed


def test_a_member_waits_for_what_another_gives_up(broker: GroupBroker) -> None:
    first, second = Consumer(broker), Consumer(broker)
    first.follow()
    second.follow()
    assert (second.epoch, second.numbers) == (2, [])
    assert state_of(broker) == "Reconciling"
    assert len(as_assignment(first.beat()["assignment"]["topic_partitions"])) == 3
    assert first.epoch == 1  # it owns them still
    second.follow()
    assert second.numbers == []
    first.owned = first.wanted
    first.follow()
    assert first.epoch == 2
    second.follow()
    assert (len(first.numbers), len(second.numbers)) == (3, 3)
    second.follow()
    assert state_of(broker) == "Stable"


def test_members_share_what_they_subscribe_to(broker: GroupBroker) -> None:
    broker.create_topic("u", 2)
    consumers = [Consumer(broker, "t"), Consumer(broker, "t", "u"), Consumer(broker, "u", "missing")]
    settle(*consumers)
    assert sum(len(consumer.owned) for consumer in consumers) == 8
    consumers[0].leave()
    settle(*consumers[1:])
    assert (len(consumers[1].owned), len(consumers[2].owned)) == (6, 2)


def test_topics_that_come_grow_and_go_are_noticed(broker: GroupBroker) -> None:
    consumer = Consumer(broker, "t", "later")
    settle(consumer)
    broker.create_topic("later", 1)
    settle(consumer)
    assert len(consumer.owned) == 7
    broker.topics.grow(broker.topics.by_name("later"), 3)
    settle(consumer)
    assert len(consumer.owned) == 9
    broker.delete_topic("t")
    settle(consumer)
    assert consumer.numbers == [0, 1, 2]


def test_a_pattern_follows_the_topics(broker: GroupBroker) -> None:
    consumer = Consumer(broker, topic_names=(), topic_regex="t|in-.*")
    settle(consumer)
    assert len(consumer.owned) == 6
    broker.create_topic("in-1", 1)
    broker.create_topic("in", 1)
    settle(consumer)
    assert len(consumer.owned) == 7
    assert broker.groups.describe_consumers("g")["members"][0]["subscribed_topic_regex"] == "t|in-.*"
    broker.restart()
    settle(consumer)
    assert len(consumer.owned) == 7
    consumer.beat(topic_regex="", topic_names=("in",))
    settle(consumer)
    assert len(consumer.owned) == 1


def test_most_members_choose_the_assignor(broker: GroupBroker) -> None:
    consumers = [Consumer(broker, assignor=assignor) for assignor in ("range", "uniform", "range")]
    settle(*consumers)
    assert broker.groups.describe_consumers("g")["assignor_name"] == "range"
    numbers = sorted(consumer.numbers for consumer in consumers)
    assert numbers == [[0, 1], [2, 3], [4, 5]]


def test_wrong_epochs_are_fenced(broker: GroupBroker) -> None:
    first, second, third = (Consumer(broker) for _ in range(3))
    settle(first)
    settle(first, second)
    settle(first, second, third)
    epoch = first.epoch
    assert failure(lambda: first.beat(member_epoch=epoch + 1)).code == ErrorCode.fenced_member_epoch
    assert failure(lambda: first.beat(member_epoch=epoch - 2)).code == ErrorCode.fenced_member_epoch
    assert failure(lambda: first.beat(member_id="unknown")).code == ErrorCode.unknown_member_id


def test_a_member_that_missed_the_answer_with_its_epoch_is_told_again(broker: GroupBroker) -> None:
    first, second = Consumer(broker), Consumer(broker)
    first.follow()
    second.follow()
    first.follow()
    answer = first.beat()
    assert answer["member_epoch"] == 2
    assert first.beat(member_epoch=1)["member_epoch"] == 2
    too_much = first.owned | second.owned | {(uuid.uuid4(), 1)}
    assert failure(lambda: first.beat(member_epoch=1, owned=too_much)).code == ErrorCode.fenced_member_epoch
    assert failure(lambda: first.beat(member_epoch=1, owned=None)).code == ErrorCode.fenced_member_epoch


def test_a_member_without_heartbeats_is_removed(broker: GroupBroker) -> None:
    first, second = Consumer(broker), Consumer(broker)
    settle(first, second)
    broker.timers.advance(SESSION_MS - 1)
    first.follow()
    broker.timers.advance(1)
    settle(first)
    assert len(first.owned) == 6
    assert failure(second.beat).code == ErrorCode.unknown_member_id
    broker.timers.advance(SESSION_MS)
    assert state_of(broker) == "Empty"


def test_a_member_that_does_not_give_up_its_partitions_is_removed(broker: GroupBroker) -> None:
    first, second = Consumer(broker), Consumer(broker)
    first.follow()
    second.follow()
    for _ in range(REBALANCE_MS // 1_000):
        first.beat()  # it goes on to own all
        second.follow()
        assert second.numbers == []
        broker.timers.advance(1_000)
    assert failure(first.beat).code == ErrorCode.unknown_member_id
    settle(second)
    assert len(second.owned) == 6


def test_members_leave(broker: GroupBroker) -> None:
    first, second = Consumer(broker), Consumer(broker)
    settle(first, second)
    second.leave()
    assert state_of(broker) == "Assigning"
    settle(first)
    assert len(first.owned) == 6
    assert failure(second.leave).code == ErrorCode.unknown_member_id
    first.leave()
    assert state_of(broker) == "Empty"


def test_a_static_member_that_comes_back_has_what_it_had(broker: GroupBroker) -> None:
    first, static = Consumer(broker, instance_id="one"), Consumer(broker, instance_id="two")
    settle(first, static)
    again = Consumer(broker, instance_id="two")
    assert failure(again.beat).code == ErrorCode.unreleased_instance_id
    static.leave(LEAVE_FOR_A_WHILE)
    epoch = broker.groups.describe_consumers("g")["group_epoch"]
    broker.restart()
    again.follow()
    assert again.owned == static.owned
    assert broker.groups.describe_consumers("g")["group_epoch"] == epoch
    assert failure(lambda: static.beat(member_epoch=again.epoch)).code == ErrorCode.fenced_instance_id
    settle(first, again)
    assert (len(first.owned), len(again.owned)) == (3, 3)
    again.leave(LEAVE_FOR_A_WHILE)
    for _ in range(SESSION_MS // 1_000):
        first.follow()
        broker.timers.advance(1_000)
    settle(first)
    assert len(first.owned) == 6
    assert broker.groups.leave("g", [("", "one"), ("", "two")]) == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert state_of(broker) == "Empty"


def test_members_go_on_after_a_kill_of_the_broker(broker: GroupBroker) -> None:
    first, second, third = (Consumer(broker) for _ in range(3))
    settle(first, second)
    third.follow()
    first.follow()
    before = broker.groups.describe_consumers("g")
    broker.restart()
    assert broker.groups.describe_consumers("g") == before
    settle(first, second, third)
    assert [len(consumer.owned) for consumer in (first, second, third)] == [2, 2, 2]
    epoch = broker.groups.describe_consumers("g")["group_epoch"]
    broker.restart()
    settle(first, second, third)
    assert broker.groups.describe_consumers("g")["group_epoch"] == epoch
    broker.timers.advance(SESSION_MS)
    assert state_of(broker) == "Empty"


def test_a_member_joins_again_under_its_id(broker: GroupBroker) -> None:
    first, second = Consumer(broker), Consumer(broker)
    settle(first, second)
    group_epoch = broker.groups.describe_consumers("g")["group_epoch"]
    assert failure(lambda: first.beat(member_epoch=first.epoch + 1)).code == ErrorCode.fenced_member_epoch
    epoch, owned = first.epoch, first.owned
    first.epoch, first.owned = 0, frozenset()
    first.follow()
    assert (first.epoch, first.owned) == (epoch, owned)
    assert broker.groups.describe_consumers("g")["group_epoch"] == group_epoch


def test_commits_carry_the_epoch_of_the_member(broker: GroupBroker) -> None:
    consumer = Consumer(broker)
    settle(consumer)
    groups, member_id = broker.groups, consumer.member_id
    assert code_of(lambda: groups.check_commit("g", member_id, None, 1, 9)) == ErrorCode.none
    assert code_of(lambda: groups.check_commit("g", member_id, None, 2, 9)) == ErrorCode.stale_member_epoch
    assert code_of(lambda: groups.check_commit("g", member_id, None, 0, 9, [("t", 0)])) == ErrorCode.stale_member_epoch
    assert code_of(lambda: groups.check_commit("g", member_id, None, 1, 8)) == ErrorCode.unsupported_version
    assert code_of(lambda: groups.check_commit("g", "", None, -1, 9)) == ErrorCode.unknown_member_id
    assert code_of(lambda: groups.check_fetch("g", None, -1)) == ErrorCode.none
    assert code_of(lambda: groups.check_fetch("g", member_id, 1)) == ErrorCode.none
    assert code_of(lambda: groups.check_fetch("g", member_id, 0)) == ErrorCode.stale_member_epoch
    assert code_of(lambda: groups.check_fetch("g", "other", 0)) == ErrorCode.unknown_member_id
    assert code_of(lambda: groups.check_member("g", member_id, None, 2)) == ErrorCode.illegal_generation
    assert code_of(lambda: groups.check_member("g", member_id, None, 0, [("t", 0)])) == ErrorCode.illegal_generation
    assert code_of(lambda: groups.check_member("g", member_id, None, 1)) == ErrorCode.none
    assert code_of(lambda: groups.check_member("g", "", None, -1)) == ErrorCode.none
    consumer.leave()
    assert code_of(lambda: groups.check_commit("g", "", None, -1, 8)) == ErrorCode.none


def test_a_member_commits_in_an_earlier_epoch_what_it_had_then(broker: GroupBroker) -> None:
    first, second = Consumer(broker), Consumer(broker)
    settle(first)
    earlier, all_numbers = first.epoch, first.numbers
    second.follow()
    first.beat()
    # It must give some up, and may still commit them.
    assert commit_codes(broker, first, earlier, all_numbers) == dict.fromkeys(all_numbers, ErrorCode.none)
    settle(first, second)
    assert first.epoch > earlier
    kept = dict.fromkeys(first.numbers, ErrorCode.none) | dict.fromkeys(second.numbers, ErrorCode.stale_member_epoch)
    for _ in range(2):
        assert commit_codes(broker, first, earlier, all_numbers) == kept
        assert set(commit_codes(broker, second, second.epoch - 1, second.numbers).values()) == {
            ErrorCode.stale_member_epoch
        }
        broker.restart()


def commit_codes(broker: GroupBroker, consumer: Consumer, epoch: int, numbers: list[int]) -> dict[int, ErrorCode]:
    """The code of a commit of each partition."""
    check = broker.groups.check_commit
    return {
        number: code_of(lambda number=number: check("g", consumer.member_id, None, epoch, 9, [("t", number)]))
        for number in numbers
    }


def test_a_group_changes_its_type_when_it_has_no_members(broker: GroupBroker) -> None:
    classic, consumer = ClassicClient(broker), Consumer(broker)
    classic.join()
    assert failure(consumer.beat).code == ErrorCode.group_id_not_found
    classic.leave()
    broker.commit("g", "t", 0, 5)
    settle(consumer)
    assert code_of(lambda: ClassicClient(broker).join()) == ErrorCode.inconsistent_group_protocol
    assert code_of(lambda: broker.groups.describe("g")) == ErrorCode.group_id_not_found
    assert classic.beat() == ErrorCode.unknown_member_id
    broker.restart()
    settle(consumer)
    consumer.leave()
    classic = ClassicClient(broker)
    classic.join()
    classic.sync({})
    assert code_of(lambda: broker.groups.describe_consumers("g")) == ErrorCode.group_id_not_found
    broker.restart()
    assert classic.beat() == ErrorCode.none
    assert broker.positions("g") == {("t", 0): 5}


def test_a_group_that_is_deleted_or_was_never_entered_leaves_nothing(broker: GroupBroker) -> None:
    consumer = Consumer(broker)
    timers = len(broker.timers)
    assert failure(lambda: consumer.beat(member_epoch=3)).code == ErrorCode.group_id_not_found
    settle(consumer)
    assert code_of(lambda: broker.groups.delete_group("g")) == ErrorCode.non_empty_group
    consumer.leave()
    broker.groups.delete_group("g")
    assert (broker.groups.groups(), len(broker.timers)) == ([], timers)
    broker.restart()
    assert broker.groups.groups() == []


def test_offsets_of_topics_in_use_neither_expire_nor_are_deleted(broker: GroupBroker) -> None:
    broker.create_topic("unused")
    consumer = Consumer(broker)
    settle(consumer)
    offset = broker.offset(5)
    broker.groups.offsets.commit("g", {("t", 0): offset, ("unused", 0): offset})
    codes = broker.groups.delete_offsets("g", {"t": [0]})
    assert codes == {("t", 0): ErrorCode.group_subscribed_to_topic}
    broker.clock.advance(8 * DAY_MS)
    broker.groups.expire_offsets()
    assert broker.positions("g") == {("t", 0): 5}
    consumer.leave()
    broker.groups.expire_offsets()
    assert broker.groups.groups() == []


def test_a_group_has_a_size(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_max_size=2, group_max_bytes=100)
    first, second, third = (Consumer(broker) for _ in range(3))
    settle(first, second)
    assert failure(third.beat).code == ErrorCode.group_max_size_reached
    assert failure(lambda: first.beat(topic_names=("x" * 101,))).code == ErrorCode.group_max_size_reached
    settle(first, second)
    broker.close()


def test_a_heartbeat_that_cannot_be_written_changes_nothing(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Consumer(broker), Consumer(broker)
    settle(first)
    before = broker.groups.describe_consumers("g")

    def fail(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", fail)
        assert failure(second.beat).code == ErrorCode.coordinator_not_available
        broker.timers.advance(SESSION_MS)  # the session ends, and that cannot be written either
    assert broker.groups.describe_consumers("g") == before
    settle(first, second)
    assert (len(first.owned), len(second.owned)) == (3, 3)


def test_a_pattern_takes_linear_time(broker: GroupBroker) -> None:
    broker.create_topic("a" * 200 + "b", 1)
    consumer = Consumer(broker, topic_names=(), topic_regex="(a+)+c|(.*.*.*.*.*)x")
    consumer.follow()
    assert consumer.owned == frozenset()
