"""The producers of a partition: sequence numbers, epochs, markers and aborted transactions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock_broker import producer_state
from penstock_broker.batch import BatchHeader, read_header
from penstock_broker.errors import ApiError
from penstock_broker.producer_state import AbortedTransaction, AppendedBatch, ProducerState
from penstock_broker.records import EndTransactionMarker, encode_marker
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.record_batches import TRANSACTIONAL
from tests.broker.test_partition import end_transaction, in_transaction, open_log, refused, sequenced
from tests.support.record_batches import BatchRecord, encode_batch


def test_an_idempotent_producer_gets_the_first_offset_of_a_repeated_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(7):
        assert log.append(sequenced(2 * number)) == 2 * number
    for life in range(2):
        for number in range(2, 7):
            assert log.append(sequenced(2 * number)) == 2 * number
        assert refused(log, sequenced(2)) == ErrorCode.out_of_order_sequence_number
        assert refused(log, sequenced(15)) == ErrorCode.out_of_order_sequence_number
        assert log.append(sequenced(0, producer=10 + life)) == 14 + 2 * life
        log.close()
        log = open_log(tmp_path)
    assert log.end_offset == 18


def test_epochs_of_an_idempotent_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(sequenced(0))
    assert refused(log, sequenced(2, epoch=1)) == ErrorCode.out_of_order_sequence_number
    assert log.append(sequenced(0, epoch=1)) == 2
    assert refused(log, sequenced(2, epoch=0)) == ErrorCode.invalid_producer_epoch


def test_sequence_numbers_wrap(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(sequenced(2**31 - 2, count=3))
    assert log.append(sequenced(1)) == 3


def test_aborted_transactions_are_listed_for_the_range_that_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_own(in_transaction(1))  # 0
    log.append_own(in_transaction(2))  # 1
    end_transaction(log, 2, is_commit=False)  # 2
    end_transaction(log, 1, is_commit=False)  # 3
    log.append_own(in_transaction(3))  # 4
    end_transaction(log, 3, is_commit=False)  # 5
    log.append_own(in_transaction(3))  # 6
    second, first, third = (
        AbortedTransaction(2, 1, 2, 0),
        AbortedTransaction(1, 0, 3, 4),
        AbortedTransaction(3, 4, 5, 6),
    )
    size = len(in_transaction(1))
    assert log.read_committed(0, 1 << 20)[1] == [second, first, third]
    assert log.read_committed(0, size)[1] == [first]
    assert log.read_committed(4, 1 << 20)[1] == [third]
    assert log.read_committed(6, 1 << 20) == (b"", [])


def test_a_batch_that_compaction_emptied_opens_no_transaction() -> None:
    state = ProducerState()
    emptied = read_header(in_transaction(1))._replace(record_count=0)
    state.note(emptied, None)
    assert state.first_open_offset is None
    state.note(emptied._replace(record_count=1), None)
    assert state.first_open_offset == 0


def test_a_marker_of_version_2_has_a_later_epoch_than_the_records_that_it_ends(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    records = [BatchRecord(0, b"k", b"v")]
    settings = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0}
    log.append(memoryview(encode_batch(records, attributes=TRANSACTIONAL, **settings)))
    marker = EndTransactionMarker(False, 0)
    with pytest.raises(ApiError) as caught:
        log.producers.check_marker(7, 3, marker, transaction_version=2)
    assert caught.value.code == ErrorCode.invalid_producer_epoch
    log.producers.check_marker(7, 3, marker, transaction_version=1)
    log.producers.check_marker(7, 4, marker, transaction_version=2)
    log.append_own(memoryview(encode_marker(marker, 7, 3, 0)))
    # The transaction has ended: the marker is a repeated one.
    log.producers.check_marker(7, 3, marker, transaction_version=2)
    log.close()


def batch_header(producer: int, *, sequence: int = 0, count: int = 1, offset: int = 0, **fields: int) -> BatchHeader:
    """Return the header of a batch of a producer, of a transaction with the attributes TRANSACTIONAL."""
    header = read_header(sequenced(sequence, count=count, producer=producer))
    return header._replace(base_offset=offset, **fields)


def test_a_state_is_loaded_as_it_was_dumped() -> None:
    state = ProducerState()
    for number in range(8):  # of which the last five are remembered
        state.note(batch_header(1, sequence=number, offset=number, max_timestamp=number), None)
    state.note(batch_header(2, offset=10, attributes=TRANSACTIONAL), None)
    marker = batch_header(3, offset=12, base_sequence=-1)
    state.note(batch_header(3, offset=11, attributes=TRANSACTIONAL), None)
    state.note(marker, EndTransactionMarker(is_commit=False, coordinator_epoch=6))
    again = ProducerState.load(json.loads(json.dumps(state.dump())))
    assert again.dump() == state.dump()
    assert (again.first_open_offset, again.largest_id) == (10, 3)
    assert again.aborted_transactions(0, 20) == [AbortedTransaction(3, 11, 12, 10)]
    assert [again.find_duplicate(batch_header(1, sequence=number)) is None for number in (3, 7, 8)] == [
        False,
        False,
        True,
    ]
    assert [producer.coordinator_epoch for producer in again.all()] == [-1, -1, 6]


def test_one_producer_too_many_replaces_the_one_that_is_silent_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 3)
    state = ProducerState()
    state.note(batch_header(1, attributes=TRANSACTIONAL), None)  # an open transaction is not forgotten
    for producer in (2, 3, 2, 4):
        state.note(batch_header(producer), None)
    assert [producer for producer in range(6) if state.knows(producer)] == [1, 2, 4]


def test_producers_are_forgotten_by_the_time_of_their_last_batch() -> None:
    state = ProducerState()
    for producer in (1, 2, 3):
        state.note(batch_header(producer, max_timestamp=10 * producer), None)
    state.note(batch_header(4, max_timestamp=1, attributes=TRANSACTIONAL), None)
    state.forget_silent(before=20)
    assert [producer.producer_id for producer in state.all()] == [2, 3, 4]


def test_an_empty_state_knows_no_producer() -> None:
    state = ProducerState()
    assert (state.largest_id, state.first_open_offset, state.all(), state.last_batches()) == (-1, None, [], {})
    assert state.find_duplicate(batch_header(7, sequence=5)) is None
    state.note(batch_header(-1), None)
    assert not state.knows(-1)


def test_offsets_of_a_batch_follow_its_sequence_numbers_where_they_wrap() -> None:
    assert AppendedBatch(2**31 - 2, 1, base_offset=10).last_offset == 13
    assert AppendedBatch(4, 4, base_offset=10).last_offset == 10
