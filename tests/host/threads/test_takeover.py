"""What would be taken over from an application that had the group before, and what is in the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.errors import StreamsError
from penstock.host.commits.committing import PartitionMetadata
from penstock.host.threads.takeover import (
    InputOffset,
    RestoredStore,
    Takeover,
    plan_takeover,
    remove_dead_members,
    topic_changes,
)
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import built_topology
from penstock.record import NO_TIMESTAMP, TopicPartition
from penstock.serdes import Serdes
from penstock.windows import TimeWindows
from tests.support.brokers import EMBEDDED_ONLY, RunningBroker
from tests.support.plain_producer import PlainProducer
from tests.support.waiting import WAIT_SECONDS, until

pytestmark = EMBEDDED_ONLY


class Counting:
    """A count of keys in windows, which another program has run."""

    def __init__(self, broker: RunningBroker, unique_name: Callable[[str], str]) -> None:
        self.name, self.source = unique_name("app"), unique_name("in")
        self.servers = broker.bootstrap_servers
        serdes = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
        self.config = StreamsConfig({"application.id": self.name, "bootstrap.servers": self.servers, **serdes})
        self.admin = ConfluentAdmin(self.config)
        self.changelog = f"{self.name}-counts-changelog"
        self.first, self.second = TopicPartition(self.source, 0), TopicPartition(self.source, 1)

    def make(self, topic: str, partitions: int = 2) -> None:
        self.admin.create_topics([NewTopic(topic, partitions)])

    def write(self, topic: str, *keys: bytes, value: bytes = bytes(8)) -> None:
        producer = PlainProducer(self.config)
        for key in keys:
            producer.send(topic, key, value, 0, 5)
        producer.close()

    def consumer(self, **settings: Any) -> Consumer:
        """Return a member of the group that has its assignment."""
        given = {"bootstrap.servers": self.servers, "group.id": self.name, "client.id": "shop", **settings}
        consumer = Consumer(given)
        consumer.subscribe([self.source])
        assert until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        return consumer

    def built(self, windowed: bool = True) -> BuiltTopology:
        builder = StreamsBuilder()
        grouped = builder.stream(self.source).group_by_key()
        if windowed:
            grouped.windowed_by(TimeWindows.of_size_with_no_grace(10)).count(Materialized.as_("counts"))
        else:
            grouped.count(Materialized.as_("counts"))
        return built_topology(builder.build(), self.name)

    def plan(self) -> Takeover:
        return plan_takeover(self.built(), self.config)

    def changes(self) -> list[str]:
        return topic_changes(self.built(), self.config)


@pytest.fixture
def counting(broker: RunningBroker, unique_name: Callable[[str], str]) -> Counting:
    return Counting(broker, unique_name)


def test_offsets_and_changelogs_would_be_taken_over(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog)
    counting.write(counting.source, b"a", b"b", b"c")
    counting.write(counting.changelog, b"a" + bytes(12), b"b" + bytes(12))
    text = PartitionMetadata(1_795_358_782_722).encode()
    counting.admin.commit_offsets(counting.name, {counting.first: OffsetAndMetadata(2, text)})
    found = counting.plan()
    assert found.inputs == (
        InputOffset(counting.first, 2, 3, 1_795_358_782_722),
        InputOffset(counting.second, None, 0, NO_TIMESTAMP),
    )
    assert found.stores == (RestoredStore("counts", counting.changelog, 2),)
    assert found.obstacles == ()
    [warning] = found.warnings
    assert f"no offset of {counting.second}" in warning


def test_a_first_start_takes_over_nothing(counting: Counting) -> None:
    counting.make(counting.source)
    found = counting.plan()
    assert (found.stores, found.obstacles) == ((), ())
    assert ["this is the first start" in warning for warning in found.warnings] == [True]


def test_state_without_the_offsets_that_belong_to_it_is_an_obstacle(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog)
    counting.write(counting.source, b"a")
    assert counting.plan().obstacles == ()
    counting.write(counting.changelog, b"a" + bytes(12))
    [obstacle] = counting.plan().obstacles
    committed = f"The group {counting.name} has committed no offset of {counting.first}, but {counting.changelog}-0 has"
    assert committed in obstacle
    assert "penstock groups reset" in obstacle
    counting.admin.commit_offsets(counting.name, {counting.second: OffsetAndMetadata(0)})
    assert counting.plan().obstacles == (obstacle,)  # another task's offset says nothing of this one
    counting.admin.commit_offsets(counting.name, {counting.first: OffsetAndMetadata(0)})
    assert counting.plan().obstacles == ()


def test_a_changelog_that_has_lost_records_otherwise_than_by_compaction_is_an_obstacle(counting: Counting) -> None:
    first = TopicPartition(counting.changelog, 0)
    counting.make(counting.source)
    counting.make(counting.changelog)
    counting.write(counting.changelog, b"a", b"b")
    counting.admin.commit_offsets(counting.name, {counting.first: OffsetAndMetadata(0)})
    counting.admin.delete_records({first: 1})
    [obstacle] = plan_takeover(counting.built(windowed=False), counting.config).obstacles
    assert f"Store counts would be incomplete: {first} begins at offset 1" in obstacle


def test_a_changelog_of_windows_may_have_lost_its_first_records(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog)
    counting.write(counting.changelog, b"a" + bytes(12), b"b" + bytes(12))
    counting.admin.commit_offsets(counting.name, {counting.first: OffsetAndMetadata(0)})
    counting.admin.delete_records({TopicPartition(counting.changelog, 0): 1})
    assert counting.plan().obstacles == ()


def test_partitions_that_another_task_has_the_state_of_are_an_obstacle(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog)
    text = PartitionMetadata(5, {"penstock.task": 1}).encode()
    counting.admin.commit_offsets(counting.name, {counting.first: OffsetAndMetadata(0, text)})
    [obstacle] = counting.plan().obstacles
    assert f"{counting.first} from task 0_1 to 0_0" in obstacle


def test_a_missing_topic_is_an_obstacle(counting: Counting) -> None:
    [obstacle] = counting.plan().obstacles
    assert counting.source in obstacle


def test_members_of_another_program_are_an_obstacle(counting: Counting) -> None:
    counting.make(counting.source)
    consumer = counting.consumer()
    try:
        [obstacle] = counting.plan().obstacles
    finally:
        consumer.close()
    assert obstacle.startswith(f"The group {counting.name} has 1 member: shop at ")
    assert "Stop the application" in obstacle


def test_members_that_did_not_leave_can_be_removed(counting: Counting) -> None:
    counting.make(counting.source)
    assert remove_dead_members(counting.config, 0) == ()
    counting.consumer(**{"group.instance.id": "1"}).close()  # a static member does not leave
    assert len(counting.plan().obstacles) == 1
    [member] = remove_dead_members(counting.config, 0.5)
    assert member.client_id == "shop"
    assert counting.plan().obstacles == ()


def test_a_removed_member_that_comes_back_is_an_application_that_runs(counting: Counting) -> None:
    counting.make(counting.source)
    consumer, ended = counting.consumer(**{"heartbeat.interval.ms": 100}), threading.Event()

    def poll() -> None:
        while not ended.is_set():
            consumer.poll(0.1)

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        with pytest.raises(StreamsError, match=r"shop at .* joined again .* the application still runs"):
            remove_dead_members(counting.config, WAIT_SECONDS)
    finally:
        ended.set()
        polling.join()
        consumer.close()


def test_members_of_a_group_that_is_not_classic_are_not_removed(counting: Counting) -> None:
    counting.make(counting.source)
    consumer = counting.consumer(**{"group.protocol": "consumer"})
    try:
        with pytest.raises(StreamsError, match="is of the type consumer"):
            remove_dead_members(counting.config, 0)
        assert len(counting.admin.describe_group(counting.name).members) == 1
    finally:
        consumer.close()


def test_stores_of_other_names_and_offsets_of_other_topics_are_obstacles(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(f"{counting.name}-other-changelog")
    counting.admin.commit_offsets(counting.name, {counting.first: OffsetAndMetadata(7)})
    offset, other, missing = counting.plan().obstacles
    assert f"committed offset 7 of {counting.first}, which has the offsets 0 to 0" in offset
    assert f"Topic {counting.name}-other-changelog is of a store that this topology does not have" in other
    assert f"Store counts has no changelog: there is no topic {counting.changelog}" in missing


def test_topics_of_another_application_whose_id_begins_in_the_same_way_are_no_obstacle(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog)
    other = f"{counting.name}-eu"
    counting.make(f"{other}-sums-changelog")
    [obstacle] = counting.plan().obstacles
    assert f"another application whose application.id begins with {counting.name}- uses the topic" in obstacle
    counting.admin.commit_offsets(other, {counting.first: OffsetAndMetadata(0)})
    assert counting.plan().obstacles == ()
    assert counting.changes() == []


def test_changelogs_of_another_number_of_partitions_are_an_obstacle(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog, partitions=3)
    [obstacle] = counting.plan().obstacles
    assert f"{counting.changelog} has invalid partitions: expected: 2; actual: 3" in obstacle


def test_changelogs_of_another_kind_of_store_are_an_obstacle(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog)
    counting.write(counting.changelog, b"a")
    counting.admin.commit_offsets(counting.name, {counting.first: OffsetAndMetadata(0)})
    [obstacle] = counting.plan().obstacles
    assert obstacle.startswith(f"Store counts, {TopicPartition(counting.changelog, 0)}: Cannot restore")
    assert "expected a key that ends in 12 bytes of window" in obstacle


def test_changelogs_that_the_serdes_cannot_read_are_an_obstacle(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog)
    counting.write(counting.changelog, b"a" + bytes(12), value=b"one")
    [obstacle] = counting.plan().obstacles
    assert "LongSerde" in obstacle
    assert "cannot read the value b'one' of offset 0" in obstacle


def test_topics_say_which_stores_are_new_and_which_are_left(counting: Counting) -> None:
    [missing] = counting.changes()
    assert missing.startswith("REFUSED: ")
    assert counting.source in missing
    counting.make(counting.source)
    other = f"{counting.name}-other-changelog"
    counting.make(other)
    assert counting.changes() == [
        "store counts is new and starts empty",
        f"topic {other} is not of this program; it is kept",
    ]
    counting.make(counting.changelog)
    assert counting.changes() == ["store counts keeps its state", f"topic {other} is not of this program; it is kept"]
    counting.admin.delete_topics([other])
    assert until(lambda: counting.changes() == [])


def test_topics_of_another_number_of_partitions_are_refused(counting: Counting) -> None:
    counting.make(counting.source)
    counting.make(counting.changelog, partitions=3)
    [refused] = counting.changes()
    assert refused.startswith(f"REFUSED: Existing internal topic {counting.changelog} has invalid partitions")
