"""Records that wait in an outer join: their bytes are in the order of time, and values keep their side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.serdes import LongSerde, Serdes, StringSerde
from penstock.serdes.list import ListSerde
from penstock.serdes.outer_join import (
    LeftOrRightValue,
    LeftOrRightValueSerde,
    TimestampedKeyAndJoinSide,
    TimestampedKeyAndJoinSideSerde,
)

TIMES = st.integers(0, 2**62)
TEXT = StringSerde()


@given(st.lists(st.tuples(TIMES, st.booleans(), st.text()), max_size=5))
def test_records_that_wait_are_in_the_order_of_time_right_before_left(entries: list[tuple[int, bool, str]]) -> None:
    serde = TimestampedKeyAndJoinSideSerde(TEXT)
    keys = [TimestampedKeyAndJoinSide(*entry) for entry in entries]
    written = [serde.serialize("t", key) for key in keys]
    assert [serde.deserialize("t", data) for data in written] == keys
    in_order = [serde.deserialize("t", data) for data in sorted(written)]
    assert [key[:2] for key in in_order] == sorted(key[:2] for key in keys)


def test_keys_and_values_are_laid_out_as_in_kafka() -> None:
    key = TimestampedKeyAndJoinSide(258, True, "k")
    assert TimestampedKeyAndJoinSideSerde(TEXT).serialize("t", key) == b"\0\0\0\0\0\0\1\2" + b"\1" + b"k"
    serde = LeftOrRightValueSerde(TEXT, LongSerde())
    assert serde.serialize("t", LeftOrRightValue(True, "v")) == b"\1v"
    assert serde.serialize("t", LeftOrRightValue(False, 5)) == b"\0" + bytes(7) + b"\5"


def test_a_value_that_was_read_is_written_as_the_same_bytes() -> None:
    spaced: LeftOrRightValueSerde = LeftOrRightValueSerde(Serdes.json(), TEXT)
    data = b'\1{ "a": 1 }'  # the serde itself writes no spaces
    read = spaced.deserialize("t", data)
    assert read == LeftOrRightValue(True, {"a": 1})
    assert spaced.serialize("t", read) == data
    assert spaced.serialize("t", LeftOrRightValue(*read)) == b'\1{"a":1}'


def test_defaults_replace_missing_serdes() -> None:
    waiting = ListSerde(LeftOrRightValueSerde(None, TEXT)).with_defaults(TEXT, LongSerde())
    entries = [LeftOrRightValue(True, 5), LeftOrRightValue(False, "x")]
    assert waiting.deserialize("t", waiting.serialize("t", entries)) == entries
    with pytest.raises(ConfigError, match="Please specify a value serde"):
        LeftOrRightValueSerde(None, TEXT).serialize("t", entries[0])


def test_headers_are_used_if_one_of_the_sides_uses_them() -> None:
    with_headers = Serdes.serde_from(lambda topic, value, headers: value, lambda data: data)
    assert not LeftOrRightValueSerde(TEXT, TEXT).uses_headers
    assert LeftOrRightValueSerde(TEXT, with_headers).uses_headers
    assert LeftOrRightValueSerde(None, TEXT).uses_headers  # not known yet
