"""What is sent of an output, and what is said of a record that the producer does not accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer

from penstock.client.api import RefusedRecord
from penstock.client.confluent.connection import ClientConnection
from penstock.client.confluent.delivery_reports import DeliveryReports
from penstock.client.confluent.refusals import RefusedError
from penstock.client.confluent.sending import UntakenError, partition_of, send_accepted, send_output
from penstock.record import PartitionBatch, RecordBatch, TopicPartition

LARGE = b"x" * 2_000
Taken = Callable[[], list[bytes | None]]


class Alone:
    """Writes the parts for one topic without the producer, and refuses rows."""

    def __init__(self, topic: str = "", refused: Sequence[tuple[int, Code]] = ()) -> None:
        self.topic, self.refused = topic, refused
        self.written: list[list[bytes | None]] = []

    def takes(self, output: PartitionBatch) -> bool:
        return output.topic == self.topic

    def write(self, output: PartitionBatch) -> Sequence[tuple[int, Code]]:
        self.written.append(list(output.batch.values))
        return self.refused


@pytest.fixture
def reports() -> DeliveryReports:
    return DeliveryReports()


@pytest.fixture
def connection(reports: DeliveryReports) -> ClientConnection:
    settings = {"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 1_000, "queue.buffering.max.messages": 5}
    return ClientConnection({**settings, "on_delivery": reports.delivered}, 0)


@pytest.fixture
def producer(connection: ClientConnection) -> Producer:
    return connection.make(Producer)


@pytest.fixture
def taken(producer: Producer, reports: DeliveryReports) -> Taken:
    """A function that purges the producer, and returns the values that it had."""

    def purge() -> list[bytes | None]:
        producer.purge()
        producer.flush(60)
        return [message.value() for _, message in reports.failures]

    return purge


def batch(*values: bytes, topic: str = "t", partition: int = 0) -> PartitionBatch:
    rows: list[Any] = [(b"k", value, 5, 0, (("h", b"1"),)) for value in values]
    return PartitionBatch(topic, partition, RecordBatch.of(rows))


def test_all_records_are_sent_and_refused_ones_reported(
    connection: ClientConnection, producer: Producer, taken: Taken
) -> None:
    refused: list[RefusedError] = []
    output = [batch(b"a", LARGE, b"b"), batch(LARGE, partition=1)]
    send_output(connection, producer, Alone(), output, refused.append)
    assert [(each.part, each.row, each.code.code()) for each in refused] == [
        (0, 1, Code.MSG_SIZE_TOO_LARGE),
        (1, 0, Code.MSG_SIZE_TOO_LARGE),
    ]
    assert taken() == [b"a", b"b"]


def test_parts_of_another_writer_do_not_reach_the_producer(
    connection: ClientConnection, producer: Producer, taken: Taken
) -> None:
    alone = Alone("zero", [(1, Code(Code.INVALID_RECORD))])
    refused: list[RefusedError] = []
    send_output(connection, producer, alone, [batch(b"a"), batch(b"b", b"c", topic="zero")], refused.append)
    assert alone.written == [[b"b", b"c"]]
    assert [(each.part, each.row) for each in refused] == [(1, 1)]
    assert taken() == [b"a"]


def test_an_error_that_is_no_refusal_names_its_partition(connection: ClientConnection, producer: Producer) -> None:
    alone = Alone("zero", [(0, Code(Code.TOPIC_AUTHORIZATION_FAILED))])
    output = [batch(b"a"), batch(b"b", topic="zero", partition=3)]
    with pytest.raises(UntakenError) as caught:
        send_output(connection, producer, alone, output)
    assert caught.value.args[0].code() == Code.TOPIC_AUTHORIZATION_FAILED
    assert partition_of(caught.value, output) == TopicPartition("zero", 3)


def test_an_error_of_the_client_is_that_of_the_first_part() -> None:
    error = KafkaException(Code(Code._FATAL))
    assert partition_of(error, [batch(b"a", partition=2), batch(b"b")]) == TopicPartition("t", 2)
    assert partition_of(error, []) == TopicPartition("", 0)


def test_a_full_buffer_is_waited_for_until_the_timeout(
    connection: ClientConnection, producer: Producer, taken: Taken
) -> None:
    with pytest.raises(UntakenError, match="the brokers accept no more records"):
        send_output(connection, producer, Alone(), [batch(*[b"v"] * 6)])
    assert taken() == [b"v"] * 5


def test_replacements_are_sent_after_all_and_are_not_replaced(
    connection: ClientConnection, producer: Producer, taken: Taken
) -> None:
    alone = Alone("letters")
    send = partial(send_output, connection, producer, alone)

    def letter(record: RefusedRecord) -> list[PartitionBatch]:
        return [batch(b"letter of %d" % len(record.value or b""), topic="letters")]

    send_accepted(send, [batch(b"a", LARGE)], letter)
    assert (alone.written, taken()) == ([[b"letter of 2000"]], [b"a"])
    with pytest.raises(UntakenError):
        send_accepted(send, [batch(LARGE)], lambda record: [batch(LARGE)])
