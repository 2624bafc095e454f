"""Counts, sums and means against Python's own."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import aggregations
from penstock.aggregations.totals import Mean
from penstock.errors import SerializationError
from penstock.serdes import DoubleSerde, FloatSerde, IntegerSerde, LongSerde, Serde, ShortSerde
from tests.support.aggregations import FLOATS, INTS, NUMBERS, result_of, state_of, store_serde


@given(st.lists(INTS, min_size=1, max_size=20))
def test_the_sum_of_ints_is_an_exact_int(values: list[int]) -> None:
    assert result_of(aggregations.sum(), values) == sum(values)
    assert type(result_of(aggregations.sum(), values)) is int


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_the_mean_is_the_float_nearest_to_the_exact_mean(values: list[Any]) -> None:
    exact = sum(map(Fraction, values)) / len(values)
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.copysign(math.inf, exact)
    assert result_of(aggregations.mean(), values) == expected


@given(st.lists(FLOATS, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_neither_sum_nor_mean_depends_on_the_order(values: list[float], chosen: Any) -> None:
    mixed = chosen.sample(values, len(values))
    for aggregation in (aggregations.sum(), aggregations.mean()):
        assert state_of(aggregation, mixed) == state_of(aggregation, values)


def test_a_mean_agrees_with_the_statistics_module() -> None:
    values = [0.1, 0.2, 0.3, 12, 7.25]
    assert result_of(aggregations.mean(), values) == statistics.mean(values)
    assert result_of(aggregations.mean(), [1.0, math.inf]) == math.inf


def test_the_mean_of_all_subtracted_values_is_missing_and_their_count_is_zero() -> None:
    mean, count = aggregations.mean(), aggregations.count()
    assert mean.result(mean.subtracted(state_of(mean, [3]), 3)) is None
    assert count.result(count.subtracted(state_of(count, ["a"]), "a")) == 0


def test_a_count_of_parts_leaves_out_missing_ones() -> None:
    count = aggregations.count(lambda order: order.get("coupon"))
    assert result_of(count, [{"coupon": "x"}, {}, {"coupon": ""}]) == 2


@pytest.mark.parametrize(
    ("given_serde", "expected"),
    [(ShortSerde, LongSerde), (IntegerSerde, LongSerde), (FloatSerde, DoubleSerde), (DoubleSerde, DoubleSerde)],
)
def test_a_sum_has_room_for_more_than_one_number(given_serde: type[Serde], expected: type[Serde]) -> None:
    assert type(aggregations.sum().result_serde(given_serde())) is expected


def test_the_bytes_of_states_stay_the_same() -> None:
    """They are in changelogs."""
    total, mean = aggregations.sum(), aggregations.mean()
    assert store_serde(aggregations.count()).serialize("t", 258) == b"\x01N\0\0\0\0\0\0\x01\x02"
    assert store_serde(total).serialize("t", 258) == b"\x01Si\x01\x02"
    assert store_serde(mean).serialize("t", Mean(2, Fraction(5, 4))) == b"\x01M\0\0\0\0\0\0\0\x02q\0\x02\x05"


def test_the_state_of_another_aggregation_is_refused() -> None:
    data = store_serde(aggregations.sum()).serialize("t", 1)
    with pytest.raises(SerializationError, match=r"aggregations\.mean: they are the state of another aggregation"):
        store_serde(aggregations.mean()).deserialize("t", data)
