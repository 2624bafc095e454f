"""The topic `__transaction_state`: its records, and the states of a transaction."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_broker.errors import BrokerError
from penstock_broker.records import LogRecord, encode_records
from penstock_broker.state import BrokerState
from penstock_broker.topics import TRANSACTIONS_TOPIC
from penstock_broker.transaction_log import NEXT_STATES, State, Transaction, TransactionLog, encode_key, encode_value


def test_the_state_is_in_the_format_of_kafka() -> None:
    # Written by Kafka's TransactionLogValue 4.3 with these fields, in version 1.
    state = Transaction(
        transactional_id="x",
        producer_id=5,
        epoch=3,
        previous_producer_id=4,
        next_producer_id=6,
        timeout_ms=1000,
        state=State.PREPARE_COMMIT,
        partitions=frozenset({("t", 1), ("t", 0)}),
        started_ms=7,
        updated_ms=8,
        version=2,
    )
    written = (
        "0001 0000000000000005 0003 000003e8 02 02 02 74 03 00000000 00000001 00 0000000000000008 0000000000000007"
        "03 00 08 0000000000000004 01 08 0000000000000006 02 02 0002"
    )
    assert encode_value(state) == bytes.fromhex(written)


def transaction(transactional_id: str, **fields: Any) -> Transaction:
    return Transaction(transactional_id=transactional_id, producer_id=5, timeout_ms=1000, updated_ms=8, **fields)


def test_the_last_state_of_each_id_is_read_in_the_order_of_changes(state: BrokerState) -> None:
    log = TransactionLog(state.topics)
    assert log.read() == []
    ongoing = transaction("a", state=State.ONGOING, partitions=frozenset({("t", 1), ("u", 0)}), epoch=3, version=2)
    for written in (transaction("a"), transaction("b"), transaction("removed"), ongoing):
        log.write(written)
    log.remove("removed", now_ms=9)
    log.remove("missing", now_ms=9)
    assert log.read() == [transaction("b"), ongoing]


def test_the_epoch_before_the_last_bump_is_not_stored(state: BrokerState) -> None:
    log = TransactionLog(state.topics)
    log.write(transaction("a", epoch=3, last_epoch=2))
    assert log.read() == [transaction("a", epoch=3)]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (encode_key("a"), b"\0\2", "it has version 2; this version of the broker reads 1"),
        (b"\0\1\0\1a", encode_value(transaction("a")), "its key has version 1; this version of the broker reads 0"),
        (encode_key("a"), encode_value(transaction("a"))[:-3], "bytes are left|ends inside a number"),
        (
            encode_key("a"),
            encode_value(transaction("a")).replace(b"\0\0\3\xe8\0", b"\0\0\3\xe8\x63"),
            "99 is not a valid",
        ),
        (b"", b"", "requires a buffer"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(state: BrokerState, key: bytes, value: bytes, reason: str) -> None:
    log = TransactionLog(state.topics)
    log.write(transaction("first"))
    batch = encode_records([LogRecord(0, 0, key, value)])
    state.topics.partition(TRANSACTIONS_TOPIC, 0).append_own(memoryview(batch))
    with pytest.raises(
        BrokerError, match=rf"__transaction_state-0: the record at offset 1 cannot be read: .*({reason})"
    ):
        log.read()


def test_every_open_transaction_reaches_an_end() -> None:
    assert set(NEXT_STATES) == set(State)
    for one in State:
        assert one not in NEXT_STATES[one]
        if one.is_prepared:  # its outcome is decided
            [end] = NEXT_STATES[one]
            assert end.is_idle
            assert end.name == one.name.replace("PREPARE", "COMPLETE")
    assert {one.label for one in State if not one.is_idle} == {"Ongoing", "PrepareCommit", "PrepareAbort"}
