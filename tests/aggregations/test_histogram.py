"""Quantiles against sorted lists."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import aggregations
from penstock.aggregations.histogram import Histogram
from penstock.errors import SerializationError
from tests.support.aggregations import FLOATS, result_of, state_of, store_serde

SHARES = [0, 0.1, 0.25, 0.5, 0.9, 0.99, 1]
QUANTILES = aggregations.quantiles(SHARES)
SERDE = store_serde(QUANTILES)


def nearest_rank(values: list[Any], share: float) -> Any:
    return sorted(values)[max(1, math.ceil(Fraction(repr(share)) * len(values))) - 1]


@given(st.lists(st.integers(-256, 256), min_size=1, max_size=50))
def test_quantiles_of_small_whole_numbers_are_exact(values: list[int]) -> None:
    assert result_of(QUANTILES, values) == [nearest_rank(values, share) for share in SHARES]


@given(st.lists(FLOATS.filter(lambda value: value == 0 or abs(value) > 1e-300), min_size=1, max_size=50))
def test_quantiles_have_a_limited_relative_error(values: list[float]) -> None:
    for found, share in zip(result_of(QUANTILES, values), SHARES, strict=True):
        exact = nearest_rank(values, share)
        assert math.isinf(found) or abs(found - exact) <= abs(exact) / 256


def test_a_share_is_taken_as_it_is_written() -> None:
    assert result_of(aggregations.quantiles([0.1]), list(range(1, 31))) == [3.0]  # 0.1 * 30 is more than 3 in floats


def test_infinite_numbers_have_an_order_and_nan_has_not() -> None:
    values = [1.0, -math.inf, math.nan, math.inf]
    assert result_of(aggregations.quantiles([0, 0.5, 1]), values) == [-math.inf, 1.0, math.inf]
    assert result_of(QUANTILES, [math.nan]) is None
    assert not QUANTILES.takes_column([1.0, math.nan], lambda kind: True)


@given(st.lists(FLOATS, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_state_does_not_depend_on_the_order(values: list[float], chosen: Any) -> None:
    assert state_of(QUANTILES, chosen.sample(values, len(values))) == state_of(QUANTILES, values)


def test_negative_zero_is_zero_and_ints_of_any_size_are_numbers() -> None:
    assert state_of(QUANTILES, [-0.0, 0.0, 0]) == Histogram((0,), (3,))
    assert result_of(aggregations.quantiles([1]), [10**400, True]) == [math.inf]


def test_the_bytes_of_a_state_stay_the_same() -> None:
    """They are in changelogs."""
    data = SERDE.serialize("t", state_of(QUANTILES, [1.0, 1.0, -2.0]))
    assert data.hex() == "0148" + "fffdffff" + "0000000000000001" + "0001ff80" + "0000000000000002"
    with pytest.raises(SerializationError, match="quantiles"):
        SERDE.deserialize("t", data[:-1])


@pytest.mark.parametrize("at", [[], [1.5], [-0.1], [0.5, math.nan]])
def test_shares_outside_of_zero_and_one_are_refused(at: list[float]) -> None:
    with pytest.raises(ValueError, match=r"Expected shares from 0 to 1 for quantiles\(\)"):
        aggregations.quantiles(at)


def test_a_text_is_no_number() -> None:
    with pytest.raises(TypeError, match="Expected an int or a float"):
        QUANTILES.added(None, "5")
