"""The topic `__transaction_state`: its records, and the states of a transaction."""

from __future__ import annotations

from penstock_broker.transaction_log import State, Transaction, encode_value


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
