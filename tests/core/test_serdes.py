from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationError
from penstock.serdes import Serde, Serdes

SERDES = {
    "string": (Serdes.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "bytes": (Serdes.bytes(), st.binary()),
    "integer": (Serdes.integer(), st.integers(-(2**31), 2**31 - 1)),
    "long": (Serdes.long(), st.integers(-(2**63), 2**63 - 1)),
    "double": (Serdes.double(), st.floats(allow_nan=False)),
    "json": (
        Serdes.json(),
        st.recursive(st.none() | st.booleans() | st.text(st.characters(exclude_categories=["Cs"])), st.lists).filter(
            lambda v: v is not None
        ),
    ),
}


@pytest.mark.parametrize("name", SERDES)
@given(data=st.data())
def test_what_is_written_is_read_again_alone_and_in_columns(name: str, data: st.DataObject) -> None:
    serde, values = SERDES[name]
    column = data.draw(st.lists(st.none() | values, max_size=20))
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
        (Serdes.json(), {"b": 1, "a": [None, "x"]}, b'{"a":[null,"x"],"b":1}'.hex()),
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
    ("serde", "value", "error"),
    [
        (Serdes.string(), 1, TypeError),
        (Serdes.bytes(), "text", TypeError),
        (Serdes.integer(), 2**31, SerializationError),
        (Serdes.long(), 1.0, TypeError),
        (Serdes.long(), True, TypeError),
        (Serdes.double(), 1, TypeError),
        (Serdes.json(), math.inf.__class__, SerializationError),
    ],
)
def test_what_cannot_be_written_is_refused_by_type_and_topic(serde: Serde, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="topic"):
        serde.serialize("topic", value)
    with pytest.raises(error):
        serde.serialize_column("topic", [None, value])


@pytest.mark.parametrize(("serde", "data"), [(Serdes.long(), b"1234"), (Serdes.json(), b"{")])
def test_what_cannot_be_read_is_refused(serde: Serde, data: bytes) -> None:
    with pytest.raises(SerializationError):
        serde.deserialize("topic", data)
