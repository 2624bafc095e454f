"""Exact sums: against fractions and math.fsum."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aggregations.exact_number import (
    ExactNumber,
    as_float,
    exact,
    packed_number,
    rounded,
    sum_of,
    sum_of_column,
    unpacked_number,
)
from tests.support.aggregations import FLOATS, INTS, NUMBERS

SPECIAL = st.sampled_from([math.inf, -math.inf, math.nan])


@given(st.lists(NUMBERS, min_size=1, max_size=60))
def test_the_sum_of_a_column_is_exact(numbers: list[Any]) -> None:
    assert sum_of_column(numbers) == sum(map(Fraction, numbers))


@given(st.lists(FLOATS, min_size=20, max_size=80))
def test_many_floats_have_the_sum_that_fsum_has(numbers: list[float]) -> None:
    try:
        expected = math.fsum(numbers)
    except OverflowError:  # of a partial sum
        return
    assert rounded(sum_of_column(numbers)) == expected


def test_large_and_small_floats_do_not_lose_bits() -> None:
    chosen = random.Random(5)
    numbers = [chosen.choice([1, -1]) * 2.0 ** chosen.randrange(-1000, 1000) for _ in range(500)]
    assert sum_of_column(numbers) == sum(map(Fraction, numbers))
    assert rounded(sum_of_column([1e16, 1.0, -1e16] * 20)) == 20.0


@given(st.lists(st.one_of(NUMBERS, SPECIAL), min_size=1, max_size=8))
def test_infinite_numbers_add_as_in_ieee_754(numbers: list[Any]) -> None:
    special = [number for number in numbers if isinstance(number, float) and not math.isfinite(number)]
    total = sum_of_column(numbers)
    if special:
        assert repr(total) == repr(float(sum(special)))
    else:
        assert not isinstance(total, float)


@given(st.one_of(INTS, FLOATS.map(Fraction), SPECIAL))
def test_a_number_survives_the_round_trip(number: ExactNumber) -> None:
    read = unpacked_number(packed_number(number))
    assert type(read) is type(number)
    assert read == number or number != number


def test_the_bytes_of_numbers_stay_the_same() -> None:
    assert packed_number(0) == b"i\0"
    assert packed_number(-129) == b"i\xff\x7f"
    assert packed_number(Fraction(5, 4)) == b"q\0\x02\x05"
    assert packed_number(math.inf) == b"f\x7f\xf0\0\0\0\0\0\0"


@pytest.mark.parametrize("data", [b"", b"x1", b"q\0", b"f123"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        unpacked_number(data)


def test_ints_stay_ints_until_the_first_float() -> None:
    assert rounded(sum_of(2**70, 1)) == 2**70 + 1
    assert isinstance(rounded(sum_of(1, exact(2.0))), float)
    assert exact(True) == 1
    assert type(exact(np.int64(3))) is int
    assert exact(np.float32(0.5)) == Fraction(1, 2)


def test_a_sum_beyond_the_largest_float_is_infinite() -> None:
    assert rounded(sum_of_column([1.7e308, 1.7e308])) == math.inf
    assert as_float(-(10**400)) == -math.inf


@pytest.mark.parametrize("value", ["1", Decimal(1), Fraction(1), [1]])
def test_what_is_neither_int_nor_float_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=f"Expected an int or a float to add, got {type(value).__name__}"):
        exact(value)
    with pytest.raises(TypeError, match="return a number from `of`"):
        sum_of_column([1, value])
