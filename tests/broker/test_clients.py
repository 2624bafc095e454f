"""What clients can do with a broker, on the embedded one and on a real Kafka alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.brokers import RunningBroker
from tests.support.waiting import until

UniqueName = Callable[[str], str]
WAIT = 60


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient, unique_name: UniqueName) -> str:
    name = unique_name("topic")
    create(admin, name, 2)
    wait_for_partitions(admin, name, 2)
    return name


def create(admin: AdminClient, name: str, partitions: int, **configs: str) -> None:
    config = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(WAIT)


def produce(broker: RunningBroker, topic: str, values: list[bytes], partition: int = 0, **settings: object) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **config})
    failures: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(values):
        producer.produce(
            topic, value, key=b"k%d" % number, partition=partition, timestamp=1_000 + number, on_delivery=delivered
        )
    assert producer.flush(WAIT) == 0
    assert failures == []


def consumer(broker: RunningBroker, group: str = "unused", **settings: object) -> Consumer:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "error",
            "log_level": 0,
            **config,
        }
    )


def read(client: Consumer, start: TopicPartition, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    client.assign([start])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    deadline = time.monotonic() + WAIT
    while len(found) < count and time.monotonic() < deadline:
        for message in client.consume(count - len(found), 1.0):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.key(), message.value()))
    return found


def partitions_of(admin: AdminClient, topic: str) -> int:
    topics = admin.list_topics(timeout=WAIT).topics
    return len(topics[topic].partitions) if topic in topics else 0


def wait_for_partitions(admin: AdminClient, topic: str, count: int) -> None:
    """Kafka answers a change of topics before all its brokers show it."""
    assert until(lambda: partitions_of(admin, topic) == count)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed(broker: RunningBroker, topic: str, compression: str, idempotent: bool) -> None:
    values = [b"value %d" % number * 20 for number in range(1000)]
    produce(broker, topic, values, compression_type=compression, enable_idempotence=idempotent)
    client = consumer(broker)
    found = read(client, TopicPartition(topic, 0, OFFSET_BEGINNING), len(values))
    client.close()
    assert found == [(number, b"k%d" % number, value) for number, value in enumerate(values)]


def test_a_read_begins_at_any_offset(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(500)], batch_num_messages=50)
    client = consumer(broker)
    for start in (0, 1, 49, 50, 499):
        found = read(client, TopicPartition(topic, 0, start), 500 - start)
        assert [offset for offset, _, _ in found] == list(range(start, 500))
    client.close()


def test_a_waiting_consumer_gets_a_record_when_it_comes(broker: RunningBroker, topic: str) -> None:
    client = consumer(broker, fetch_wait_max_ms=50_000)
    client.assign(
        [TopicPartition(topic, 1, 0)]
    )  # one, for a fetch that waits for one of two holds up that of the other
    assert client.poll(0.5) is None
    produce(broker, topic, [b"late"], partition=1)
    message = client.poll(40)
    client.close()
    assert message is not None
    assert (message.partition(), message.value()) == (1, b"late")


def test_an_offset_beyond_the_end_is_out_of_range(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, [b"one"])
    client = consumer(broker)
    client.assign([TopicPartition(topic, 0, 7)])
    message = client.poll(WAIT)
    client.close()
    assert message is not None
    assert message.error().name() == "_AUTO_OFFSET_RESET"


def test_offsets_of_both_ends_and_by_time(broker: RunningBroker, admin: AdminClient, topic: str) -> None:
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(broker, topic, [b"x" * 100] * 100, compression_type=compression)
    client = consumer(broker)
    assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT) == (0, 500)
    for time_ms, expected in ((0, 0), (1_000, 0), (1_057, 57), (1_099, 99)):
        [found] = client.offsets_for_times([TopicPartition(topic, 0, time_ms)], timeout=WAIT)
        assert found.offset == expected
    [found] = client.offsets_for_times([TopicPartition(topic, 0, 1_100)], timeout=WAIT)
    assert found.offset == -1
    client.close()
    at = TopicPartition(topic, 0)
    assert admin.list_offsets({at: OffsetSpec.latest()})[at].result(WAIT).offset == 500
    assert admin.list_offsets({at: OffsetSpec.earliest()})[at].result(WAIT).offset == 0


def test_committed_offsets_are_kept_for_a_group(broker: RunningBroker, topic: str, unique_name: UniqueName) -> None:
    group = unique_name("group")
    produce(broker, topic, [b"x"] * 10)
    first = consumer(broker, group)
    first.commit(offsets=[TopicPartition(topic, 0, 7, metadata="note")], asynchronous=False)
    first.close()
    second = consumer(broker, group)
    found = second.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=WAIT)
    second.close()
    assert [(one.partition, one.offset) for one in found] == [(0, 7), (1, -1001)]
    assert found[0].metadata == "note"


def test_a_commit_for_a_missing_topic_is_refused(broker: RunningBroker, unique_name: UniqueName) -> None:
    client = consumer(broker, unique_name("group"))
    with pytest.raises(KafkaException) as caught:
        client.commit(offsets=[TopicPartition(unique_name("missing"), 0, 7)], asynchronous=False)
    client.close()
    assert caught.value.args[0].name() == "UNKNOWN_TOPIC_OR_PART"


def test_topics_are_created_described_grown_and_deleted(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName
) -> None:
    name = unique_name("life")
    create(admin, name, 2, cleanup_policy="compact", segment_bytes="2097152")
    wait_for_partitions(admin, name, 2)
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(WAIT)
    assert configs["cleanup.policy"].value == "compact"
    assert configs["segment.bytes"].value == "2097152"
    assert not configs["segment.bytes"].is_default
    assert configs["max.message.bytes"].value == "1048588"
    assert configs["max.message.bytes"].is_default
    admin.create_partitions([NewPartitions(name, 5)])[name].result(WAIT)
    wait_for_partitions(admin, name, 5)
    produce(broker, name, [b"x"], partition=4)
    admin.delete_topics([name])[name].result(WAIT)
    wait_for_partitions(admin, name, 0)


@pytest.mark.parametrize(
    ("partitions", "replication", "config", "error"),
    [
        (0, 1, {}, "INVALID_PARTITIONS"),
        (1, 3, {}, "INVALID_REPLICATION_FACTOR"),
        (1, 1, {"no.such.key": "1"}, "INVALID_CONFIG"),
        (1, 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        (1, 1, {"segment.bytes": "1048575"}, "INVALID_CONFIG"),
        (1, 1, {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "INVALID_CONFIG"),
        (1, 1, {"cleanup.policy": "burn"}, "INVALID_CONFIG"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    admin: AdminClient, unique_name: UniqueName, partitions: int, replication: int, config: dict[str, str], error: str
) -> None:
    name = unique_name("refused")
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(name, partitions, replication, config=config)])[name].result(WAIT)
    assert caught.value.args[0].name() == error
    assert name not in admin.list_topics(timeout=WAIT).topics


def test_a_topic_cannot_be_created_twice_nor_shrunk_nor_have_an_illegal_name(admin: AdminClient, topic: str) -> None:
    def error_of(call: Callable[[], object]) -> str:
        with pytest.raises(KafkaException) as caught:
            call()
        name: str = caught.value.args[0].name()
        return name

    assert error_of(lambda: create(admin, topic, 1)) == "TOPIC_ALREADY_EXISTS"
    assert error_of(lambda: create(admin, "a b", 1)) == "TOPIC_EXCEPTION"
    assert (
        error_of(lambda: admin.create_partitions([NewPartitions(topic, 1)])[topic].result(WAIT)) == "INVALID_PARTITIONS"
    )
    assert error_of(lambda: admin.delete_topics(["nowhere"])["nowhere"].result(WAIT)) == "UNKNOWN_TOPIC_OR_PART"


def test_a_deleted_topic_that_is_created_again_is_empty(broker: RunningBroker, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, [b"old"] * 5)
    admin.delete_topics([topic])[topic].result(WAIT)
    wait_for_partitions(admin, topic, 0)
    create(admin, topic, 2)
    produce(broker, topic, [b"new"])
    client = consumer(broker)
    assert read(client, TopicPartition(topic, 0, 0), 1) == [(0, b"k0", b"new")]
    client.close()


def test_one_replica_is_enough_where_it_is_the_only_one(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName
) -> None:
    topic = unique_name("topic")
    create(admin, topic, 1, min_insync_replicas="2")
    wait_for_partitions(admin, topic, 1)
    produce(broker, topic, [b"a"], acks="all")


def test_a_batch_larger_than_the_topic_allows_is_refused(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName
) -> None:
    name = unique_name("small")
    create(admin, name, 1, max_message_bytes="1000")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    results: list[str] = []
    producer.produce(name, b"x" * 2000, on_delivery=lambda error, message: results.append(error.name()))
    producer.flush(WAIT)
    assert results == ["MSG_SIZE_TOO_LARGE"]


def test_large_batches_and_many_segments_are_read_back(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName
) -> None:
    name = unique_name("segments")
    create(admin, name, 1, segment_bytes="1048576")
    values = [b"%06d" % number + b"x" * 994 for number in range(5_000)]
    produce(broker, name, values, batch_size=500_000, linger_ms=50)
    client = consumer(broker)
    found = read(client, TopicPartition(name, 0, 0), len(values))
    client.close()
    assert [value for _, _, value in found] == values


def first_error(broker: RunningBroker, topic: str, key: bytes | None, timestamp: int) -> int | None:
    """The code of the error with which a record is refused."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 1_000 * WAIT})
    codes: list[int | None] = []
    producer.produce(
        topic, b"v", key, timestamp=timestamp, on_delivery=lambda error, _: codes.append(error and error.code())
    )
    assert producer.flush(2 * WAIT) == 0
    return codes[0]


def refusal(call: Callable[[], object]) -> int:
    """The code of the error that a call raises."""
    with pytest.raises(KafkaException) as refused:
        call()
    code: int = refused.value.args[0].code()
    return code


def test_deleted_records_are_gone(broker: RunningBroker, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(5)])
    deleted = admin.delete_records([TopicPartition(topic, 0, 3)])
    assert [future.result(WAIT).low_watermark for future in deleted.values()] == [3]
    client = consumer(broker)
    assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT) == (3, 5)
    assert [offset for offset, *_ in read(client, TopicPartition(topic, 0, OFFSET_BEGINNING), 2)] == [3, 4]
    client.close()
    [beyond] = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    assert refusal(lambda: beyond.result(WAIT)) == KafkaError.OFFSET_OUT_OF_RANGE


def test_records_of_a_compacted_topic_are_not_deleted_by_clients(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName
) -> None:
    name = unique_name("compacted")
    create(admin, name, 1, cleanup_policy="compact")
    wait_for_partitions(admin, name, 1)
    [deleted] = admin.delete_records([TopicPartition(name, 0, 0)]).values()
    assert refusal(lambda: deleted.result(WAIT)) == KafkaError.POLICY_VIOLATION


def test_records_that_the_topic_does_not_allow_are_refused(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName
) -> None:
    now = int(time.time() * 1000)
    compacted, timed = unique_name("compacted"), unique_name("timed")
    create(admin, compacted, 1, cleanup_policy="compact")
    create(admin, timed, 1, message_timestamp_before_max_ms="600000", message_timestamp_after_max_ms="600000")
    for name in (compacted, timed):
        wait_for_partitions(admin, name, 1)
    assert first_error(broker, compacted, None, now) == KafkaError.INVALID_RECORD
    assert first_error(broker, compacted, b"k", now) is None
    for timestamp in (now - 1_200_000, now + 1_200_000):
        assert first_error(broker, timed, b"k", timestamp) == KafkaError.INVALID_TIMESTAMP
    assert first_error(broker, timed, b"k", now) is None


def test_records_get_the_time_of_their_append(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName
) -> None:
    name = unique_name("append-time")
    create(admin, name, 1, message_timestamp_type="LogAppendTime")
    wait_for_partitions(admin, name, 1)
    before = int(time.time() * 1000)
    produce(broker, name, [b"v"])
    client = consumer(broker)
    client.assign([TopicPartition(name, 0, 0)])
    message = client.poll(WAIT)
    client.close()
    assert message is not None
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= timestamp <= int(time.time() * 1000)


@pytest.mark.parametrize("compression", ["none", "lz4", "snappy"])
def test_a_compacted_topic_keeps_the_last_value_of_each_key(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName, compression: str
) -> None:
    name = unique_name("compacted")
    create(admin, name, 1, cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.01")
    wait_for_partitions(admin, name, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": compression})
    for written in range(4_000):
        producer.produce(name, b"%d-" % written + os.urandom(1_000), b"%d" % (written % 7), partition=0)
    assert producer.flush(WAIT) == 0
    deadline = time.monotonic() + 2 * WAIT
    client = consumer(broker, enable_partition_eof=True)
    while len(found := read_to_end(client, name)) > 3_000:
        assert time.monotonic() < deadline
    client.close()
    assert [offset for offset, *_ in found] == sorted(offset for offset, *_ in found)
    last = {key: value.partition(b"-")[0] for _, key, value in found}
    assert last == {b"%d" % (number % 7): b"%d" % number for number in range(3_993, 4_000)}


def read_to_end(client: Consumer, topic: str) -> list[tuple[int, bytes | None, bytes]]:
    """The records of a partition from its start to its end."""
    client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes | None, bytes]] = []
    while (message := client.poll(WAIT)) is not None:
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            return found
        found.append((message.offset(), message.key(), message.value() or b""))
    raise AssertionError(f"no end of {topic} after {len(found)} records")


def test_all_operations_are_authorized_where_a_client_asks(
    broker: RunningBroker, admin: AdminClient, topic: str, unique_name: UniqueName
) -> None:
    produce(broker, topic, [b"value"])
    group = unique_name("group")
    member = consumer(broker, group)
    member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    member.close()
    of_cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT).authorized_operations
    of_topic = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)[topic].result(WAIT)
    of_group = admin.describe_consumer_groups([group], include_authorized_operations=True)[group].result(WAIT)
    names = [
        {operation.name for operation in operations or ()}
        for operations in (of_cluster, of_topic.authorized_operations, of_group.authorized_operations)
    ]
    configs = {"DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
    assert names == [
        configs | {"CREATE", "ALTER", "CLUSTER_ACTION", "IDEMPOTENT_WRITE"},
        configs | {"READ", "WRITE", "CREATE", "DELETE", "ALTER"},
        configs | {"READ", "DELETE"},
    ]
    assert admin.describe_cluster().result(WAIT).authorized_operations is None


def test_configurations_are_changed_one_key_at_a_time(
    broker: RunningBroker, admin: AdminClient, unique_name: UniqueName
) -> None:
    name = unique_name("configured")
    create(admin, name, 1, retention_ms="5000000")

    def change(kind: ResourceType, of: str, key: str, operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(kind, of, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(WAIT)

    def wait_for(key: str, value: str) -> None:
        resource = ConfigResource(ResourceType.TOPIC, name)
        assert until(lambda: admin.describe_configs([resource])[resource].result(WAIT)[key].value == value)

    change(ResourceType.TOPIC, name, "cleanup.policy", AlterConfigOpType.APPEND, "compact")
    wait_for("cleanup.policy", "delete,compact")
    change(ResourceType.TOPIC, name, "cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")
    wait_for("cleanup.policy", "compact")
    change(ResourceType.TOPIC, name, "max.message.bytes", AlterConfigOpType.SET, "5000")
    wait_for("max.message.bytes", "5000")
    change(ResourceType.TOPIC, name, "max.message.bytes", AlterConfigOpType.DELETE, None)
    wait_for("max.message.bytes", "1048588")
    wait_for("retention.ms", "5000000")
    topics, brokers, wrong = ResourceType.TOPIC, ResourceType.BROKER, KafkaError.INVALID_CONFIG
    for kind, of, key, operation, value, code in (
        (topics, name, "retention.ms", AlterConfigOpType.SET, "x", wrong),
        (topics, name, "retention.ms", AlterConfigOpType.APPEND, "5", wrong),
        (topics, unique_name("x"), "retention.ms", AlterConfigOpType.SET, "5", KafkaError.UNKNOWN_TOPIC_OR_PART),
        (brokers, "1", "num.partitions", AlterConfigOpType.SET, "3", KafkaError.INVALID_REQUEST),
    ):
        assert refusal(partial(change, kind, of, key, operation, value)) == code, (key, operation)
