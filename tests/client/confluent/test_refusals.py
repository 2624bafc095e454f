"""Records that brokers refuse: how output is sent that is made again after that."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError as Code

from penstock.client.api import RefusedOutputError, RefusedRecord
from penstock.client.confluent.refusals import MOST_WRITES_ONE_BY_ONE, ONE_BY_ONE, Refusals
from penstock.record import PartitionBatch, RecordBatch

TOO_LARGE = {("out", 0, b"k", b"large"): Code(Code.MSG_SIZE_TOO_LARGE)}


def output(*values: bytes) -> list[PartitionBatch]:
    return [PartitionBatch("out", 0, RecordBatch.of([(b"k", value, 0, 0, ()) for value in values]))]


def drop(record: RefusedRecord) -> Sequence[PartitionBatch]:
    return []


@pytest.fixture
def refused() -> Refusals:
    """Has seen a batch, and then a record of it, refused."""
    refusals = Refusals()
    for _ in range(2):
        assert isinstance(refusals.take(TOO_LARGE), RefusedOutputError)
    return refusals


def test_records_are_sent_one_by_one_until_all_that_was_refused_has_come_again(refused: Refusals) -> None:
    for _ in range(MOST_WRITES_ONE_BY_ONE - 1):
        refused.without_refused(output(b"other"), drop)
        assert not refused.written()
    assert refused.settings == ONE_BY_ONE
    [kept] = refused.without_refused(output(b"a", b"large", b"b"), drop)
    assert kept.batch.values == [b"a", b"b"]
    assert refused.written()
    assert refused.settings == {}


def test_what_was_refused_is_not_waited_for_without_end(refused: Refusals) -> None:
    for _ in range(MOST_WRITES_ONE_BY_ONE - 1):
        assert not refused.written()
    assert refused.written()
    assert refused.settings == {}


def test_another_refusal_begins_the_wait_again(refused: Refusals) -> None:
    for _ in range(MOST_WRITES_ONE_BY_ONE - 1):
        assert not refused.written()
    refused.take(TOO_LARGE)
    assert not refused.written()


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (Code.MSG_SIZE_TOO_LARGE, r"max\.message\.bytes"),
        (Code.INVALID_TIMESTAMP, r"message\.timestamp\.after\.max\.ms"),
        (Code.INVALID_RECORD, r"a key"),
    ],
)
def test_the_error_says_where_a_record_was_refused_and_what_to_do(code: int, remedy: str) -> None:
    error = Refusals().take({("out", 3, b"k", b"v"): Code(code)})
    assert re.search(rf"topic out, partition 3: .*{remedy}", str(error))
