"""Groups of kafka-python's and aiokafka's consumers, alone and with confluent-kafka's, on both brokers."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.broker.test_clients import UniqueName, create, produce, wait_for_partitions
from tests.support.brokers import RunningBroker
from tests.support.waiting import until

# These clients have no types, and no other test needs them.
kafka: Any = pytest.importorskip("kafka", reason="kafka-python is not installed")
aiokafka: Any = pytest.importorskip("aiokafka", reason="aiokafka is not installed")

WAIT = 60
PARTITIONS = 6
RECORDS = 20


class Reader(ABC):
    """A member of a group in a thread of its own that reads what it is assigned.

    Args:
        broker: the broker.
        group: the group.
        topic: what it subscribes to.
        assignor: how its group assigns.
    """

    def __init__(self, broker: RunningBroker, group: str, topic: str, assignor: str) -> None:
        self.owned: set[int] = set()
        self.values: set[bytes] = set()
        self.stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._guarded, args=(broker.bootstrap_servers, group, topic, assignor))
        self._thread.start()

    def _guarded(self, *arguments: str) -> None:
        try:
            self.run(*arguments)
        except BaseException as error:
            self._failures.append(error)
            raise

    @abstractmethod
    def run(self, servers: str, group: str, topic: str, assignor: str) -> None:
        """Read, commit and take note of what is owned until the reader is stopped; then leave the group."""

    def stop(self) -> None:
        """Leave the group."""
        self.stopping.set()
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        assert self._failures == []


class KafkaPythonReader(Reader):
    """A consumer of kafka-python."""

    def run(self, servers: str, group: str, topic: str, assignor: str) -> None:
        """Read until it is stopped."""
        module = import_module(f"kafka.coordinator.assignors.{MODULES[assignor]}")
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=30_000,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[getattr(module, CLASSES[assignor])],
        )
        # A leader that joins before it knows the topic's partitions joins again when it does. If a poll ends while that
        # SyncGroup waits for its answer, kafka-python 3.0 never takes the assignment, and sends no more heartbeats.
        assert consumer.partitions_for_topic(topic)
        while not self.stopping.is_set():
            for records in consumer.poll(timeout_ms=100).values():
                self.values.update(record.value for record in records)
                consumer.commit()
            self.owned = {partition.partition for partition in consumer.assignment()}
        consumer.close()
        self.owned = set()


class AiokafkaReader(Reader):
    """A consumer of aiokafka."""

    def run(self, servers: str, group: str, topic: str, assignor: str) -> None:
        """Read until it is stopped."""
        asyncio.run(self._run(servers, group, topic, assignor))

    async def _run(self, servers: str, group: str, topic: str, assignor: str) -> None:
        module = import_module(f"aiokafka.coordinator.assignors.{MODULES[assignor]}")
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=30_000,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=(getattr(module, CLASSES[assignor]),),
        )
        await consumer.start()
        while not self.stopping.is_set():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                self.values.update(record.value for record in records)
            self.owned = {partition.partition for partition in consumer.assignment()}
        await consumer.stop()
        self.owned = set()


class ConfluentReader(Reader):
    """A consumer of confluent-kafka."""

    def run(self, servers: str, group: str, topic: str, assignor: str) -> None:
        """Read until it is stopped."""
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": assignor,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        while not self.stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.add(message.value() or b"")
            self.owned = {partition.partition for partition in consumer.assignment()}
        consumer.close()
        self.owned = set()


MODULES = {
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky.sticky_assignor",
    "cooperative-sticky": "cooperative_sticky",
}
CLASSES = {
    "range": "RangePartitionAssignor",
    "roundrobin": "RoundRobinPartitionAssignor",
    "sticky": "StickyPartitionAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@pytest.fixture
def topic(broker: RunningBroker, unique_name: UniqueName) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    name = unique_name("topic")
    create(admin, name, PARTITIONS)
    wait_for_partitions(admin, name, PARTITIONS)
    return name


def fill(broker: RunningBroker, topic: str, label: str) -> set[bytes]:
    values: set[bytes] = set()
    for partition in range(PARTITIONS):
        batch = [f"{label}-{partition}-{number}".encode() for number in range(RECORDS)]
        produce(broker, topic, batch, partition=partition)
        values.update(batch)
    return values


Start = Callable[[type[Reader], str], Reader]


@pytest.fixture
def start(broker: RunningBroker, topic: str, unique_name: UniqueName) -> Iterator[Start]:
    readers: list[Reader] = []
    group = unique_name("group")

    def started(kind: type[Reader], assignor: str) -> Reader:
        readers.append(kind(broker, group, topic, assignor))
        return readers[-1]

    yield started
    for reader in readers:
        reader.stop()


def share_evenly(readers: list[Reader]) -> bool:
    owned = [partition for reader in readers for partition in reader.owned]
    share = PARTITIONS // len(readers)
    return sorted(owned) == list(range(PARTITIONS)) and all(len(reader.owned) == share for reader in readers)


@pytest.mark.parametrize(
    ("kinds", "assignor"),
    [
        ([KafkaPythonReader] * 3, "range"),
        ([KafkaPythonReader] * 3, "roundrobin"),
        ([KafkaPythonReader] * 3, "sticky"),
        ([KafkaPythonReader] * 3, "cooperative-sticky"),
        ([AiokafkaReader] * 3, "range"),
        ([AiokafkaReader] * 3, "roundrobin"),
        ([AiokafkaReader] * 3, "sticky"),
        ([KafkaPythonReader, AiokafkaReader, ConfluentReader], "range"),
        ([ConfluentReader, KafkaPythonReader, AiokafkaReader], "roundrobin"),
    ],
)
def test_members_share_partitions_and_miss_no_record(
    broker: RunningBroker, topic: str, start: Start, kinds: list[type[Reader]], assignor: str
) -> None:
    expected = fill(broker, topic, "one")
    readers = [start(kinds[0], assignor)]
    assert until(lambda: share_evenly(readers))
    for kind in kinds[1:]:
        readers.append(start(kind, assignor))
        assert until(lambda: share_evenly(readers))
    expected |= fill(broker, topic, "three")
    assert until(lambda: set().union(*(reader.values for reader in readers)) >= expected)
    readers[0].stop()
    assert until(lambda: share_evenly(readers[1:]))
    expected |= fill(broker, topic, "two")
    assert until(lambda: set().union(*(reader.values for reader in readers)) == expected)
