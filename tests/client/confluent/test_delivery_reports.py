"""Delivery reports: ends of partitions, refusals, and the errors that caused others."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import Message

from penstock.client.confluent.delivery_reports import DeliveryReports
from penstock.client.confluent.refusals import MOST_REFUSED, is_refusal
from penstock.errors import KafkaError
from penstock.record import PartitionBatch, RecordBatch, TopicPartition

REFUSED, HELD_BACK, LATE = Code(Code.MSG_SIZE_TOO_LARGE), Code(Code._PURGE_QUEUE), Code(Code._MSG_TIMED_OUT)


def message(value: bytes = b"v", partition: int = 0, offset: int = 0) -> Message:
    return Message(topic="t", partition=partition, offset=offset, key=b"k", value=value)


def reported(*codes: Code) -> DeliveryReports:
    reports = DeliveryReports()
    for number, code in enumerate(codes):
        reports.delivered(code, message(b"%d" % number))
    return reports


def batch(*values: bytes, partition: int = 0) -> PartitionBatch:
    return PartitionBatch("t", partition, RecordBatch.of([(b"k", value, 1, 0, ()) for value in values]))


def test_the_end_of_a_partition_follows_its_last_record_and_is_taken_once() -> None:
    reports = DeliveryReports()
    for offset in (5, 6):
        reports.delivered(None, message(offset=offset))
    reports.written(TopicPartition("t", 1), 9)
    assert reports.take_ends() == {TopicPartition("t", 0): 7, TopicPartition("t", 1): 9}
    assert reports.take_ends() == {}


@pytest.mark.parametrize(
    ("codes", "first", "cause", "lacks_cause"),
    [
        ((), None, None, False),
        ((REFUSED,), None, None, False),
        ((HELD_BACK, HELD_BACK), None, HELD_BACK, True),
        ((HELD_BACK, LATE), LATE, LATE, False),
        ((HELD_BACK, REFUSED), None, HELD_BACK, False),
    ],
)
def test_the_cause_is_the_first_error_that_follows_from_no_other(
    codes: tuple[Code, ...], first: Code | None, cause: Code | None, lacks_cause: bool
) -> None:
    reports = reported(*codes)
    at = TopicPartition("t", 0)
    assert reports.first_failure() == (None if first is None else (first, at))
    assert reports.cause() == (None if cause is None else (cause, at))
    assert reports.lacks_cause() == lacks_cause


def test_failures_after_an_abort_are_ignored_until_all_is_forgotten() -> None:
    reports = reported(LATE)
    reports.ignore()
    reports.delivered(LATE, message())
    assert reports.failures == []
    reports.forget()
    reports.delivered(LATE, message())
    assert len(reports.failures) == 1


def test_refused_records_are_named_up_to_a_bound() -> None:
    reports = reported(LATE, REFUSED, *[REFUSED] * MOST_REFUSED)
    found = reports.refused_records()
    assert len(found) == MOST_REFUSED
    assert next(iter(found)) == ("t", 0, b"k", b"1")


def test_rows_are_found_by_key_and_value_each_once() -> None:
    reports = DeliveryReports()
    for value, code in ((b"a", REFUSED), (b"a", REFUSED), (b"b", LATE)):
        reports.delivered(code, message(value, partition=1))
    output = [batch(b"a"), batch(b"x", b"a", b"b", b"a", b"a", partition=1)]
    assert [(each.part, each.row) for each in reports.rows(output, is_refusal)] == [(1, 1), (1, 3)]
    with pytest.raises(KafkaError, match="2 delivery reports have no record"):
        reports.rows([batch(b"a")], is_refusal)
