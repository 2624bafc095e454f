"""Requests to any broker, to the leader of a partition, and to a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.client.sockets.cluster import GROUP, METADATA, TRANSACTION, Cluster, parsed_servers
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, ConfigError, KafkaError, RetriableError, UnknownTopicOrPartitionError
from penstock.record import TopicPartition
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.brokers import RunningBroker

DOING = "asking"


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}), 20_000) as cluster:
        yield cluster


def test_bootstrap_servers_are_hosts_and_ports() -> None:
    assert parsed_servers("one:1, two,[::1]:3,PLAINTEXT://four:4,[::1]") == [
        ("one", 1), ("two", 9092), ("::1", 3), ("four", 4), ("::1", 9092)
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parsed_servers("one:port")


def test_a_cluster_asks_the_next_broker_where_one_is_away(broker: RunningBroker) -> None:
    servers = f"127.0.0.1:1,{broker.bootstrap_servers}"
    with Cluster(StreamsConfig({"bootstrap.servers": servers}), 20_000) as cluster:
        [node] = cluster.nodes(DOING).values()
        assert f"{node.host}:{node.port}" == broker.bootstrap_servers
        with pytest.raises(UnknownTopicOrPartitionError, match="penstock topics list"):
            cluster.leader(TopicPartition("no-such-topic", 0), DOING)


@given(st.lists(st.tuples(st.text("a.", min_size=1), st.integers(0, 65_535)), max_size=4))
def test_servers_are_read_as_they_are_written(servers: list[tuple[str, int]]) -> None:
    assert parsed_servers(",".join(f"{host}:{port}" for host, port in servers)) == servers


def test_the_partitions_of_a_topic_are_led_by_a_known_broker(
    broker: RunningBroker, cluster: Cluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("t")
    admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}))
    admin.create_topics([NewTopic(topic, 2)])
    admin.close()
    places = [TopicPartition(topic, number) for number in range(2)]
    found = cluster.partitions(DOING, topic)
    assert sorted(found) == places
    assert found.keys() <= cluster.partitions(DOING).keys()
    assert cluster.leader(places[0], DOING) in cluster.nodes(DOING).values()
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.leader(TopicPartition(topic, 2), DOING)


@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
def test_the_coordinator_of_a_name_is_a_broker_of_the_cluster(
    cluster: Cluster, kind: int, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("x")
    node = cluster.repeat(lambda: cluster.coordinator(kind, name, DOING))
    assert node in cluster.nodes(DOING).values()


def test_a_closed_cluster_connects_again(cluster: Cluster) -> None:
    nodes = cluster.nodes(DOING)
    for _ in range(2):
        cluster.close()
    assert cluster.nodes(DOING) == nodes


NOWHERE = StreamsConfig({"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize("timeout_ms", [0, 60_000])
def test_only_retriable_errors_are_repeated_until_the_timeout(timeout_ms: int) -> None:
    left: list[KafkaError] = [RetriableError("one"), RetriableError("two"), KafkaError("three"), KafkaError("four")]

    def attempt() -> None:
        raise left.pop(0)

    with Cluster(NOWHERE, timeout_ms) as cluster, pytest.raises(KafkaError):
        cluster.repeat(attempt)
    assert len(left) == (3 if timeout_ms == 0 else 1)


@pytest.mark.parametrize(
    ("part", "kind", "says"),
    [
        ({"error_code": ErrorCode.leader_not_available}, RetriableError, r"\(asking\).*: LEADER_NOT_AVAILABLE\."),
        ({"error_code": 3, "error_message": "gone."}, UnknownTopicOrPartitionError, r": gone \(UNKNOWN_TOPIC_OR_PART"),
        ({"error_code": 9_999, "error_message": None}, KafkaError, r": error 9999\."),
    ],
)
def test_the_error_of_an_answer_has_its_name_and_text(
    part: dict[str, object], kind: type[KafkaError], says: str
) -> None:
    cluster = Cluster(NOWHERE)
    cluster.check({"error_code": 0, "error_message": "fine"}, DOING)
    with pytest.raises(kind, match=says) as caught:
        cluster.check(part, DOING)
    assert type(caught.value) is kind


def test_brokers_that_are_away_or_not_named_are_an_error() -> None:
    two = StreamsConfig({"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2"})
    with pytest.raises(BrokerNotFoundError, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2"):
        Cluster(two).ask_any(METADATA, {"topics": []}, DOING)
    with pytest.raises(ConfigError, match="it names no broker"):
        Cluster(StreamsConfig({"bootstrap.servers": " , "})).nodes(DOING)
