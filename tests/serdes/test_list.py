"""Lists with entries of another serde, in both of Kafka's layouts: entries of one size, and of many."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationError
from penstock.serdes import Serde, Serdes
from penstock.serdes.list import ListSerde
from tests.serdes.test_primitive import assert_columns_come_back, assert_refused

SERDES: dict[str, tuple[Serde, st.SearchStrategy[Any]]] = {
    "one size": (Serdes.list(Serdes.long()), st.lists(st.none() | st.integers(-5, 5))),
    "many sizes": (Serdes.list(Serdes.string()), st.lists(st.none() | st.text("ab"))),
    "lists": (Serdes.list(Serdes.list(Serdes.boolean())), st.lists(st.none() | st.lists(st.booleans()))),
}


@pytest.mark.parametrize("name", SERDES)
@given(data=st.data())
def test_lists_are_read_as_they_were_written_alone_and_in_columns(name: str, data: st.DataObject) -> None:
    serde, values = SERDES[name]
    assert_columns_come_back(serde, data.draw(st.lists(st.none() | values, max_size=20)))


@pytest.mark.parametrize(
    ("inner", "value", "data"),
    [
        (Serdes.short(), [1, None, 2], "00 00000001 00000001 00000003 0001 0002"),
        (Serdes.string(), ["a", None], "01 00000002 00000001 61 ffffffff"),
        (Serdes.long(), [], "00 00000000 00000000"),
        (Serdes.string(), (), "01 00000000"),
    ],
)
def test_lists_are_laid_out_as_in_kafka(inner: Serde, value: Any, data: str) -> None:
    assert Serdes.list(inner).serialize("topic", value) == bytes.fromhex(data)


def test_entries_of_one_size_are_read_in_the_other_layout_too() -> None:
    data = bytes.fromhex("01 00000002 00000002 0005 ffffffff")
    assert Serdes.list(Serdes.short()).deserialize("topic", data) == [5, None]


@pytest.mark.parametrize(
    ("inner", "value"), [(Serdes.long(), "text"), (Serdes.long(), ["text"]), (Serdes.string(), "text")]
)
def test_what_is_no_list_of_such_entries_is_refused(inner: Serde, value: Any) -> None:
    assert_refused(Serdes.list(inner), value, TypeError)


@pytest.mark.parametrize(
    ("inner", "data", "reason"),
    [
        (Serdes.long(), b"\2", "Invalid serialization strategy flag value"),
        (Serdes.string(), b"\0\0\0\0\0\0\0\0\1a", "its entries have equal sizes, which this serde does not write"),
        (Serdes.string(), b"\1\0\0\0\1\0\0\0\2a", "End of the stream was reached prematurely"),
        (Serdes.string(), b"", "index out of range"),
    ],
)
def test_bytes_that_are_no_list_are_refused(inner: Serde, data: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match=f"from 'topic' as a list: {reason}"):
        Serdes.list(inner).deserialize("topic", data)


def test_a_default_reaches_lists_within_lists() -> None:
    class Missing(ListSerde[int]):
        def with_defaults(self, key_serde: Any, value_serde: Any) -> Any:
            return value_serde

    known = Serdes.list(Serdes.long())
    assert known.with_defaults(None, Serdes.string()) is known
    resolved = Serdes.list(Missing(Serdes.long())).with_defaults(None, Serdes.string())
    assert resolved.deserialize("topic", resolved.serialize("topic", ["a"])) == ["a"]
