"""The fixture of a real Kafka: its refusals, its end, and the death of one broker of three."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers import ON_KAFKA_CLUSTER
from tests.support.kafka import RealKafka, require_kafka
from tests.support.waiting import until

WAIT = 60


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_java")
def test_without_java_a_test_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_REQUIRE_KAFKA", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no real Kafka: Java 17 or newer is needed"):
        require_kafka()


@pytest.mark.usefixtures("no_java")
def test_without_java_a_test_fails_where_kafka_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_REQUIRE_KAFKA", "1")
    with pytest.raises(pytest.fail.Exception, match="Java 17 or newer is needed"):
        require_kafka()


def is_created(admin: AdminClient, topic: NewTopic) -> bool:
    """Return whether `topic` is there. A client that learns the brokers by name gives up what it asked the first."""
    try:
        admin.create_topics([topic])[topic.topic].result(WAIT)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


@pytest.mark.kafka
@ON_KAFKA_CLUSTER[1]
def test_a_cluster_serves_with_one_of_three_brokers_killed(real_kafka_cluster: RealKafka) -> None:
    servers = real_kafka_cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    assert until(lambda: is_created(admin, NewTopic("replicated", 3, 3)))
    real_kafka_cluster.kill(2)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    failures: list[object] = []
    for partition in range(3):
        producer.produce(
            "replicated",
            b"x",
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT) == 0
    assert failures == []
    real_kafka_cluster.resume(2)
    # Brokers learn of others one after another.
    assert until(lambda: len(admin.list_topics(timeout=WAIT).brokers) == 3)
