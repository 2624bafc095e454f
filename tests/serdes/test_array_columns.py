"""Columns between bytes and arrays: what the serdes do row by row, or None where arrays cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Serde, Serdes
from penstock.record import ArrayColumn, DictionaryColumn
from penstock.serdes.api import Library, read_column
from penstock.serdes.primitive import StringSerde

SERDES: dict[str, tuple[Serde, st.SearchStrategy[Any]]] = {
    "string": (Serdes.string(), st.text()),
    "bytes": (Serdes.bytes(), st.binary()),
    "short": (Serdes.short(), st.integers(-(2**15), 2**15 - 1)),
    "integer": (Serdes.integer(), st.integers(-(2**31), 2**31 - 1)),
    "long": (Serdes.long(), st.integers(-(2**63), 2**63 - 1)),
    "float": (Serdes.float(), st.floats(width=32)),
    "double": (Serdes.double(), st.floats()),
    "boolean": (Serdes.boolean(), st.booleans()),
}
LIBRARIES: list[Library] = ["numpy", "pyarrow"]


@pytest.mark.parametrize("name", SERDES)
@pytest.mark.parametrize("library", LIBRARIES)
@given(data=st.data())
def test_arrays_have_the_rows_of_a_column_and_give_their_bytes_back(
    name: str, library: Library, data: st.DataObject
) -> None:
    serde, values = SERDES[name]
    rows = data.draw(st.lists(st.none() | values, min_size=1))
    written = serde.serialize_column("t", rows)
    array = serde.deserialize_array("t", written, library)
    if library == "pyarrow":
        assert (array is None) == all(row is None for row in rows)
    if array is None:
        return
    assert list(map(repr, array)) == list(map(repr, serde.deserialize_column("t", written)))
    assert serde.serialize_column("t", array) == written
    entries, places = serde.serialize_distinct("t", array)
    assert [entries[place] for place in places] == written


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Serdes.string(), [b"\xff", b"a"]),
        (Serdes.long(), [b"\0" * 8, b"\0" * 7]),
        (Serdes.double(), [b""]),
        (Serdes.boolean(), [b"\2"]),
        (Serdes.boolean(), [b""]),
        (Serdes.string(), [None]),
        (Serdes.long(), [None, None]),
        (Serdes.json(), [b"1"]),
    ],
)
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_an_array_cannot_hold_is_left_to_the_rows(
    serde: Serde, data: list[bytes | None], library: Library
) -> None:
    assert serde.deserialize_array("t", data, library) is None


@pytest.mark.parametrize(
    ("serde", "array"),
    [
        (Serdes.integer(), np.array([2**31])),
        (Serdes.short(), pa.array([-(2**15) - 1])),
        (Serdes.float(), np.array([1e300])),
        (Serdes.long(), np.array([True])),
        (Serdes.long(), np.array([1.0])),
        (Serdes.boolean(), np.array([1])),
        (Serdes.string(), np.array([1])),
        (Serdes.bytes(), pa.array(["a"])),
        (Serdes.string(), pa.array([b"a"])),
    ],
)
def test_an_array_that_the_serde_refuses_is_refused_as_rows(serde: Serde, array: Any) -> None:
    column: ArrayColumn[Any] = ArrayColumn(array)
    errors = []
    for values in (column, column.rows()):
        with pytest.raises(Exception, match="Cannot write") as raised:
            serde.serialize_column("t", values)
        errors.append((type(raised.value), str(raised.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("serde", "array"),
    [
        (Serdes.double(), np.array([1, 2])),
        (Serdes.float(), np.array([float("inf"), float("nan"), 1.0])),
        (Serdes.double(), pa.array([1, None])),
    ],
)
def test_rare_arrays_are_written_as_rows(serde: Serde, array: Any) -> None:
    column: ArrayColumn[Any] = ArrayColumn(array, True)
    assert serde.serialize_column("t", column) == serde.serialize_column("t", column.rows())


class Shouting(StringSerde):
    """Texts in capitals."""

    def deserialize(self, topic: str, data: bytes, headers: Any = ()) -> str:
        return data.decode().upper()


def test_a_serde_of_another_reading_has_no_arrays() -> None:
    assert read_column(Shouting(), "t", [b"a"], None, "pyarrow") == ["A"]


def test_a_column_of_a_dictionary_is_read_by_its_entries() -> None:
    column = DictionaryColumn.of([b"a"], np.zeros(2, np.int32))
    assert read_column(Serdes.string(), "t", column, None, "pyarrow") == ["a", "a"]
    assert isinstance(read_column(Serdes.string(), "t", [b"a"], None, "pyarrow"), ArrayColumn)
    assert read_column(Serdes.string(), "t", [b"a"], None, None) == ["a"]
