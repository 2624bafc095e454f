"""Transactions on the brokers: which there are, which are open, and how they are ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.transactions import TransactionAdmin
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, UnknownTopicOrPartitionError
from penstock.record import TopicPartition
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.brokers import RunningBroker
from tests.support.protocol_client import ProtocolClient
from tests.support.transactions import Transactions
from tests.support.waiting import until

FAR = 1 << 61
"""A time after all others (ms)."""


class Open:
    """A transactional id with one open transaction of two records at `at`."""

    def __init__(self, broker: RunningBroker, name: str, cluster: Cluster) -> None:
        self.id, self.at = f"{name}-id", TopicPartition(name, 0)
        config = StreamsConfig({"bootstrap.servers": broker.bootstrap_servers})
        with closing(ConfluentAdmin(config)) as admin:
            admin.create_topics([NewTopic(name, 2)])
        self.admin = TransactionAdmin(cluster)
        self.client = ProtocolClient(broker.bootstrap_servers)
        self.producer = Transactions(self.client, self.id)
        self.producer.find_coordinator()
        assert self.producer.begin() == ErrorCode.none
        assert self.producer.add(name, 0) == [ErrorCode.none]
        assert self.producer.produce(name, 0, b"a", b"b") == ErrorCode.none

    def states(self) -> dict[str, str]:
        return {one.transactional_id: one.state for one in self.admin.transactions()}


@pytest.fixture
def open_one(broker: RunningBroker, unique_name: Callable[[str], str]) -> Iterator[Open]:
    with Cluster(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}), 60_000) as cluster:
        made = Open(broker, unique_name("t"), cluster)
        yield made
        made.client.socket.close()


def test_an_open_transaction_is_listed_and_described_until_its_end(open_one: Open) -> None:
    assert open_one.states()[open_one.id] == "Ongoing"
    found = open_one.admin.describe(open_one.id)
    assert (found.state, found.partitions, found.timeout_ms) == ("Ongoing", (open_one.at,), 60_000)
    assert (found.producer_id, found.producer_epoch) == open_one.producer.producer
    assert found.start_ms is not None
    assert open_one.producer.end() == ErrorCode.none
    assert until(lambda: open_one.states()[open_one.id] == "CompleteCommit")
    ended = open_one.admin.describe(open_one.id)
    assert (ended.start_ms, ended.partitions) == (None, ())


def test_filters_choose_by_state_producer_and_duration(open_one: Open) -> None:
    producer_id, _ = open_one.producer.producer
    ids = [one.transactional_id for one in open_one.admin.transactions(["Ongoing"], [producer_id])]
    assert ids == [open_one.id]
    assert open_one.admin.transactions(["Empty"], [producer_id]) == []
    assert open_one.admin.transactions(producer_ids=[producer_id], longer_than_ms=3_600_000) == []
    with pytest.raises(KafkaError, match="do not know the state Broken; a transaction is Empty, Ongoing"):
        open_one.admin.transactions(["Broken"])


def test_what_does_not_exist_is_named(open_one: Open) -> None:
    with pytest.raises(KafkaError, match="no transactional id 'gone'; `penstock transactions list`"):
        open_one.admin.describe("gone")
    with pytest.raises(UnknownTopicOrPartitionError):
        open_one.admin.producers(TopicPartition(open_one.at.topic, 9))
    with pytest.raises(KafkaError, match="There is no broker 99; the cluster has "):
        open_one.admin.producers(open_one.at, broker=99)
    with pytest.raises(KafkaError, match="No open transaction begins at offset 1 of"):
        open_one.admin.abort_from(open_one.at, 1)


def test_the_producers_of_a_partition_show_where_a_transaction_begins(open_one: Open) -> None:
    (found,) = open_one.admin.producers(open_one.at)
    assert (found.producer_id, found.producer_epoch) == open_one.producer.producer
    assert (found.last_sequence, found.transaction_start, found.coordinator_epoch) == (1, 0, None)
    (same,) = open_one.admin.open_since(FAR, topic=open_one.at.topic)
    assert same == (open_one.at, found, open_one.id)
    assert open_one.admin.open_since(found.last_timestamp, topic=open_one.at.topic) == []
    assert open_one.producer.end() == ErrorCode.none
    assert until(lambda: open_one.admin.open_since(FAR, topic=open_one.at.topic) == [])


def test_a_transaction_that_its_coordinator_knows_does_not_hang(open_one: Open) -> None:
    assert open_one.admin.hanging(-FAR, topic=open_one.at.topic) == []


def test_a_terminated_transaction_is_aborted_and_its_producer_fenced(open_one: Open) -> None:
    before = open_one.admin.terminate(open_one.id)
    assert before.state == "Ongoing"
    assert until(lambda: open_one.admin.open_since(FAR, topic=open_one.at.topic) == [])
    assert open_one.producer.end() in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)


def test_an_abort_in_one_partition_leaves_the_coordinator_its_transaction(open_one: Open) -> None:
    aborted = open_one.admin.abort_from(open_one.at, 0)
    assert aborted.transaction_start == 0
    assert until(lambda: open_one.admin.open_since(FAR, topic=open_one.at.topic) == [])
    (ended,) = open_one.admin.producers(open_one.at)
    assert (ended.transaction_start, ended.coordinator_epoch) == (None, 0)
    assert open_one.states()[open_one.id] == "Ongoing"
