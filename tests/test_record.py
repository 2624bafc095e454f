"""Records and batches: what they hold, cut, taken and put together."""

from __future__ import annotations

import math
import pickle
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamsError
from penstock.record import (
    ArrayColumn,
    Record,
    RecordBatch,
    ValueTimestampHeaders,
    are_same,
    entries_of,
    listed,
    rows_of,
    sliced,
)

rows = st.lists(
    st.tuples(
        st.none() | st.text(max_size=3),
        st.none() | st.text(max_size=3),
        st.integers(0, 99),
        st.integers(0, 99),
        st.just(()) | st.just((("name", b"value"),)),
    ),
    max_size=8,
)


def shown(batch: RecordBatch) -> list[object]:
    return [
        (key, value, timestamp, offset, batch.headers_at(row))
        for row, (key, value, timestamp, offset) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps.tolist(), batch.offsets.tolist(), strict=True)
        )
    ]


@pytest.mark.parametrize("headers", [{"ab": b"1"}, ["ab"], [("a", "text")], [(b"a", b"1")], [("a", b"1", b"2")]])
def test_headers_are_pairs_of_a_name_and_bytes(headers: Any) -> None:
    for make in (lambda: Record("k", "v", 1, headers), lambda: Record("k", "v", 1).with_headers(headers)):
        with pytest.raises(TypeError, match=r"Invalid header .*: expected a sequence of pairs"):
            make()


def test_headers_of_a_list_become_those_of_the_record() -> None:
    headers: Any = [("a", None)]
    assert Record("k", "v", 1, headers).headers == (("a", None),)


def test_a_record_has_no_negative_timestamp() -> None:
    with pytest.raises(StreamsError, match="Malformed Record") as caught:
        Record("k", "v", 0).with_timestamp(-1)
    assert str(caught.value.__cause__) == "Timestamp may not be negative. Got: -1"


@pytest.mark.parametrize("time", [1690451888.453, 5.0, True, math.nan, None, "5", datetime.now(UTC), np.float64(5)])
def test_a_timestamp_is_a_whole_number(time: Any) -> None:
    for make in (lambda: Record("k", "v", time), lambda: Record("k", "v", 0).with_timestamp(time)):
        with pytest.raises(TypeError, match=f"as a whole number of ms since the epoch, got {re.escape(repr(time))}"):
            make()


def test_a_timestamp_has_64_bits_and_may_be_of_numpy() -> None:
    with pytest.raises(ValueError, match="of 64 bits, got 9223372036854775808"):
        Record("k", "v", 2**63)
    timestamp = Record("k", "v", np.int64(5)).timestamp
    assert (timestamp, type(timestamp)) == (5, int)


def test_copies_change_one_thing() -> None:
    record = Record("k", "v", 1, (("h", b"1"),))
    assert record.with_key("l") == Record("l", "v", 1, (("h", b"1"),))
    assert record.with_value(None) == Record("k", None, 1, (("h", b"1"),))
    assert record.with_timestamp(2) == Record("k", "v", 2, (("h", b"1"),))
    assert record.with_headers([]) == Record("k", "v", 1)


@given(rows, rows, st.data())
def test_slices_takes_and_concatenations_are_those_of_the_rows(a: list, b: list, data: st.DataObject) -> None:  # type: ignore[type-arg]  # rows of mixed types
    joined = RecordBatch.concat([RecordBatch.of(a), RecordBatch.of(b)])
    assert shown(joined) == a + b
    start, stop = data.draw(st.integers(0, 16)), data.draw(st.integers(0, 16))
    assert shown(joined.slice(start, stop)) == (a + b)[start:stop]
    if a + b:
        indices = data.draw(st.lists(st.integers(0, len(a + b) - 1)))
        assert shown(joined.take(np.array(indices, np.int64))) == [(a + b)[index] for index in indices]


def test_two_are_equal_if_their_headers_are() -> None:
    one, other = ValueTimestampHeaders("x", 1, (("h", b"1"), ("none", None))), ValueTimestampHeaders("x", 1)
    assert one != other
    assert one == pickle.loads(pickle.dumps(one))
    assert len({one, other, ValueTimestampHeaders("x", 1)}) == 2


@pytest.mark.parametrize("array", [np.array([1, 2, 3, 4]), pa.array([1, None, 3, 4])])
def test_a_column_of_an_array_is_a_sequence_of_its_rows(array: Any) -> None:
    column: ArrayColumn[Any] = ArrayColumn(array, may_have_null=True)
    rows = array.tolist()
    assert (list(column), len(column), column[2], column[1:3]) == (rows, 4, 3, rows[1:3])
    assert (3 in column, 7 in column, None in column) == (True, False, None in rows)
    assert rows_of(column) == entries_of(column) == rows
    assert list(sliced(column, 1, 3)) == rows[1:3]


def test_batches_take_slice_and_concatenate_columns_of_arrays() -> None:
    keys: ArrayColumn[Any] = ArrayColumn(np.array([1.0, 2.0, 3.0]))
    batch = RecordBatch(keys, keys, np.arange(3), np.arange(3))
    for part in (batch.take(np.array([2, 0])), batch.slice(1, 3)):
        assert isinstance(part.keys, ArrayColumn)
        assert part.keys is part.values
        assert are_same(part.keys, part.values)
    assert list(batch.take(np.array([2, 0])).keys) == [3.0, 1.0]
    assert RecordBatch.concat([batch.slice(1, 3), batch]).values == [2.0, 3.0, 1.0, 2.0, 3.0]
    assert listed(batch).keys == [1.0, 2.0, 3.0]
    assert listed(batch).keys is listed(batch).values
    assert listed(listed(batch)).keys == [1.0, 2.0, 3.0]


def test_columns_are_the_same_if_their_rows_are_the_same_objects() -> None:
    rows = [object(), object()]
    assert are_same(rows, list(rows))
    assert not are_same(rows, rows[::-1])
    assert not are_same(ArrayColumn(np.array([1])), ArrayColumn(np.array([1])))
