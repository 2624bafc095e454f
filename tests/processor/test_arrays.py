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

from penstock.processor.arrays import ColumnForm, Form, column_form, list_form, made, rows_in

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
    again = rows_in(made(ColumnForm(form), rows))
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
    assert rows_in(made(ColumnForm(Form.ARROW), [Order(1), None])) == [{"amount": 1}, None]
    assert rows_in(made(ColumnForm(Form.POLARS), [Order(1)])) == [{"amount": 1}]
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
    assert rows_in(result) == rows


@pytest.mark.parametrize("result", [None, 1, "text", b"bytes", {1: 2}, np.array(1), np.float64(1), pa.scalar(1)])
def test_anything_else_is_no_column(result: Any) -> None:
    assert rows_in(result) is None


def test_a_chunked_result_is_refused() -> None:
    with pytest.raises(TypeError, match="combine_chunks"):
        rows_in(pa.chunked_array([[1], [2]]))
