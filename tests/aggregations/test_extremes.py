"""Least, largest, first and last values against min, max and places in a list."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import aggregations
from penstock.aggregations.extremes import is_nan
from penstock.serdes import LongSerde, Serde
from tests.support.aggregations import NUMBERS, result_of, state_of

VALUES = st.lists(NUMBERS, min_size=1, max_size=20)


@given(VALUES)
def test_extremes_and_ends_are_those_of_the_list(values: list[Any]) -> None:
    found = [result_of(make(), values) for make in (aggregations.min, aggregations.max)]
    assert found == [min(values), max(values)]
    assert [type(value) for value in found] == [type(min(values)), type(max(values))]
    assert result_of(aggregations.first(), values) == values[0]
    assert result_of(aggregations.last(), values) == values[-1]


def test_texts_have_extremes_too() -> None:
    assert result_of(aggregations.max(), ["b", "c", "a"]) == "c"
    assert result_of(aggregations.min(len), ["bbb", "c", "aa"]) == 1


def test_the_first_of_equal_values_stays() -> None:
    assert type(result_of(aggregations.max(), [1, 1.0])) is int
    assert type(result_of(aggregations.min(), [1.0, 1])) is float


def test_numbers_without_order_are_skipped() -> None:
    assert is_nan(math.nan)
    assert not is_nan("nan")
    for make in (aggregations.min, aggregations.max):
        assert result_of(make(), [math.nan, 2.0, math.nan]) == 2.0
        assert result_of(make(), [math.nan]) is None


def test_a_column_is_taken_if_the_store_returns_its_numbers_unchanged() -> None:
    def reads_back(serde: Serde) -> Any:
        return serde.unchanging_types.__contains__

    largest = aggregations.max()
    assert largest.takes_column([1, 2], reads_back(LongSerde()))
    assert not largest.takes_column([1, 2.0], reads_back(LongSerde()))
    assert not largest.takes_column(["a"], lambda kind: True)
    assert not largest.takes_column([1.0, math.nan], lambda kind: True)
    assert not aggregations.last().takes_column([1], lambda kind: True)
    assert largest.added_column(state_of(largest, [5]), [3, 9, 4]) == 9
