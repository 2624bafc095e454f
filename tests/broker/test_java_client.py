"""Apache Kafka's own Java clients and tools, on the embedded broker and on a real Kafka alike."""

from __future__ import annotations

import queue
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.host.deployment.layout import layout_of
from penstock.host.threads import vocabulary as v
from penstock.host.threads.group import GroupMembership
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition as InputPartition
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.brokers import ON_KAFKA, RunningBroker
from tests.support.kafka import KAFKA_VERSION, kafka_class_path, require_kafka
from tests.support.protocol_client import ProtocolClient
from tests.support.transactions import Transactions
from tests.support.waiting import WAIT_SECONDS

pytestmark = [*ON_KAFKA, pytest.mark.one_broker]
TOOLS = "org.apache.kafka.tools"
RECORDS = 2_000
WAIT = 60


def java(main: str, *arguments: str, input: str | None = None) -> str:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", kafka_class_path(), main, *arguments]
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def at_broker(broker: RunningBroker) -> tuple[str, str]:
    require_kafka()
    return "--bootstrap-server", broker.bootstrap_servers


def test_topics_are_created_described_grown_and_deleted(at_broker: tuple[str, str]) -> None:
    tool = f"{TOOLS}.TopicCommand"
    create = ("--create", "--topic", "java-life", "--partitions", "2", "--config", "cleanup.policy=compact")
    assert "Created topic java-life" in java(tool, *at_broker, *create)
    java(tool, *at_broker, "--alter", "--topic", "java-life", "--partitions", "3")
    described = java(tool, *at_broker, "--describe", "--topic", "java-life")
    assert "PartitionCount: 3" in described
    assert "cleanup.policy=compact" in described
    java(tool, *at_broker, "--delete", "--topic", "java-life")
    assert "java-life" not in java(tool, *at_broker, "--list").split()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_the_java_producer_are_found(at_broker: tuple[str, str], compression: str) -> None:
    """It is idempotent by default and frames snappy in its own way."""
    topic = f"java-{compression}"
    settings = (f"bootstrap.servers={at_broker[1]}", f"compression.type={compression}")
    load = ("--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1")
    said = java(f"{TOOLS}.ProducerPerformance", "--topic", topic, *load, "--command-property", *settings)
    assert f"{RECORDS} records sent" in said
    client = Consumer({"bootstrap.servers": at_broker[1], "group.id": "unused", "log_level": 0})
    assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT) == (0, RECORDS)
    # The broker reads the records of the batches to find the first one after a time.
    [found] = client.offsets_for_times([TopicPartition(topic, 0, 1)], timeout=WAIT)
    client.assign([TopicPartition(topic, 0, 0)])
    records = client.consume(RECORDS, WAIT)
    client.close()
    assert found.offset == 0
    assert [record.offset() for record in records] == list(range(RECORDS))
    assert {len(record.value()) for record in records} == {100}


def test_offsets_are_listed_and_records_consumed_from_one(at_broker: tuple[str, str]) -> None:
    lines = [f"line {number}" for number in range(50)]
    produce = ("--topic", "java-lines", "--compression-codec", "snappy")
    java(f"{TOOLS}.ConsoleProducer", *at_broker, *produce, input="\n".join(lines) + "\n")
    for when, offset in (("-1", 50), ("-2", 0)):
        listed = java(f"{TOOLS}.GetOffsetShell", *at_broker, "--topic", "java-lines", "--time", when)
        assert listed.strip() == f"java-lines:0:{offset}"
    read = ("--topic", "java-lines", "--partition", "0", "--offset", "10", "--max-messages", "40")
    assert java(f"{TOOLS}.consumer.ConsoleConsumer", *at_broker, *read).splitlines() == lines[10:]


def in_columns(table: str, *names: str) -> list[tuple[str, ...]]:
    """Return columns of a table that a tool prints, row by row."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    header = next(number for number, line in enumerate(lines) if names[0] in line)
    at = [lines[header].index(name) for name in names]
    return [tuple(line[number] for number in at) for line in lines[header + 1 :]]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_the_console_consumer_is_described_reset_and_deleted(
    at_broker: tuple[str, str], protocol: str
) -> None:
    topic, group = f"java-group-{protocol}", f"java-readers-{protocol}"
    java(f"{TOOLS}.TopicCommand", *at_broker, "--create", "--topic", topic, "--partitions", "2")
    produce = ("--topic", topic, "--compression-codec", "none")
    java(f"{TOOLS}.ConsoleProducer", *at_broker, *produce, input="".join(f"line {number}\n" for number in range(20)))
    consume = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "20")
    settings = ("--command-property", f"group.protocol={protocol}")
    read = java(f"{TOOLS}.consumer.ConsoleConsumer", *at_broker, *consume, *settings)
    assert sorted(read.split("\n")[:-1]) == sorted(f"line {number}" for number in range(20))
    tool = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    java(f"{TOOLS}.ConsoleProducer", *at_broker, *produce, input="one\ntwo\nthree\n")
    described = java(tool, *at_broker, "--describe", "--group", group)
    rows = in_columns(described, "TOPIC", "PARTITION", "CURRENT-OFFSET", "LAG")
    assert {(name, partition) for name, partition, _, _ in rows} == {(topic, "0"), (topic, "1")}
    assert sum(int(offset) for _, _, offset, _ in rows if offset != "-") == 20
    assert sum(int(lag) for _, _, _, lag in rows if lag != "-") == 3
    listed = java(tool, *at_broker, "--list", "--state", "Empty")
    assert group in [row[0] for row in in_columns(listed, "GROUP", "STATE")]
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert {row[-1] for row in in_columns(java(tool, *at_broker, *reset), "TOPIC", "NEW-OFFSET")} == {"0"}
    java(tool, *at_broker, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    rows = in_columns(java(tool, *at_broker, "--describe", "--group", group), "PARTITION", "CURRENT-OFFSET")
    assert ("1", "0") in rows
    assert ("0", "0") not in rows
    assert "successful" in java(tool, *at_broker, "--delete", "--group", group)
    assert group not in java(tool, *at_broker, "--list").split()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_consumers_share_partitions(at_broker: tuple[str, str], protocol: str) -> None:
    topic, group = f"java-shared-{protocol}", f"java-sharing-{protocol}"
    tool = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    java(f"{TOOLS}.TopicCommand", *at_broker, "--create", "--topic", topic, "--partitions", "4")
    consume = ("--topic", topic, "--group", group, "--command-property", f"group.protocol={protocol}")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", kafka_class_path(), f"{TOOLS}.consumer.ConsoleConsumer"]
    running = [
        subprocess.Popen([*command, *at_broker, *consume], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    try:
        owners: list[str] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while sorted(owners.count(owner) for owner in set(owners)) != [2, 2]:
            assert time.monotonic() < deadline, owners
            described = java(tool, *at_broker, "--describe", "--group", group)
            if "CONSUMER-ID" in described:  # before the first member comes, the group is missing
                owners = [owner for (owner,) in in_columns(described, "CONSUMER-ID") if owner != "-"]
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_an_instance_of_the_threads_host_is_described(at_broker: tuple[str, str], tmp_path: Path) -> None:
    topic, group = "java-instance-in", "java-instance"
    config = StreamsConfig({"application.id": group, "bootstrap.servers": at_broker[1], "state.dir": str(tmp_path)})
    admin, producer = ConfluentAdmin(config), ConfluentProducer(config)
    admin.create_topics([NewTopic(topic, 2)])
    builder = StreamsBuilder()
    builder.stream(topic).foreach(lambda key, value: None)
    events: queue.SimpleQueue[v.Event] = queue.SimpleQueue()
    layout = layout_of(built_topology(builder.build(), group), config, {topic: 2})
    membership = GroupMembership(layout, config, events.put)
    membership.start()
    try:
        assert events.get(timeout=WAIT) == v.Assigned(frozenset(layout.groups))
        for _ in range(3):
            producer.send(topic, None, b"line", 1)
        producer.flush()
        places = [InputPartition(topic, number) for number in range(2)]
        membership.commit({place: OffsetAndMetadata(place.partition, "") for place in places})
        assert events.get(timeout=WAIT) == v.OffsetsCommitted()
        tool = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
        described = java(tool, *at_broker, "--describe", "--group", group)
        rows = in_columns(described, "TOPIC", "PARTITION", "CURRENT-OFFSET", "LAG", "CONSUMER-ID")
        identity = membership.identity()
        assert identity is not None
        member = identity.member_id
        assert sorted(rows) == [(topic, "0", "0", "0", member), (topic, "1", "1", "2", member)]
    finally:
        membership.leave()
        membership.close()
        producer.close()
        admin.close()


def records_of(bootstrap: str, topic: str, isolation_level: str) -> list[str]:
    """The values in partition 0 of a topic."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )  # fmt: skip
    client.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while (message := client.poll(WAIT)) is not None and message.error() is None:
        found.append((message.value() or b"").decode())
    client.close()
    return found


def test_a_java_program_copies_a_topic_exactly_once(at_broker: tuple[str, str]) -> None:
    """It speaks version 2 of transactions, commits its positions in them, and aborts some at random."""
    source, target, lines = "java-source", "java-copy", [f"line {number}" for number in range(200)]
    java(f"{TOOLS}.ConsoleProducer", *at_broker, "--topic", source, input="\n".join(lines) + "\n")
    copier = (
        "--broker-list", at_broker[1], "--input-topic", source, "--input-partition", "0", "--output-topic", target,
        "--consumer-group", "java-copier", "--transactional-id", "java-copier", "--transaction-size", "10",
        "--max-messages", "200", "--enable-random-aborts", "--use-group-metadata",
    )  # fmt: skip
    java(f"{TOOLS}.TransactionalMessageCopier", *copier)
    assert records_of(at_broker[1], target, "read_committed") == lines
    tool = f"{TOOLS}.TransactionsCommand"
    assert "java-copier" in java(tool, *at_broker, "list")
    described = java(tool, *at_broker, "describe", "--transactional-id", "java-copier")
    [(producer_id, epoch, state)] = in_columns(described, "ProducerId", "ProducerEpoch", "TransactionState")
    assert state == "CompleteCommit"
    # Each of the 20 transactions and of those that were aborted bumped it.
    assert int(epoch) >= 20
    producers = java(tool, *at_broker, "describe-producers", "--topic", target, "--partition", "0")
    assert producer_id in producers


def test_the_java_tool_aborts_transactions_that_hang(at_broker: tuple[str, str]) -> None:
    topic, tool = "java-hanging", f"{TOOLS}.TransactionsCommand"
    java(f"{TOOLS}.TopicCommand", *at_broker, "--create", "--topic", topic)
    with ProtocolClient(at_broker[1]) as client:
        for end in ("abort", "forceTerminateTransaction"):
            hanging = Transactions(client, f"java-{end}")
            assert hanging.begin() == ErrorCode.none
            assert hanging.produce(topic, 0, end.encode(), version=12) == ErrorCode.none
            if end == "abort":
                java(tool, *at_broker, end, "--topic", topic, "--partition", "0", "--start-offset", "0")
            else:
                java(tool, *at_broker, end, "--transactionalId", hanging.transactional_id)
            assert records_of(at_broker[1], topic, "read_committed") == []
    assert records_of(at_broker[1], topic, "read_uncommitted") == ["abort", "forceTerminateTransaction"]


def test_configurations_and_quotas_are_changed_with_the_java_tool(at_broker: tuple[str, str]) -> None:
    package = TOOLS if tuple(map(int, KAFKA_VERSION.split("."))) >= (4, 4) else "kafka.admin"
    tool, name = f"{package}.ConfigCommand", "java-configured"
    java(f"{TOOLS}.TopicCommand", *at_broker, "--create", "--topic", name)
    for kind, entity, change in (
        ("topics", name, "retention.ms=5"),
        ("clients", name, "producer_byte_rate=5000"),
        ("brokers", "1", "log.retention.bytes=123456789"),
    ):
        at_entity = (*at_broker, "--entity-type", kind, "--entity-name", entity)
        java(tool, *at_entity, "--alter", "--add-config", change)
        assert change in java(tool, *at_entity, "--describe")
    java(tool, *at_entity, "--alter", "--delete-config", "log.retention.bytes")
    assert "log.retention.bytes=-1" in java(tool, *at_entity, "--describe", "--all")


def test_log_directories_are_described_with_the_java_tool(at_broker: tuple[str, str]) -> None:
    java(f"{TOOLS}.TopicCommand", *at_broker, "--create", "--topic", "java-directories")
    described = java(f"{TOOLS}.LogDirsCommand", *at_broker, "--describe", "--topic-list", "java-directories")
    assert '"partition":"java-directories-0"' in described
