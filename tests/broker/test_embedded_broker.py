"""The broker of tests: its life, and the faults that a test asks for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import EmbeddedBroker
from penstock_broker.errors import BrokerError
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import METADATA, PRODUCE
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.waiting import until

WAIT = 60


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    if shared.pid is None:
        shared.restart()
    shared.clear_faults()


def produce(client: ProtocolClient, topic: str) -> tuple[ErrorCode, int]:
    """Produce one record, and return the error and the offset."""
    records = bytes(encode_batch([BatchRecord(1000, b"k", b"v")]))
    data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    answer = client.call(PRODUCE, 11, {"acks": -1, "timeout": 1000, "topic_data": [data]})
    partition = answer["responses"][0]["partition_responses"][0]
    return partition["error_code"], partition["base_offset"]


def end_offset(broker: EmbeddedBroker, topic: str) -> int:
    client = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "log_level": 0})
    try:
        end: int = client.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT)[1]
        return end
    finally:
        client.close()


def data_directory(broker: EmbeddedBroker) -> Path:
    command = Path(f"/proc/{broker.pid}/cmdline").read_bytes().decode().split("\0")
    return Path(command[command.index("--data-dir") + 1])


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the directory is read from /proc")
def test_data_without_a_directory_goes_with_the_broker() -> None:
    with EmbeddedBroker() as broker:
        directory = data_directory(broker)
        assert directory.is_dir()
        broker.create_topic("topic")
        broker.kill()
        assert directory.is_dir()
        broker.restart()
        assert end_offset(broker, "topic") == 0
    assert not directory.exists()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the directory is read from /proc")
def test_data_without_a_directory_goes_when_the_test_is_killed() -> None:
    program = (
        "import sys; from penstock.testing import EmbeddedBroker\n"
        "broker = EmbeddedBroker(); broker.start(); print(broker.pid, flush=True); sys.stdin.read()"
    )
    test = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert test.stdout is not None
    pid = int(test.stdout.readline())
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    directory = Path(command[command.index("--data-dir") + 1])
    assert directory.is_dir()
    test.kill()
    test.communicate()
    assert until(lambda: not directory.exists())


def test_data_in_a_directory_stays(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "kept") as broker:
        broker.create_topic("topic", partitions=3, configs={"retention.ms": "-1"})
    with EmbeddedBroker(tmp_path / "kept") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        assert len(admin.list_topics(timeout=WAIT).topics["topic"].partitions) == 3


def test_it_is_loaded_without_what_it_does_not_need() -> None:
    program = "from penstock.testing import EmbeddedBroker\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT, check=True)
    heavy = {"numpy", "pyarrow", "pandas", "pyspark", "confluent_kafka", "rich", "penstock.host", "penstock.dsl"}
    assert not heavy & set(ran.stdout.split())


def test_requests_fail_as_often_as_asked_for_and_have_no_effect(broker: EmbeddedBroker) -> None:
    broker.create_topic("failing")
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    broker.fail("Produce", "KAFKA_STORAGE_ERROR")
    with ProtocolClient(broker.bootstrap_servers) as client:
        assert [produce(client, "failing")[0] for _ in range(4)] == [
            ErrorCode.not_leader_or_follower,
            ErrorCode.not_leader_or_follower,
            ErrorCode.kafka_storage_error,
            ErrorCode.none,
        ]
    assert end_offset(broker, "failing") == 1


def test_a_client_tries_again_what_failed(broker: EmbeddedBroker) -> None:
    broker.create_topic("retried")
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 1, "log_level": 0})
    producer.produce("retried", b"value")
    assert producer.flush(WAIT) == 0
    assert end_offset(broker, "retried") == 1


def test_an_error_of_every_kind_reaches_a_client(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    broker.fail("DeleteGroups", "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        admin.delete_consumer_groups(["group"])["group"].result(WAIT)
    broker.fail("CreateTopics", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.create_topics([NewTopic("refused", 1, 1)])["refused"].result(WAIT)


def test_connections_are_dropped_before_and_after_the_effect(broker: EmbeddedBroker) -> None:
    broker.create_topic("dropped")
    broker.drop_connection("Produce")
    broker.lose_answer("Produce")
    for ends in (0, 1):
        with ProtocolClient(broker.bootstrap_servers) as client, pytest.raises(ConnectionError):
            produce(client, "dropped")
        assert end_offset(broker, "dropped") == ends


def test_a_lost_answer_is_repeated_without_a_duplicate(broker: EmbeddedBroker) -> None:
    broker.create_topic("idempotent")
    broker.lose_answer("Produce", times=2)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
    producer = Producer({**settings, "reconnect.backoff.ms": 1, "retry.backoff.ms": 1})
    producer.produce("idempotent", b"value")
    assert producer.flush(WAIT) == 0
    assert end_offset(broker, "idempotent") == 1


def test_an_answer_is_held_back_and_those_of_others_are_not(broker: EmbeddedBroker) -> None:
    broker.create_topic("late")
    broker.delay("Metadata", delay_ms=600_000)
    with ProtocolClient(broker.bootstrap_servers) as late, ProtocolClient(broker.bootstrap_servers) as other:
        late.send(METADATA, 12, {"topics": []})
        # The request of the other is handled after it, because the broker handles requests as they come.
        late.socket.settimeout(0.2)
        assert produce(other, "late") == (ErrorCode.none, 0)
        with pytest.raises(TimeoutError):
            late.receive(METADATA, 12)
    broker.delay("Metadata", delay_ms=1)
    with ProtocolClient(broker.bootstrap_servers) as client:
        assert client.call(METADATA, 12, {"topics": []})["brokers"]


def test_the_broker_dies_between_the_append_and_the_answer(broker: EmbeddedBroker) -> None:
    broker.create_topic("killed")
    broker.kill_before_answer("Produce")
    with ProtocolClient(broker.bootstrap_servers) as client, pytest.raises(ConnectionError):
        produce(client, "killed")
    broker.restart()
    assert end_offset(broker, "killed") == 1


def test_what_cannot_be_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match="there is no API 'Prod'; there are AddOffsetsToTxn, "):
        broker.fail("Prod", "UNKNOWN_SERVER_ERROR")
    with pytest.raises(BrokerError, match="'NO_SUCH' is not an error of Kafka's protocol"):
        broker.fail("Produce", "NO_SUCH")
    with pytest.raises(BrokerError, match="at least 1"):
        broker.drop_connection("Produce", times=0)
    with pytest.raises(BrokerError, match="Unknown topic config name: nonsense"):
        broker.create_topic("refused", configs={"nonsense": "1"})
    with pytest.raises(BrokerError, match="does not run"):
        EmbeddedBroker().create_topic("topic")


def test_a_broker_that_does_not_start_leaves_no_directory() -> None:
    refused = EmbeddedBroker(arguments=["--log-retention-ms", "never"])
    with pytest.raises(BrokerError, match="invalid int value: 'never'"):
        refused.start()
    assert refused._temporary is not None
    assert not refused._temporary.exists()


def test_arguments_of_other_types_are_named(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match=r"the configuration retention.ms of topic 't' is 5: expected text, '5'"):
        broker.create_topic("t", configs={"retention.ms": 5})  # type: ignore[dict-item]  # what it refuses
    with pytest.raises(TypeError, match="Expected delay_ms as a timedelta or a whole number"):
        broker.delay("Produce", "5")  # type: ignore[arg-type]  # what it refuses
    with pytest.raises(BrokerError, match="cannot be held back for -5 ms"):
        broker.delay("Produce", -5)
    broker.delay("Produce", timedelta(milliseconds=1))
