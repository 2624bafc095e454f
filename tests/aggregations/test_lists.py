"""Collected and largest values against slices and sorted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import aggregations
from penstock.serdes import ListSerde, LongSerde
from tests.support.aggregations import result_of

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=20)


@given(PAIRS, st.integers(1, 25))
def test_lists_are_those_of_python(values: list[tuple[int, int]], limit: int) -> None:
    assert result_of(aggregations.collect(limit=limit), values) == values[:limit]
    assert result_of(aggregations.collect(lambda pair: pair[1], limit=limit), values) == [v for _, v in values][:limit]
    by_first = sorted(values, key=lambda pair: pair[0], reverse=True)  # which keeps equal ones in order
    assert result_of(aggregations.top(limit, by=lambda pair: pair[0]), values) == by_first[:limit]
    assert result_of(aggregations.top(limit), values) == sorted(values, reverse=True)[:limit]


def test_texts_can_be_the_largest_ones() -> None:
    assert result_of(aggregations.top(2), ["b", "d", "a", "c"]) == ["d", "c"]


def test_numbers_without_order_are_not_among_the_largest() -> None:
    assert result_of(aggregations.top(3), [1.0, math.nan, 2.0]) == [2.0, 1.0]
    assert result_of(aggregations.top(3), [math.nan]) is None


def test_a_list_is_stored_and_written_in_kafkas_format() -> None:
    serde = aggregations.collect().result_serde(LongSerde())
    assert isinstance(serde, ListSerde)
    assert serde.serialize("t", [1, 2]) == ListSerde(LongSerde()).serialize("t", [1, 2])
    by_default = aggregations.top(2).result_serde(None)
    assert by_default is not None
    assert by_default.with_defaults(None, LongSerde()).serialize("t", [1]) == serde.serialize("t", [1])


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_list_without_a_limit_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=r"top\(\) must be an int of at least 1"):
        aggregations.top(limit)
    with pytest.raises(ValueError, match=r"collect\(\) must be an int of at least 1"):
        aggregations.collect(limit=limit)
