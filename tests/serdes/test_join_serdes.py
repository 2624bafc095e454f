"""The bytes of joins: subscriptions and responses of foreign keys, records that wait. Whole bytes stand where Kafka's
layout must be kept; the rest are round trips.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, StreamsError
from penstock.record import RecordMetadata
from penstock.serdes import LongSerde, StringSerde
from penstock.serdes.buffer import BufferKey, BufferKeySerde, BufferValue, BufferValueSerde
from penstock.serdes.list import ListSerde
from penstock.serdes.outer_join import (
    LeftOrRightValue,
    LeftOrRightValueSerde,
    TimestampedKeyAndJoinSide,
    TimestampedKeyAndJoinSideSerde,
)
from penstock.serdes.subscription import (
    Instruction,
    SubscriptionResponseWrapper,
    SubscriptionResponseWrapperSerde,
    SubscriptionWrapper,
    SubscriptionWrapperSerde,
    combined_key,
    combined_key_prefix,
    hash_of,
)

HASHES = st.none() | st.binary(min_size=16, max_size=16)
TIMES = st.integers(0, 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3).map(tuple)
TEXT = StringSerde()
HASH_OF_NOTHING = "9d2764a018e329428c3cf3b035938518"
HASH_OF_FOOBAR = "e545263cde70bba21e8c9e2fc5c7ed4e"


def test_a_subscription_is_laid_out_as_in_kafka() -> None:
    subscription = SubscriptionWrapper(bytes(range(16)), Instruction.DELETE_KEY_AND_PROPAGATE, "pk", 3)
    expected = b"\x01\x01" + bytes(range(16)) + b"pk" + b"\x00\x00\x00\x03"
    assert SubscriptionWrapperSerde(TEXT).serialize("t", subscription) == expected
    without_hash = subscription._replace(hash=None, primary_partition=None)
    assert SubscriptionWrapperSerde(TEXT).serialize("t", without_hash) == b"\x80\x01pk"


def test_a_response_is_laid_out_as_in_kafka() -> None:
    serde = SubscriptionResponseWrapperSerde(TEXT)
    assert serde.serialize("t", SubscriptionResponseWrapper(b"h" * 16, "v", 7)) == b"\x00" + b"h" * 16 + b"v"
    assert serde.serialize("t", SubscriptionResponseWrapper(None, None, 7)) == b"\x80"


@given(HASHES, st.sampled_from(Instruction), st.text(), st.none() | st.integers(0, 2**31 - 1))
def test_subscriptions_are_read_as_they_were_written(
    hash: bytes | None, instruction: Instruction, key: str, partition: int | None
) -> None:
    subscription = SubscriptionWrapper(hash, instruction, key, partition)
    serde = SubscriptionWrapperSerde(TEXT)
    assert serde.deserialize("t", serde.serialize("t", subscription)) == subscription


@given(HASHES, st.none() | st.text(min_size=1))
def test_responses_are_read_without_their_partition(hash: bytes | None, value: str | None) -> None:
    serde = SubscriptionResponseWrapperSerde(TEXT)
    data = serde.serialize("t", SubscriptionResponseWrapper(hash, value, 5))
    assert serde.deserialize("t", data) == SubscriptionResponseWrapper(hash, value, None)


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(StreamsError, match="SubscriptionWrapper is of an incompatible version: 2"):
        SubscriptionWrapperSerde(TEXT).deserialize("t", b"\x82\x00pk\x00\x00\x00\x00")
    with pytest.raises(StreamsError, match="SubscriptionResponseWrapper is of an incompatible version: 1"):
        SubscriptionResponseWrapperSerde(TEXT).deserialize("t", b"\x81")


def test_defaults_stand_where_no_serde_was_given() -> None:
    subscription = SubscriptionWrapper(None, Instruction.DELETE_KEY_NO_PROPAGATE, "pk", None)
    assert SubscriptionWrapperSerde(None).with_defaults(TEXT, LongSerde()).serialize("t", subscription)[2:] == b"pk"
    with pytest.raises(ConfigError, match="Please specify a key serde"):
        SubscriptionWrapperSerde(None).serialize("t", subscription)
    waiting = ListSerde(LeftOrRightValueSerde(None, TEXT)).with_defaults(TEXT, LongSerde())
    entries = [LeftOrRightValue(True, 5), LeftOrRightValue(False, "x")]
    assert waiting.deserialize("t", waiting.serialize("t", entries)) == entries


def test_hashes_are_those_of_kafka() -> None:
    assert hash_of(b"").hex() == HASH_OF_NOTHING
    assert hash_of(b"foobar").hex() == HASH_OF_FOOBAR


@given(st.binary(max_size=4), st.binary(max_size=4), st.binary(max_size=4))
def test_a_prefix_finds_the_subscriptions_of_one_foreign_key(foreign: bytes, other: bytes, primary: bytes) -> None:
    assert combined_key(foreign, primary).startswith(combined_key_prefix(foreign))
    assert combined_key(other, primary).startswith(combined_key_prefix(foreign)) == (other == foreign)


@given(st.lists(st.tuples(TIMES, st.booleans(), st.text()), max_size=5))
def test_records_that_wait_are_in_the_order_of_time_right_before_left(entries: list[tuple[int, bool, str]]) -> None:
    serde = TimestampedKeyAndJoinSideSerde(TEXT)
    keys = [TimestampedKeyAndJoinSide(*entry) for entry in entries]
    written = [serde.serialize("t", key) for key in keys]
    assert [serde.deserialize("t", data) for data in written] == keys
    in_order = [serde.deserialize("t", data) for data in sorted(written)]
    assert [key[:2] for key in in_order] == sorted(key[:2] for key in keys)


@given(TIMES, st.text(), st.integers(0, 2**31 - 1))
def test_places_in_a_buffer_are_read_as_they_were_written(timestamp: int, key: str, sequence: int) -> None:
    serde = BufferKeySerde(TEXT)
    place = BufferKey(timestamp, key, sequence)
    assert serde.deserialize("t", serde.serialize("t", place)) == place


@given(TIMES, HEADERS, st.none() | st.text(), st.integers(-1, 9), st.integers(-1, 2**62), st.text())
def test_buffered_records_are_read_as_they_were_written(
    timestamp: int,
    headers: tuple[tuple[str, bytes | None], ...],
    topic: str | None,
    partition: int,
    offset: int,
    value: str,
) -> None:
    serde = BufferValueSerde(TEXT)
    buffered = BufferValue(timestamp, headers, RecordMetadata(topic, partition, offset), value)
    assert serde.deserialize("t", serde.serialize("t", buffered)) == buffered
