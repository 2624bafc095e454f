"""Columns in each form: annotations, rows in arrays and back, nulls, and what is no column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.processor.arrays import ColumnForm, Form, column_form, column_in, items_in, list_form, made
from penstock.record import ArrayColumn

FORMS = list(Form)


@dataclass
class Order:
    amount: int


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (np.ndarray, ColumnForm(Form.NUMPY)),
        (npt.NDArray[Any], ColumnForm(Form.NUMPY)),
        (npt.NDArray[np.float64], ColumnForm(Form.NUMPY, float, "<f8")),
        (npt.NDArray[np.int32], ColumnForm(Form.NUMPY, int, "<i4")),
        (npt.NDArray[np.bool_], ColumnForm(Form.NUMPY, bool, "|b1")),
        (npt.NDArray[np.object_], ColumnForm(Form.NUMPY)),
        (pa.Array, ColumnForm(Form.ARROW)),
        (pa.StringArray, ColumnForm(Form.ARROW, str)),
        (pa.DoubleArray, ColumnForm(Form.ARROW, float)),
        (pa.UInt8Array, ColumnForm(Form.ARROW, int)),
        (pl.Series, ColumnForm(Form.POLARS)),
        (pd.Series, ColumnForm(Form.PANDAS)),
        ("pa.Array", ColumnForm(Form.ARROW)),
        ("pyarrow.BinaryArray", ColumnForm(Form.ARROW, bytes)),
        ("np.ndarray[Any, Any]", ColumnForm(Form.NUMPY)),
        ("npt.NDArray[np.float64]", ColumnForm(Form.NUMPY)),
        ("pd.Series[float]", ColumnForm(Form.PANDAS)),
        ("polars.Series", ColumnForm(Form.POLARS)),
        ("Series", None),
        (list[int], None),
        (float, None),
        (np.float64, None),
        (Any, None),
        (None, None),
    ],
)
def test_an_annotation_names_a_form_an_element_and_a_dtype(annotation: Any, expected: ColumnForm | None) -> None:
    assert column_form(annotation) == expected


@pytest.mark.parametrize("annotation", [pa.ChunkedArray, "pa.ChunkedArray"])
def test_a_chunked_array_is_refused(annotation: Any) -> None:
    with pytest.raises(TypeError, match="combine_chunks"):
        column_form(annotation)


def test_a_list_has_the_element_of_its_annotation() -> None:
    assert list_form(list[float]) == ColumnForm(Form.LIST, float)
    assert list_form(Any) == ColumnForm(Form.LIST)
    assert list_form(pl.Series) == ColumnForm(Form.POLARS)


ROWS = st.one_of(
    *(
        st.lists(st.none() | values)
        for values in (
            st.floats(),
            st.integers(-(2**63), 2**63 - 1),
            st.text(),
            st.binary(),
            st.booleans(),
            st.lists(st.text(), max_size=3),
        )
    )
)


@pytest.mark.parametrize("form", FORMS)
@given(rows=ROWS)
def test_rows_are_the_same_after_each_form(form: Form, rows: list[Any]) -> None:
    again = column_in(made(ColumnForm(form), rows))
    assert again is not None
    assert list(map(repr, again)) == list(map(repr, rows))  # nan is unequal to itself, and 1 equals True


@pytest.mark.parametrize("form", FORMS)
def test_a_function_may_change_its_column(form: Form) -> None:
    rows = [1.0, 2.0]
    column = made(ColumnForm(form), rows)
    assert column is not rows
    if form in (Form.LIST, Form.NUMPY, Form.PANDAS):
        column[0] = 5.0
    assert rows == [1.0, 2.0]


@pytest.mark.parametrize(
    ("element", "arrow", "polars"),
    [
        (str, pa.string(), pl.String),
        (int, pa.int64(), pl.Int64),
        (float, pa.float64(), pl.Float64),
        (bytes, pa.binary(), pl.Binary),
        (bool, pa.bool_(), pl.Boolean),
        (None, pa.null(), pl.Null),
    ],
)
def test_a_column_of_nulls_has_the_type_of_its_element(element: Any, arrow: Any, polars: Any) -> None:
    assert made(ColumnForm(Form.ARROW, element), [None]).type == arrow
    assert made(ColumnForm(Form.POLARS, element), [None]).dtype == polars


def test_a_dtype_holds_null_as_nan_or_refuses_it() -> None:
    assert np.isnan(made(ColumnForm(Form.NUMPY, float, "<f8"), [None])[0])
    with pytest.raises(TypeError):
        made(ColumnForm(Form.NUMPY, int, "<i8"), [None])


def test_integers_of_more_than_64_bits_are_objects_in_numpy() -> None:
    assert made(ColumnForm(Form.NUMPY), [2**70]).dtype == object


def test_objects_of_dataclasses_are_structs_in_arrays() -> None:
    assert column_in(made(ColumnForm(Form.ARROW), [Order(1), None])) == [{"amount": 1}, None]
    assert column_in(made(ColumnForm(Form.POLARS), [Order(1)])) == [{"amount": 1}]
    assert made(ColumnForm(Form.NUMPY), [Order(1)]).tolist() == [Order(1)]


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        ((1, 2), [1, 2]),
        (np.array([1.5]), [1.5]),
        (np.array([[1], [2]]), [[1], [2]]),
        (np.array(["a", "b"]), ["a", "b"]),
        (pa.array([["a"], None]), [["a"], None]),
        (pl.Series([1, None]), [1, None]),
        (pd.Series([1.5, float("inf")]), [1.5, float("inf")]),
        (pd.Series([1, None], dtype="Int64"), [1, None]),
        (pd.Series(["a", None, float("nan")], dtype=object), ["a", None, None]),
        (pd.Series([pd.NaT]), [None]),
    ],
)
def test_results_of_any_form_are_rows(result: Any, rows: list[Any]) -> None:
    column = column_in(result)
    assert column is not None
    assert list(column) == rows


@pytest.mark.parametrize("result", [None, 1, "text", b"bytes", {1: 2}, np.array(1), np.float64(1), pa.scalar(1)])
def test_anything_else_is_no_column(result: Any) -> None:
    assert column_in(result) is None


def test_a_chunked_result_is_refused() -> None:
    with pytest.raises(TypeError, match="combine_chunks"):
        column_in(pa.chunked_array([[1], [2]]))


def _shown(column: Any) -> tuple[str, str]:
    return str(column.type) if isinstance(column, pa.Array) else "", str(column)


KEPT = [
    np.array([1.5, 2.5], np.float32),
    np.array([1, 2], np.uint16),
    np.array([True]),
    pa.array([1.5, None], pa.float32()),
    pa.array([1, None], pa.uint32()),
    pa.array([True, None]),
    pa.array(["a", None], pa.large_string()),
    pa.array([b"a", None], pa.binary()),
    pa.array([["a"], [None], []], pa.large_list(pa.string_view())),
    pl.Series([1, 2], dtype=pl.Int8),
    pd.Series([1.5, float("nan")]),
]


@pytest.mark.parametrize("result", KEPT, ids=lambda result: type(result).__name__)
@pytest.mark.parametrize("form", FORMS)
def test_an_array_that_is_kept_is_the_column_that_its_rows_make(result: Any, form: Form) -> None:
    kept = column_in(result)
    assert isinstance(kept, ArrayColumn)
    from_array, from_rows = (made(ColumnForm(form), column) for column in (kept, list(kept)))
    assert _shown(from_array) == _shown(from_rows)
    assert kept.may_have_null == (None in list(kept))


@pytest.mark.parametrize("result", [np.array([2**63], np.uint64), np.array([[1, 2]]), pa.array([2**63], pa.uint64())])
def test_other_arrays_become_rows(result: Any) -> None:
    assert column_in(result) == result.tolist()


def test_a_function_may_change_the_array_that_it_has_returned() -> None:
    returned = np.array([1.0, 2.0])
    kept = column_in(returned)
    returned[0] = 5.0
    assert kept is not None
    assert list(kept) == [1.0, 2.0]


def test_nulls_alone_are_the_same_from_an_array_as_from_rows() -> None:
    kept = column_in(pa.array([None, None], pa.string()))
    assert kept is not None
    assert made(ColumnForm(Form.ARROW), kept).type == pa.null()
    assert made(ColumnForm(Form.POLARS), kept).dtype == pl.Null


@given(lists=st.lists(st.lists(st.none() | st.text(max_size=2), max_size=3), min_size=1), start=st.integers(0, 3))
def test_the_items_of_lists_stay_an_array(lists: list[list[str | None]], start: int) -> None:
    column = column_in(pa.array(lists, pa.list_(pa.string())))
    assert isinstance(column, ArrayColumn)
    found = items_in(column.take(slice(start, None)))
    assert found is not None
    items, lengths = found
    assert list(items) == [item for each in lists[start:] for item in each]
    assert lengths.tolist() == [len(each) for each in lists[start:]]


def test_other_columns_have_no_items() -> None:
    assert items_in([["a"]]) is None
    assert items_in(ArrayColumn(np.array([1]))) is None
    assert items_in(ArrayColumn(pa.array(["a"]))) is None
