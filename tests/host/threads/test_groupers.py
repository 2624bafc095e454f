"""A partition.grouper of the user on running instances: all plan with its tasks, and tasks with state keep their
partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.errors import StreamsError
from penstock.host.threads.host import ThreadsHost
from penstock.plan.partition_grouper import PartitionGrouper
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock.serdes import Serdes
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
from tests.host.threads.support import Listening
from tests.support.brokers import RunningBroker
from tests.support.plain_producer import PlainProducer
from tests.support.waiting import until

pytestmark = pytest.mark.one_broker

SECONDS = 120.0
PARTITIONS = 4
COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())


class Halves(PartitionGrouper):
    """Two tasks, each with partitions of both halves: 0 and 2, 1 and 3."""

    def group(self, topics: Mapping[str, int]) -> Sequence[Collection[TopicPartition]]:
        return [
            {TopicPartition(topic, number) for topic, count in topics.items() for number in range(first, count, 2)}
            for first in range(2)
        ]


class Pairs(PartitionGrouper):
    """Two tasks, of neighbours: 0 and 1, 2 and 3."""

    def group(self, topics: Mapping[str, int]) -> Sequence[Collection[TopicPartition]]:
        return [
            {TopicPartition(topic, number) for topic in topics for number in (first, first + 1)} for first in (0, 2)
        ]


class Counting:
    """Counts the keys of a topic, each of which is in one partition; hosts of one group."""

    def __init__(self, broker: RunningBroker, directory: Path, unique_name: Callable[[str], str]) -> None:
        self.app, self.source = unique_name("app"), unique_name("in")
        self.expected: Counter[str] = Counter()
        self._directory = directory
        self._hosts: list[ThreadsHost] = []
        self.settings: dict[str, Any] = {
            "application.id": self.app,
            "bootstrap.servers": broker.bootstrap_servers,
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "commit.interval.ms": 50,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 60_000,  # nobody leaves because a machine is busy
            "partition.grouper": Halves,
        }
        self.admin = ConfluentAdmin(StreamsConfig(self.settings))
        self.admin.create_topics([NewTopic(self.source, PARTITIONS)])

    def host(self, name: str, grouper: type[PartitionGrouper] = Halves, stateful: bool = True) -> ThreadsHost:
        builder = StreamsBuilder()
        stream = builder.stream(self.source)
        if stateful:
            stream.group_by_key().count(Materialized.as_("counts"))
        else:
            stream.foreach(lambda key, value: None)
        config = {**self.settings, "partition.grouper": grouper, "state.dir": str(self._directory / name)}
        host = ThreadsHost(built_topology(builder.build(), self.app), StreamsConfig(config))
        self._hosts.append(host)
        return host

    def started(self, name: str, grouper: type[PartitionGrouper] = Halves, stateful: bool = True) -> ThreadsHost:
        host, listening = self.host(name, grouper, stateful), Listening()
        host.start(listening)
        assert listening.running.wait(SECONDS)
        return host

    def write(self) -> None:
        producer = PlainProducer(StreamsConfig(self.settings))
        for number in range(PARTITIONS):
            for key in "ab":
                producer.send(self.source, f"{key}{number}".encode(), b"v", number)
                self.expected[f"{key}{number}"] += 1
        producer.close()

    def shares(self) -> list[set[int]]:
        """Return the partitions of each member of the group."""
        members = self.admin.describe_group(self.app).members
        return sorted(({each.partition for each in member.partitions} for member in members), key=sorted)

    def counts(self, *hosts: ThreadsHost) -> dict[str, int]:
        """Return what the stores of the hosts have, nothing while tasks move."""
        found: dict[str, int] = {}
        for host in hosts:
            try:
                found.update(host.queries().store(COUNTS).all())
            except StreamsError:
                return {}
        return found

    def close(self) -> None:
        for host in self._hosts:
            host.close(60_000)
        self.admin.close()


@pytest.fixture
def counting(broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]) -> Iterator[Counting]:
    found = Counting(broker, tmp_path, unique_name)
    yield found
    found.close()


def test_two_instances_share_the_tasks_of_a_grouper_and_one_takes_over_the_other(counting: Counting) -> None:
    counting.write()
    first = counting.started("first")
    second = counting.started("second")
    assert until(lambda: counting.shares() == [{0, 2}, {1, 3}])
    counting.write()
    assert until(lambda: counting.counts(first, second) == counting.expected)
    assert first.close(60_000)
    assert until(lambda: counting.shares() == [{0, 1, 2, 3}])
    counting.write()
    assert until(lambda: counting.counts(second) == counting.expected)
    changelog = counting.admin.topics()[f"{counting.app}-counts-changelog"]
    assert changelog == 2


def test_an_instance_with_another_grouper_is_refused_and_the_other_goes_on(counting: Counting) -> None:
    first = counting.started("first", stateful=False)
    other, listening = counting.host("other", Pairs, stateful=False), Listening()
    other.start(listening)
    assert listening.ended.wait(SECONDS)
    assert "All instances need the same partition.grouper" in str(listening.error)
    counting.write()
    assert until(lambda: first.statistics().records_in >= sum(counting.expected.values()))
    assert until(lambda: counting.shares() == [{0, 1, 2, 3}])  # the other may still be leaving


def test_a_start_with_a_grouper_that_moves_state_is_refused_with_both_counts(counting: Counting) -> None:
    counting.write()
    host = counting.started("first")
    assert until(lambda: counting.counts(host) == counting.expected)
    assert host.close(60_000)
    moved = (
        rf"moves 2 of 4 partitions to other tasks \({counting.source}-2 from task 0_0 to 0_2, .*-3 from task 0_1 to "
        r"0_3\)"
        r".* had 2 tasks, and would have 4\. Set the former partition\.grouper again"
    )
    with pytest.raises(StreamsError, match=moved):
        counting.host("first", PartitionGrouper).start(Listening())
    again = counting.started("first")
    assert until(lambda: counting.counts(again) == counting.expected)


def test_tasks_without_state_may_have_other_partitions(counting: Counting) -> None:
    counting.write()
    host = counting.started("first", stateful=False)
    assert until(lambda: sum(host.statistics().processed.values()) == sum(counting.expected.values()))
    assert host.close(60_000)
    counting.write()
    other = counting.started("first", Pairs, stateful=False)
    assert until(lambda: other.statistics().records_in == sum(counting.expected.values()) // 2)


def test_new_partitions_that_a_grouper_puts_into_the_same_tasks_are_read(counting: Counting) -> None:
    counting.settings["metadata.max.age.ms"] = 0
    host = counting.started("first")
    counting.admin.create_partitions(counting.source, 6)
    assert until(lambda: counting.shares() == [{0, 1, 2, 3, 4, 5}])
    counting.write()
    assert until(lambda: counting.counts(host) == counting.expected)
