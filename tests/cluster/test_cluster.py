"""A word count exactly once on Spark, on three brokers of a real Kafka that die, restart, lose replicas, or slow it.

`make test-slow` kills two kinds of brokers and restarts one broker, drawn by the seed of `test_kills`; `make crash`
(PENSTOCK_CRASH=all) kills and restarts all of them, one every ten seconds for minutes.
"""

from __future__ import annotations

import io
import logging
import random
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from kio.schema.describe_quorum.v1 import request, response
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import RetriableError
from penstock.host.api import State
from penstock.host.spark.protocol.transactions import commits_topic
from tests.cluster.word_count import WordCount, create_topic
from tests.crash.seed import ALL, SEED
from tests.host.spark.support import SparkRunner
from tests.host.support import wait_for
from tests.support.api_keys import DESCRIBE_QUORUM, FIND_COORDINATOR
from tests.support.brokers import ON_KAFKA_CLUSTER
from tests.support.client_quotas import alter
from tests.support.kafka import RealKafka
from tests.support.protocol_client import ProtocolClient
from tests.support.transactions import ready

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(7200 if ALL else 1200), *ON_KAFKA_CLUSTER]

ROUNDS = 5 if ALL else 1
KILL_SECONDS = 10.0 if ALL else 0.0
"""The least time between two kills; the next one also waits until all replicas are in sync."""

GROUP, TRANSACTION = 0, 1
PRODUCED_BYTES, CONSUMED_BYTES = 2_000, 5_000
"""Quotas, in bytes per second: less than epochs write and read. Kafka never serves a batch above what a quota allows
for its whole window, which is three seconds here."""


@pytest.fixture(scope="module")
def runner(real_kafka_cluster: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRunner]:
    runner = SparkRunner(real_kafka_cluster.bootstrap_servers, tmp_path_factory.mktemp("cluster"))
    yield runner
    runner.close()


@pytest.fixture
def cluster(real_kafka_cluster: RealKafka) -> Iterator[RealKafka]:
    """The cluster with all brokers and replicas, before the test and for the next one."""
    wait_for(real_kafka_cluster.all_in_sync)
    yield real_kafka_cluster
    for broker in real_kafka_cluster.stopped():
        real_kafka_cluster.resume(broker)


def coordinator(cluster: RealKafka, kind: int, key: str) -> int:
    """Return the broker that coordinates a group or the transactions of an id."""
    with ProtocolClient(cluster.bootstrap_servers.split(",")[0]) as client:
        body = {"key_type": kind, "coordinator_keys": [key]}
        return int(ready(lambda: client.call(FIND_COORDINATOR, 4, body)["coordinators"][0])["node_id"])


def active_controller(cluster: RealKafka) -> int:
    """Return the controller that leads the quorum; asked with kio, since only this test needs DescribeQuorum."""
    partition = request.PartitionData(partition_index=i32(0))
    topic = request.TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(partition,))
    body = io.BytesIO()
    entity_writer(request.DescribeQuorumRequest)(body, request.DescribeQuorumRequest(topics=(topic,)))
    header = struct.pack(">hhih", DESCRIBE_QUORUM, 1, 1, 4) + b"test\x00"
    with ProtocolClient(cluster.bootstrap_servers.split(",")[0]) as client:
        client.send_frame(header + body.getvalue())
        content = client.receive_frame()
    answer, _ = entity_reader(response.DescribeQuorumResponse)(content, 5)  # after the correlation id and no tags
    return int(answer.topics[0].partitions[0].leader_id)


VICTIMS: dict[str, Callable[[RealKafka, str], int]] = {
    "leader of the output": lambda cluster, name: cluster.leader(f"{name}-out"),
    "coordinator of the group": lambda cluster, name: coordinator(cluster, GROUP, commits_topic(name)),
    "coordinator of the transactions": lambda cluster, name: coordinator(cluster, TRANSACTION, f"{name}-sink-0"),
    "controller": lambda cluster, _: active_controller(cluster),
}
KILLED = tuple(VICTIMS) if ALL else random.Random(SEED).sample(tuple(VICTIMS), 2)
RESTARTED = (1, 2, 3) if ALL else (1 + SEED % 3,)


def test_counts_are_exact_while_leaders_coordinators_and_controllers_are_killed(
    cluster: RealKafka, runner: SparkRunner, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("app")
    with WordCount(runner, name) as word_count:
        for _ in range(ROUNDS):
            for victim in KILLED:
                word_count.write()
                word_count.wait_for_epochs()
                broker = VICTIMS[victim](cluster, name)
                word_count.write()
                killed = time.monotonic()
                cluster.kill(broker)
                word_count.wait_for_epochs()
                cluster.resume(broker)
                word_count.wait_for(lambda at=killed: time.monotonic() - at >= KILL_SECONDS and cluster.all_in_sync())
        word_count.assert_exact()


def test_counts_are_exact_while_brokers_restart_and_replicas_leave_and_return(
    cluster: RealKafka, runner: SparkRunner, unique_name: Callable[[str], str]
) -> None:
    with WordCount(runner, unique_name("app")) as word_count:
        for broker in RESTARTED * ROUNDS:
            word_count.write()
            word_count.wait_for_epochs()
            cluster.stop(broker)
            word_count.wait_for(lambda gone=broker: cluster.in_sync(word_count.target) == {1, 2, 3} - {gone})
            word_count.write()
            word_count.wait_for_epochs()
            cluster.resume(broker)
            word_count.wait_for(lambda: cluster.in_sync(word_count.target) == {1, 2, 3})
            word_count.write()
            word_count.wait_for_epochs()
            word_count.wait_for(cluster.all_in_sync)
        word_count.assert_exact()


@pytest.mark.long
def test_too_few_replicas_in_sync_delay_the_application_and_lose_nothing(
    cluster: RealKafka, runner: SparkRunner, unique_name: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    name = unique_name("app")
    with (
        caplog.at_level(logging.WARNING, "penstock.host.spark.driver.broker_watch"),
        WordCount(runner, name, target_replicas=(1, 2)) as word_count,
    ):
        create_topic(runner.bootstrap_servers, f"{name}-other", (1, 2))
        word_count.write()
        word_count.wait_for_epochs()
        [follower] = {1, 2} - {cluster.leader(word_count.target)}
        cluster.kill(follower)
        word_count.write()
        refused = f"the brokers have accepted no records for {word_count.target}-0 (1 of its 2 replicas in sync, min."
        word_count.wait_for(lambda: refused in caplog.text)
        word_count.wait_for(lambda: len(cluster.in_sync(f"{name}-other")) == 1)
        with pytest.raises(RetriableError, match=r"min\.insync\.replicas"):
            write_one(runner, f"{name}-other")
        assert word_count.streams.state() is State.RUNNING
        cluster.resume(follower)
        word_count.assert_exact()
        word_count.wait_for(lambda: f"the brokers accept records for {word_count.target}-0 again" in caplog.text)


def write_one(runner: SparkRunner, topic: str) -> None:
    config = {"bootstrap.servers": runner.bootstrap_servers, "producer.delivery.timeout.ms": 8_000}
    producer = ConfluentProducer(StreamsConfig(config))
    producer.send(topic, None, b"x", 0)
    producer.close()


@pytest.mark.long
def test_a_quota_slows_the_application_and_is_seen_in_its_statistics(
    cluster: RealKafka, runner: SparkRunner, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("app")
    with ProtocolClient(cluster.bootstrap_servers.split(",")[0]) as client:
        assert not alter(client, f"{name}-producer", producer_byte_rate=PRODUCED_BYTES)["error_code"]
        assert not alter(client, f"{name}-consumer", consumer_byte_rate=CONSUMED_BYTES)["error_code"]
        with WordCount(runner, name, values={"statistics.interval.ms": 100}) as word_count:
            for _ in range(2):
                word_count.write()
            for role, metric in (("producer", "produce-throttle-time-max"), ("consumer", "fetch-throttle-time-max")):
                word_count.wait_for(lambda role=role, metric=metric: client_figure(word_count, role, metric) > 0)
            alter(client, f"{name}-producer", producer_byte_rate=None)
            alter(client, f"{name}-consumer", consumer_byte_rate=None)
            word_count.assert_exact()


def client_figure(word_count: WordCount, role: str, metric: str) -> float:
    return float(word_count.streams.statistics()["clients"].get(role, {}).get(metric, 0))
