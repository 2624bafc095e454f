"""Answers are written in order, until brokers have them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from penstock.client.api import OnRefused, RefusedOutputError, RefusedRecord
from penstock.errors import AuthorizationError, KafkaError, RecordTooLargeError, RetriableError
from penstock.host.calls.answer_writer import CallAnswer, ProducedAnswers
from penstock.processor.calls import Answer, unpack_answer
from penstock.record import PartitionBatch, TopicPartition
from tests.host.calls.support import LIMIT_SECONDS, until

TOPIC = "shop-risk-answers"


class Brokers:
    """Makes producers that write to a log, and fails as a test says."""

    def __init__(self, *errors: Exception) -> None:
        self.log: list[PartitionBatch] = []
        self.errors = [*errors]
        self.made = self.closed = 0
        self.too_large: bytes | None = None

    def producer(self) -> Brokers:
        self.made += 1
        return self

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        for topic, partition, batch, _ in output:
            for key, value in zip(batch.keys, batch.values, strict=True):
                if self.too_large is not None and key == self.too_large:
                    error = RecordTooLargeError("too large")
                    self.log += on_refused(RefusedRecord(0, topic, partition, key, value, 5, (), error))
        self.log += output

    def flush(self) -> dict[TopicPartition, int]:
        if self.errors:
            self.log.clear()
            raise self.errors.pop(0)
        return {}

    def lags(self) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1

    def answers(self) -> list[tuple[int, int]]:
        """Return partition and number of the written answers."""
        return [
            (each.partition, unpack_answer(value or b"", TOPIC).sequence)
            for each in self.log
            for value in each.batch.values
        ]


def answer(number: int, partition: int = 0) -> CallAnswer:
    made = Answer(number, number.to_bytes(8, "big"), 1, b"result")
    return CallAnswer(TopicPartition(TOPIC, partition), number.to_bytes(8, "big"), made, 1_000 + number)


class Writing:
    """A writer, what it has settled, and the errors that it has reported."""

    def __init__(self, brokers: Brokers) -> None:
        self.settled = threading.Semaphore(0)
        self.errors: list[Exception] = []
        self.writer = ProducedAnswers("shop", brokers.producer, self.errors.append)

    def write(self, *records: CallAnswer) -> None:
        for record in records:
            self.writer.write(record, self.settled.release)
        for _ in records:
            assert self.settled.acquire(timeout=LIMIT_SECONDS)


def test_answers_are_written_with_number_and_time() -> None:
    brokers = Brokers()
    writing = Writing(brokers)
    writing.write(answer(1), answer(2))
    assert brokers.answers() == [(0, 1), (0, 2)]
    (key,), (time,) = brokers.log[0].batch.keys[:1], brokers.log[0].batch.timestamps[:1].tolist()
    assert (key, time, brokers.log[0].batch.headers) == ((1).to_bytes(8, "big"), 1_001, None)
    assert writing.writer.close(LIMIT_SECONDS)
    assert brokers.closed == brokers.made == 1


def test_partitions_are_written_together() -> None:
    brokers = Brokers()
    writing = Writing(brokers)
    writing.write(answer(1), answer(1, 1), answer(2), answer(2, 1))
    assert sorted(brokers.answers()) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert writing.writer.close(LIMIT_SECONDS)


def test_a_failure_that_may_pass_is_repeated_with_another_producer() -> None:
    brokers = Brokers(RetriableError("no leader"), RefusedOutputError("again"))
    writing = Writing(brokers)
    writing.write(answer(1), answer(2))
    assert dict.fromkeys(brokers.answers()) == dict.fromkeys([(0, 1), (0, 2)])
    assert brokers.made == 2
    assert writing.errors == []
    assert writing.writer.close(LIMIT_SECONDS)


def test_another_failure_is_reported() -> None:
    error = AuthorizationError("no right")
    brokers = Brokers(error)
    writing = Writing(brokers)
    writing.write(answer(1))
    assert writing.errors == [error]
    writing.write(answer(2))
    assert brokers.answers() == [(0, 2)]
    assert writing.writer.close(LIMIT_SECONDS)


def test_a_refused_answer_is_written_as_a_failure() -> None:
    brokers = Brokers()
    brokers.too_large = (1).to_bytes(8, "big")
    writing = Writing(brokers)
    writing.write(answer(1))
    failure = unpack_answer(brokers.log[0].batch.values[0] or b"", TOPIC)
    assert (failure.sequence, failure.result, failure.failure) == (1, None, "RecordTooLargeError: too large")
    assert (failure.sequence, failure.entry) == (1, (1).to_bytes(8, "big"))
    assert brokers.log[0].batch.timestamps.tolist() == [5]
    assert writing.writer.close(LIMIT_SECONDS)


def test_the_end_does_not_wait_for_brokers_that_do_not_answer() -> None:
    brokers = Brokers(*[RetriableError("down")] * 100)
    writing = Writing(brokers)
    writing.writer.write(answer(1), writing.settled.release)
    until(lambda: brokers.made >= 1)
    assert writing.writer.close(LIMIT_SECONDS)
    assert len(writing.errors) == 1
    assert isinstance(writing.errors[0], KafkaError)


def test_a_writer_without_answers_ends_at_once() -> None:
    brokers = Brokers()
    assert Writing(brokers).writer.close(0)
    assert brokers.made == 0


@pytest.mark.parametrize("number", [1, 2_500])
def test_the_end_writes_all_answers(number: int) -> None:
    brokers = Brokers()
    writing = Writing(brokers)
    for each in range(number):
        writing.writer.write(answer(each), writing.settled.release)
    assert writing.writer.close(LIMIT_SECONDS)
    assert brokers.answers() == [(0, each) for each in range(number)]
