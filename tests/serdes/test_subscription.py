"""The bytes of foreign-key joins: subscriptions, responses and combined keys, in Kafka's layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, SerializationError, StreamsError
from penstock.serdes import LongSerde, Serde, StringSerde
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


def test_defaults_replace_missing_serdes() -> None:
    subscription = SubscriptionWrapper(None, Instruction.DELETE_KEY_NO_PROPAGATE, "pk", None)
    assert SubscriptionWrapperSerde(None).with_defaults(TEXT, LongSerde()).serialize("t", subscription)[2:] == b"pk"
    with pytest.raises(ConfigError, match="Please specify a key serde"):
        SubscriptionWrapperSerde(None).serialize("t", subscription)


def test_hashes_are_those_of_kafka() -> None:
    assert hash_of(b"").hex() == HASH_OF_NOTHING
    assert hash_of(b"foobar").hex() == HASH_OF_FOOBAR


@given(st.binary(max_size=4), st.binary(max_size=4), st.binary(max_size=4))
def test_a_prefix_finds_the_subscriptions_of_one_foreign_key(foreign: bytes, other: bytes, primary: bytes) -> None:
    assert combined_key(foreign, primary).startswith(combined_key_prefix(foreign))
    assert combined_key(other, primary).startswith(combined_key_prefix(foreign)) == (other == foreign)


@pytest.mark.parametrize("serde", [SubscriptionWrapperSerde(TEXT), SubscriptionResponseWrapperSerde(TEXT)])
def test_an_empty_value_is_refused(serde: Serde) -> None:
    with pytest.raises(SerializationError, match="Cannot read an empty value from 't': a subscription or response has"):
        serde.deserialize("t", b"")
