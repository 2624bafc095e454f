"""Answers are written in order, until brokers have them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.client.api import BatchProducer, OnRefused, RefusedOutputError, RefusedRecord
from penstock.errors import AuthorizationError, KafkaError, RecordTooLargeError, RetriableError
from penstock.host.calls.answer_writer import CallAnswer, ProducedAnswers, Replacements
from penstock.processor.calls import Answer, unpack_answer
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from tests.host.calls.support import LIMIT_SECONDS, until

TOPIC = "shop-risk-answers"


class Brokers:
    """Makes producers that write to a log, and fails as a test says."""

    def __init__(self, *errors: Exception) -> None:
        self.log: list[PartitionBatch] = []
        self.errors = [*errors]
        self.made = self.closed = 0
        self.too_large: bytes | None = None
        self.are_up = threading.Event()
        self.are_up.set()

    def producer(self) -> Brokers:
        assert self.are_up.wait(LIMIT_SECONDS)
        self.made += 1
        return self

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        for topic, partition, batch, _ in output:
            rows: list[Any] = []
            for key, value, time in zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True):
                if key == self.too_large and not unpack_answer(value or b"", TOPIC).failure:
                    error = RecordTooLargeError("too large")
                    assert on_refused(RefusedRecord(0, topic, partition, key, value, time, (), error)) == []
                else:
                    rows.append((key, value, time, 0, ()))
            if rows:
                self.log.append(PartitionBatch(topic, partition, RecordBatch.of(rows)))

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
            self.writer.write([record], self.settled.release)
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
    assert brokers.log[0].batch.timestamps.tolist() == [1_001]
    assert writing.writer.close(LIMIT_SECONDS)


def test_the_answers_after_a_refused_one_are_repeated_after_its_failure() -> None:
    brokers = Brokers()
    brokers.too_large = (2).to_bytes(8, "big")
    brokers.are_up.clear()
    writing = Writing(brokers)
    for number in (1, 2, 3):
        writing.writer.write([answer(number)], writing.settled.release)
    brokers.are_up.set()
    assert writing.writer.close(LIMIT_SECONDS)
    assert brokers.answers() == [(0, 1), (0, 3), (0, 1), (0, 2), (0, 3)]
    assert writing.errors == []


def test_a_failure_that_is_refused_is_lost() -> None:
    replacements, error = Replacements(), RecordTooLargeError("too large")
    failure = replace(answer(1).answer, result=None, failure="x" * 1_000)
    with pytest.raises(RecordTooLargeError):
        replacements.replace(RefusedRecord(0, TOPIC, 0, b"1", failure.pack(), 5, (), error))
    assert not replacements


def test_the_end_does_not_wait_for_brokers_that_do_not_answer() -> None:
    brokers = Brokers(*[RetriableError("down")] * 100)
    writing = Writing(brokers)
    writing.writer.write([answer(1)], writing.settled.release)
    until(lambda: brokers.made >= 1)
    assert writing.writer.close(LIMIT_SECONDS)
    assert len(writing.errors) == 1
    assert isinstance(writing.errors[0], KafkaError)


def test_a_writer_without_answers_ends_at_once() -> None:
    brokers = Brokers()
    assert Writing(brokers).writer.close(0)
    assert brokers.made == 0


def test_a_writer_connects_before_the_first_answer() -> None:
    brokers = Brokers()
    writing = Writing(brokers)
    writing.writer.open()
    writing.writer.open()
    until(lambda: brokers.made == 1)
    writing.write(answer(1))
    assert writing.writer.close(LIMIT_SECONDS)
    assert brokers.made == brokers.closed == 1


def test_a_writer_that_cannot_connect_reports_it_with_the_first_answer() -> None:
    errors: list[Exception] = []

    def refused() -> BatchProducer:
        raise AuthorizationError("no right")

    settled = threading.Event()
    writer = ProducedAnswers("shop", refused, errors.append)
    writer.open()
    writer.write([answer(1)], settled.set)
    assert settled.wait(LIMIT_SECONDS)
    assert [str(each) for each in errors] == ["no right"]
    assert writer.close(LIMIT_SECONDS)


@pytest.mark.parametrize("number", [1, 2_500])
def test_the_end_writes_all_answers(number: int) -> None:
    brokers = Brokers()
    writing = Writing(brokers)
    for each in range(number):
        writing.writer.write([answer(each)], writing.settled.release)
    assert writing.writer.close(LIMIT_SECONDS)
    assert brokers.answers() == [(0, each) for each in range(number)]
