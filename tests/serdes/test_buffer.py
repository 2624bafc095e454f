"""Records that wait in a time-ordered buffer: keys in the order of time, and values with their context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, SerializationError
from penstock.record import Headers, RecordMetadata
from penstock.serdes import Serdes, StringSerde
from penstock.serdes.buffer import BufferKey, BufferKeySerde, BufferValue, BufferValueSerde

TIMES = st.integers(0, 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3).map(tuple)
TEXT = StringSerde()
NULL = b"\xff\xff\xff\xff"


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


def test_keys_and_values_are_laid_out_as_in_kafka() -> None:
    assert BufferKeySerde(TEXT).serialize("t", BufferKey(258, "k", 1)) == b"\0\0\0\0\0\0\1\2" + b"k" + b"\0\0\0\1"
    waiting = BufferValue(1, (("h", None),), RecordMetadata("in", 2, 3), "v")
    context = bytes(7) + b"\1" + bytes(7) + b"\3" + b"\0\0\0\2in" + b"\0\0\0\2" + b"\0\0\0\1" + b"\0\0\0\1h" + NULL
    assert BufferValueSerde(TEXT).serialize("t", waiting) == context + NULL + NULL + b"\0\0\0\1v"


@given(st.lists(st.tuples(TIMES, st.text(max_size=2)), max_size=5))
def test_keys_in_the_order_of_their_bytes_are_in_the_order_of_time(places: list[tuple[int, str]]) -> None:
    serde = BufferKeySerde(TEXT)
    written = sorted(serde.serialize("t", BufferKey(*place, number)) for number, place in enumerate(places))
    assert [serde.deserialize("t", data).timestamp for data in written] == sorted(time for time, _ in places)


def test_the_value_is_read_with_the_headers_of_its_own_record() -> None:
    def read(topic: str, data: bytes, headers: Headers) -> Headers:
        return headers

    serde = BufferValueSerde(Serdes.serde_from(lambda topic, value, headers: value, read))
    own = (("h", b"own"),)
    data = serde.serialize("t", BufferValue(1, own, RecordMetadata("in", 0, 0), b"v"))
    assert serde.deserialize("t", data, (("h", b"another"),)).value == own


def test_bytes_without_a_value_are_refused() -> None:
    data = bytes(16) + NULL + bytes(4) + bytes(4) + NULL * 3
    with pytest.raises(SerializationError, match=r"from 't': a waiting record has a value\.$"):
        BufferValueSerde(TEXT).deserialize("t", data)


def test_defaults_replace_missing_serdes() -> None:
    key = BufferKey(1, "k", 0)
    assert BufferKeySerde(None).with_defaults(TEXT, Serdes.long()).serialize("t", key)[8:-4] == b"k"
    value = BufferValue(1, (), RecordMetadata("in", 0, 0), 5)
    serde = BufferValueSerde(None).with_defaults(TEXT, Serdes.long())
    assert serde.deserialize("t", serde.serialize("t", value)) == value
    with pytest.raises(ConfigError, match="Please specify a key serde"):
        BufferKeySerde(None).serialize("t", key)
