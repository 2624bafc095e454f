"""Texts, bytes, numbers and other single values, as Kafka's serializers write them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationError
from penstock.serdes import Serde, Serdes

SERDES: dict[str, tuple[Serde, st.SearchStrategy[Any]]] = {
    "string": (Serdes.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "bytes": (Serdes.bytes(), st.binary()),
    "integer": (Serdes.integer(), st.integers(-(2**31), 2**31 - 1)),
    "long": (Serdes.long(), st.integers(-(2**63), 2**63 - 1)),
    "short": (Serdes.short(), st.integers(-(2**15), 2**15 - 1)),
    "double": (Serdes.double(), st.floats(allow_nan=False)),
    "float": (Serdes.float(), st.floats(allow_nan=False, width=32)),
    "boolean": (Serdes.boolean(), st.booleans()),
    "uuid": (Serdes.uuid(), st.uuids()),
    "byte_buffer": (Serdes.byte_buffer(), st.binary().map(lambda data: memoryview(data))),
}


@pytest.mark.parametrize("name", SERDES)
@given(data=st.data())
def test_what_is_written_is_read_again_alone_and_in_columns(name: str, data: st.DataObject) -> None:
    serde, values = SERDES[name]
    assert_columns_come_back(serde, data.draw(st.lists(st.none() | values, max_size=20)))


def assert_columns_come_back(serde: Serde, column: list[Any]) -> None:
    written = serde.serialize_column("topic", column)
    assert written == [None if value is None else serde.serialize("topic", value) for value in column]
    assert serde.deserialize_column("topic", written) == column


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (Serdes.string(), "zürich", "7ac3bc72696368"),
        (Serdes.integer(), -2, "fffffffe"),
        (Serdes.long(), 258, "0000000000000102"),
        (Serdes.double(), 1.5, "3ff8000000000000"),
        (Serdes.short(), -2, "fffe"),
        (Serdes.float(), 1.5, "3fc00000"),
        (Serdes.boolean(), True, "01"),
        (Serdes.uuid(), UUID(int=1), b"00000000-0000-0000-0000-000000000001".hex()),
    ],
)
def test_bytes_are_those_of_kafka(serde: Serde, value: Any, data: str) -> None:
    assert serde.serialize("topic", value).hex() == data


@given(st.lists(st.none() | st.binary(max_size=6)))
def test_a_column_is_canonical_only_if_each_text_is_valid_on_its_own(column: list[bytes | None]) -> None:
    def valid(item: bytes) -> bool:
        try:
            item.decode()
        except UnicodeDecodeError:
            return False
        return True

    assert Serdes.string().is_canonical_column(column) == all(valid(item) for item in column if item is not None)


@pytest.mark.parametrize("serde", [Serdes.short(), Serdes.integer(), Serdes.long(), Serdes.double(), Serdes.float()])
@given(column=st.lists(st.none() | st.binary(min_size=2, max_size=4) | st.binary(min_size=8, max_size=8), max_size=3))
def test_a_column_of_numbers_is_readable_or_canonical_only_if_it_is(serde: Serde, column: list[bytes | None]) -> None:
    try:
        numbers = serde.deserialize_column("topic", column)
    except SerializationError:
        assert not serde.is_readable_column(column)
        return
    assert serde.is_readable_column(column)
    if serde.is_canonical_column(column):
        assert serde.serialize_column("topic", numbers) == column


@given(st.lists(st.none() | st.text(max_size=3)))
def test_distinct_bytes_are_those_of_each_value(column: list[str | None]) -> None:
    entries, places = Serdes.string().serialize_distinct("topic", column)
    assert [entries[place] for place in places] == Serdes.string().serialize_column("topic", column)
    assert entries == list(dict.fromkeys(Serdes.string().serialize_column("topic", column)))


@pytest.mark.parametrize("wrong", [b"bytes", 1, "\ud800"])
def test_distinct_bytes_need_texts(wrong: Any) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        Serdes.string().serialize_distinct("topic", ["text", wrong])


def test_broken_utf8_is_read_with_replacement_characters_as_in_kafka() -> None:
    assert Serdes.string().deserialize_column("topic", [b"ok", b"\xff"]) == ["ok", "\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize(
    ("serde", "value", "number"),
    [
        (Serdes.double(), 21, 21.0),
        (Serdes.float(), 21, 21.0),
        (Serdes.double(), np.int32(21), 21.0),
        (Serdes.double(), np.float32(0.5), 0.5),
        (Serdes.long(), np.int64(21), 21),
        (Serdes.short(), np.uint8(21), 21),
    ],
)
def test_numbers_that_lose_nothing_are_written(serde: Serde, value: Any, number: float) -> None:
    assert serde.serialize("topic", value) == serde.serialize("topic", number)
    assert serde.serialize_column("topic", [None, value, number]) == [None, *2 * [serde.serialize("topic", number)]]


@pytest.mark.parametrize(
    ("serde", "value", "error"),
    [
        (Serdes.string(), 1, TypeError),
        (Serdes.bytes(), "text", TypeError),
        (Serdes.integer(), 2**31, SerializationError),
        (Serdes.long(), 1.0, TypeError),
        (Serdes.long(), True, TypeError),
        (Serdes.double(), True, TypeError),
        (Serdes.double(), "1", TypeError),
        (Serdes.double(), 2**53 + 1, TypeError),
        (Serdes.double(), 10**400, SerializationError),
        (Serdes.long(), np.float64(1), TypeError),
        (Serdes.long(), np.uint64(2**63), SerializationError),
        (Serdes.short(), 2**15, SerializationError),
        (Serdes.float(), 1e300, SerializationError),
        (Serdes.float(), 2**24 + 1, TypeError),
        (Serdes.boolean(), 1, TypeError),
        (Serdes.uuid(), "text", TypeError),
        (Serdes.void(), "text", TypeError),
        (Serdes.byte_buffer(), 1, TypeError),
    ],
)
def test_what_cannot_be_written_is_refused_by_type_and_topic(serde: Serde, value: Any, error: type[Exception]) -> None:
    assert_refused(serde, value, error)


def assert_refused(serde: Serde, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="topic"):
        serde.serialize("topic", value)
    with pytest.raises(error):
        serde.serialize_column("topic", [None, value])


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Serdes.long(), b"1234"),
        (Serdes.boolean(), b"\2"),
        (Serdes.boolean(), b""),
        (Serdes.uuid(), b"no uuid"),
        (Serdes.void(), b""),
    ],
)
def test_what_cannot_be_read_is_refused(serde: Serde, data: bytes) -> None:
    with pytest.raises(SerializationError):
        serde.deserialize("topic", data)
