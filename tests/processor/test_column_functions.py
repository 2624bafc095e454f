"""Functions on columns: which functions they are, their calls, and the rows at fault."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import vectorized
from penstock.processor.arrays import ColumnForm, Form
from penstock.processor.column_functions import (
    ColumnAction,
    ColumnFunction,
    check_not_mixed,
    column_function,
    result_of,
    takes_columns_only,
)
from penstock.processor.columns import ColumnError, apply

if TYPE_CHECKING:
    import polars as only_for_checkers  # noqa: F401  # an alias that the annotation below does not know when it runs
    import polars as pl

LISTS = (ColumnForm(Form.LIST),)


def cents(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 100)


def scores(values: npt.NDArray[np.float64], scale: float = 1.0) -> npt.NDArray[np.float64]:
    return values * scale


def both(keys: pa.StringArray, values: np.ndarray) -> pa.BooleanArray:
    return pa.array([True] * len(keys))


def unknown_when_run(values: pl.Series) -> pl.Series:
    return values


@vectorized
def lengths(values: list[str]) -> list[int]:
    return [len(value) for value in values]


class Scorer:
    def __call__(self, values: pa.Array) -> pa.Array:
        return values

    def score(self, values: pa.Array) -> pa.Array:
        return values


def row(key: str, embedding: np.ndarray) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("function", "forms"),
    [
        (cents, [Form.ARROW]),
        (scores, [Form.NUMPY]),
        (both, [Form.ARROW, Form.NUMPY]),
        (unknown_when_run, [Form.POLARS]),
        (lengths, [Form.LIST]),
        (Scorer(), [Form.ARROW]),
        (Scorer().score, [Form.ARROW]),
        (partial(both, pa.array(["k"])), [Form.NUMPY]),
    ],
)
def test_annotations_and_marks_make_functions_on_columns(function: Callable[..., Any], forms: list[Form]) -> None:
    found = column_function(function)
    assert found is not None
    assert [column.form for column in found._columns] == forms


@pytest.mark.parametrize("function", [lambda v: v, len, str, row, Scorer, print, {}.get, partial(max, 1), None])
def test_all_others_are_functions_on_rows(function: Any) -> None:
    assert column_function(function) is None


def test_a_parameter_without_annotation_beside_a_column_is_refused() -> None:
    def half(keys, values: pa.Array) -> pa.Array:  # type: ignore[no-untyped-def]  # that is what is tested
        return values

    with pytest.raises(TypeError, match=r"half takes a column, but its parameter keys has no annotation"):
        column_function(half)


def test_a_mark_needs_annotations() -> None:
    def unannotated(keys: list[str], values):  # type: ignore[no-untyped-def]  # that is what is tested
        return values

    with pytest.raises(TypeError, match=r"unannotated has the mark .* its parameter values has no annotation, .* list"):
        vectorized(unannotated)


def test_a_mark_needs_annotations_of_columns() -> None:
    def single(keys: list[str], value: dict[str, int]) -> list[int]:
        return []

    message = r"single has the mark of vectorized, but its parameter value is annotated as dict\[str, int\], which is a"
    with pytest.raises(TypeError, match=rf"{message} single value: .* Write list\[dict\[str, int\]\]"):
        vectorized(single)  # type: ignore[arg-type]  # that is what is tested


def test_a_mark_accepts_annotations_that_a_list_fits() -> None:
    def several(one: Any, two: Sequence[str], three: list[str] | None, four: tuple[str, ...], five: object) -> Any: ...

    marked = vectorized(several)  # type: ignore[arg-type]  # the other overloads are for two columns
    assert takes_columns_only(marked)


def test_columns_and_single_values_are_not_mixed() -> None:
    for each in (cents, both, lengths, len, str, Scorer(), lambda value: value, 5):
        check_not_mixed(each)
    message = r"row takes a column, embedding, and a single value, key: annotate key as a column too, such as key: "
    with pytest.raises(TypeError, match=rf"{message}numpy.ndarray. If the values .* annotate neither"):
        check_not_mixed(row)


def test_only_python_functions_get_a_mark() -> None:
    with pytest.raises(TypeError, match="mark a function made with def"):
        vectorized(len)  # type: ignore[call-overload]  # that is what is tested


def test_a_numpy_array_may_be_a_single_value() -> None:
    assert takes_columns_only(cents)
    assert takes_columns_only(lengths)
    assert not takes_columns_only(scores)
    assert not takes_columns_only(len)


@pytest.mark.parametrize(("function", "element"), [(cents, None), (scores, float), (both, bool), (lengths, int)])
def test_the_type_of_a_result_is_that_of_its_annotation(function: Callable[..., Any], element: type | None) -> None:
    found = column_function(function)
    assert found is not None
    assert result_of(found) is element


def test_a_function_takes_single_rows_as_columns_of_length_one() -> None:
    function = column_function(cents)
    assert function is not None
    assert function(2) == 200
    assert list(function.call([[1, None, 3]])) == [100, None, 300]
    assert repr(function) == "cents"
    assert pickle.loads(pickle.dumps(function))(3) == 300


def test_nulls_alone_have_the_type_that_the_stream_knows() -> None:
    def upper(values: pa.Array) -> pa.Array:
        return pc.utf8_upper(values)

    function = column_function(upper)
    assert function is not None
    assert function.knowing(None, str)(None) is None
    with pytest.raises(NotImplementedError):
        function(None)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1], "returned a column of length 1 where length 2 was expected"),
        (7, "returned 7 of int where a column of 2 rows was expected"),
        (None, "returned None of NoneType"),
    ],
)
def test_anything_but_a_column_of_the_same_length_is_refused(returned: Any, message: str) -> None:
    function = ColumnFunction(lambda values: returned, LISTS)
    with pytest.raises(ColumnError, match=message):
        apply(function, ([1, 2],), lambda row, error: None)


def test_the_result_of_an_action_does_not_matter() -> None:
    seen: list[list[int]] = []
    applied = apply(ColumnAction(seen.append, LISTS), ([1, 2],), lambda row, error: None)
    assert (seen, applied.results) == ([[1, 2]], [None, None])


class Picky:
    """Fails for columns with one of some values, and remembers its calls."""

    def __init__(self, refused: set[int]) -> None:
        self.refused = refused
        self.calls: list[list[int]] = []

    def __call__(self, values: list[int]) -> list[int | None]:
        self.calls.append(values)
        if not self.refused.isdisjoint(values):
            raise LookupError(min(self.refused.intersection(values)))
        return [None if value % 5 == 0 else -value for value in values]


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("null_error", [None, "null"])
@given(rows=st.lists(st.integers(1, 60), min_size=1, max_size=60), refused=st.sets(st.integers(1, 60), max_size=4))
def test_rows_fail_alone_and_in_order(
    batch_size: int | None, null_error: str | None, rows: list[int], refused: set[int]
) -> None:
    whole, alone = Picky(refused), Picky(refused)
    expected: list[tuple[int, str]] = []
    got: list[tuple[int, str]] = []
    by_row = apply(lambda value: alone([value])[0], (rows,), lambda row, error: expected.append((row, repr(error))),
                   null_error)  # fmt: skip
    function = ColumnFunction(whole, LISTS, None, batch_size)
    by_column = apply(function, (rows,), lambda row, error: got.append((row, repr(error))), null_error)
    assert list(by_column.results) == list(by_row.results)
    assert (None if by_column.kept is None else by_column.kept.tolist()) == (
        None if by_row.kept is None else by_row.kept.tolist()
    )
    assert sorted(got) == got
    assert sorted(got) == sorted(expected)
    assert max(map(len, whole.calls)) <= (batch_size or len(rows))
    if refused.isdisjoint(rows):
        assert len(whole.calls) == -(-len(rows) // (batch_size or len(rows)))


def test_a_failure_that_ends_the_task_ends_the_calls() -> None:
    function = Picky({2})

    def fatal(row: int, error: Exception) -> None:
        raise SystemError(row)

    with pytest.raises(SystemError, match="1"):
        apply(ColumnFunction(function, LISTS), ([1, 2, 3, 4],), fatal)
    assert function.calls == [[1, 2, 3, 4], [1, 2], [1], [2]]
