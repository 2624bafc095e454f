"""Shared parts of all epoch writers: their protocol, and the calls of `produce`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer

from penstock.client.api import GroupCommit, OnRefused
from penstock.client.confluent.connection import ClientConnection
from penstock.client.confluent.refusals import RefusedError, fail_on_refused, is_refusal, raise_refused, replaced
from penstock.client.confluent.time_zero import ByItself
from penstock.record import PartitionBatch, TopicPartition

_POLL_EVERY = 4096


class EpochWriter(Protocol):
    """Writes the output of one sink partition, one epoch per call."""

    def write(
        self,
        epoch: int,
        owner: str,
        output: Sequence[PartitionBatch],
        on_refused: OnRefused = fail_on_refused,
        note: str = "",
        group_commit: GroupCommit | None = None,
    ) -> bool:
        """Write the output of one epoch; return False if it is already committed.

        Args:
            epoch, owner: identify the output together.
            output: the records, in order for each partition.
            on_refused: decides about records that brokers refuse.
            note: identifies the input of the epoch.
            group_commit: offsets to commit with the output.

        Raises:
            KafkaError: the output cannot be written.
            TaskMigratedError: the group of the offsets has members.
        """
        ...

    def close(self) -> None:
        """Release connections and threads."""
        ...


class UntakenError(KafkaException):
    """A producer does not accept a record of `partition`."""

    def __init__(self, code: Code, partition: TopicPartition) -> None:
        super().__init__(code)
        self.partition = partition


def partition_of(error: KafkaException, output: Sequence[PartitionBatch]) -> TopicPartition:
    """Return the partition of `error`; the first one of `output` if the client itself has failed."""
    if isinstance(error, UntakenError):
        return error.partition
    return TopicPartition(output[0].topic, output[0].partition) if output else TopicPartition("", 0)


def send_output(
    connection: ClientConnection,
    producer: Producer,
    by_itself: ByItself,
    output: Sequence[PartitionBatch],
    on_refused: Callable[[RefusedError], object] = raise_refused,
    refuses: Callable[[Code], bool] = is_refusal,
) -> None:
    """Send all records, and wait while the buffer of the producer is full.

    Args:
        connection: the connection of the producer.
        producer: the producer.
        by_itself: writes records with timestamp 0 without the producer.
        output: the records.
        on_refused: called with each record whose error `refuses` accepts.
        refuses: selects the errors that are refusals.

    Raises:
        UntakenError: the first record that failed with another error.
    """
    connection.asks()
    for part, each in enumerate(output):
        try:
            for row, code in by_itself.write(each) if by_itself.takes(each) else _produced(connection, producer, each):
                if not refuses(code):
                    raise KafkaException(code)
                on_refused(RefusedError(part, row, code))
        except KafkaException as error:
            raise UntakenError(error.args[0], TopicPartition(each.topic, each.partition)) from error


def _produced(connection: ClientConnection, producer: Producer, output: PartitionBatch) -> Iterator[tuple[int, Code]]:
    """Send the records of a batch; yield row and error of each record that `producer` does not accept."""
    produce, poll = producer.produce, producer.poll
    for row, arguments in enumerate(_produce_arguments(output)):
        if row % _POLL_EVERY == _POLL_EVERY - 1:
            poll(0)
        while True:
            try:
                produce(*arguments)
                break
            except BufferError:
                _wait_for_room(connection, producer)
            except KafkaException as error:
                yield row, error.args[0]
                break


def send_accepted(send: Callable[..., None], output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
    """Send all valid records, and after them the replacements of invalid ones.

    Brokers may refuse further records later.

    Args:
        send: `send_output` of a producer.
        output: the records.
        on_refused: returns the replacements; its errors are raised.
    """
    refused: list[RefusedError] = []
    send(output, refused.append)
    if refused:
        send(replaced(output, refused, on_refused)[len(output) :], refuses=lambda code: False)


def _produce_arguments(output: PartitionBatch) -> Iterator[tuple[Any, ...]]:
    """Return the positional arguments of `produce` for each record: keywords would cost half as much again."""
    topic, partition, batch, _ = output
    columns = [
        repeat(topic),
        batch.values,
        batch.keys,
        repeat(partition),
        repeat(None),  # callback and on_delivery: the producer has its own
        repeat(None),
        batch.timestamps.tolist(),
    ]
    return zip(*columns, *([] if batch.headers is None else [map(list, batch.headers)]), strict=False)


def _wait_for_room(connection: ClientConnection, producer: Producer) -> None:
    waiting = len(producer)
    deadline = time.monotonic() + connection.timeout
    while len(producer) >= waiting:
        producer.poll(0.05)
        if time.monotonic() >= max(deadline, connection.throttled_until + connection.timeout):
            raise KafkaException(Code(Code._TIMED_OUT, "the brokers accept no more records"))
