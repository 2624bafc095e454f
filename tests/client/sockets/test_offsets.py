"""Committed offsets of a group: the text beside them, and those that a transaction is about to replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.client.sockets.cluster import GROUP, Cluster
from penstock.client.sockets.offsets import OFFSET_FETCH, commit_offsets, committed_offsets
from penstock.config import StreamsConfig
from penstock.errors import UnstableOffsetCommitError
from penstock.record import TopicPartition
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import OFFSET_COMMIT
from tests.support.brokers import RunningBroker
from tests.support.protocol_client import ProtocolClient
from tests.support.transactions import Transactions
from tests.support.waiting import until


class Group:
    """A group, its topic, and clients."""

    def __init__(self, servers: str, name: str, topic: str) -> None:
        config = StreamsConfig({"application.id": name, "bootstrap.servers": servers})
        self.name, self.topic = name, topic
        self.admin = ConfluentAdmin(config)
        self.admin.create_topics([NewTopic(topic, 3)])
        with Cluster(config, timeout_ms=120_000) as patient:  # a new Kafka makes the topic of offsets when it is asked
            patient.repeat(lambda: patient.coordinator(GROUP, name, "starting"))
        self.cluster = Cluster(config, timeout_ms=60_000)
        self.impatient = Cluster(config, timeout_ms=5_000)
        self.client = ProtocolClient(servers)

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def commit(self, partition: int, offset: int, metadata: str | None) -> int:
        one = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        body = {"group_id": self.name, "topics": [{"name": self.topic, "partitions": [one]}]}
        code: int = self.client.call(OFFSET_COMMIT, 8, body)["topics"][0]["partitions"][0]["error_code"]
        return code

    def committed(
        self, *partitions: int, stable: bool = True, cluster: Cluster | None = None
    ) -> dict[int, tuple[int, str]]:
        asked = [self.at(partition) for partition in partitions]
        found = committed_offsets(cluster or self.cluster, self.name, asked, stable)
        return {at.partition: tuple(each) for at, each in found.items()}


@pytest.fixture
def group(broker: RunningBroker, unique_name: Callable[[str], str]) -> Iterator[Group]:
    made = Group(broker.bootstrap_servers, unique_name("g"), unique_name("t"))
    yield made
    made.admin.close()
    made.cluster.close()
    made.impatient.close()
    made.client.socket.close()


def test_the_text_of_an_offset_is_what_was_committed(group: Group) -> None:
    assert until(lambda: group.commit(0, 5, "AgAAAaIDuPUC") == ErrorCode.none)
    assert group.commit(1, 7, "") == ErrorCode.none
    assert group.committed(0, 1, 2) == {0: (5, "AgAAAaIDuPUC", -1), 1: (7, "", -1)}
    assert group.committed() == {}
    group.admin.commit_offsets(group.name, {group.at(2): OffsetAndMetadata(9, "by librdkafka")})
    assert group.committed(2) == {2: (9, "by librdkafka", -1)}


def test_the_text_of_an_offset_has_no_zero_byte_behind_it(group: Group) -> None:
    commit_offsets(group.cluster, group.name, {group.at(0): OffsetAndMetadata(5, "AgAAAaIDuPUC")})
    node = group.cluster.coordinator(GROUP, group.name, "asking")
    asked = [{"name": group.topic, "partition_indexes": [0]}]
    body = {"group_id": group.name, "topics": asked, "require_stable": True}
    answer = group.cluster.ask(node, OFFSET_FETCH, body, "asking")
    assert answer["topics"][0]["partitions"][0]["metadata"] == "AgAAAaIDuPUC"


def test_the_text_of_other_clients_is_no_obstacle_to_librdkafka(group: Group) -> None:
    assert until(lambda: group.commit(0, 0, "") == ErrorCode.none)
    for size in range(1, 60):
        assert group.commit(0, size, "x" * size) == ErrorCode.none
        found = group.admin.committed_offsets(group.name, [group.at(0)])
        assert found[group.at(0)].offset == size


def test_offsets_that_a_transaction_replaces_are_waited_for(group: Group) -> None:
    assert until(lambda: group.commit(0, 1, None) == ErrorCode.none)
    transactions = Transactions(group.client, f"{group.name}-x")
    transactions.find_coordinator()
    assert transactions.begin() == ErrorCode.none
    assert transactions.add_offsets(group.name) == ErrorCode.none
    assert transactions.commit_offset(group.name, group.topic, 8) == ErrorCode.none
    assert group.committed(0, stable=False, cluster=group.impatient) == {0: (1, "", -1)}
    with pytest.raises(UnstableOffsetCommitError, match="is open"):
        group.committed(0, cluster=group.impatient)
    assert transactions.end() == ErrorCode.none
    assert until(lambda: group.committed(0, stable=False) == {0: (8, "m", -1)})
    assert group.committed(0) == {0: (8, "m", -1)}
