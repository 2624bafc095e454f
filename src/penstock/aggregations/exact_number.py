"""Exact sums of numbers.

A sum is an int while all numbers are ints, and a Fraction after the first float. It is rounded only when a result is
needed, so it does not depend on the order of the numbers. If a number is infinite or not a number, the sum is a float.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, Final, cast

import numpy as np

ExactNumber = int | Fraction | float
"""An exact sum; a float only if it is not finite."""

_INT, _FRACTION, _FLOAT = b"i", b"q", b"f"
_SHIFT: Final = struct.Struct(">H")
_DOUBLE: Final = struct.Struct(">d")
_MANTISSA_BITS: Final = 53
_FEW: Final = 16
"""Number of floats up to which numpy costs more than it saves."""


def exact(number: Any) -> ExactNumber:
    """Return a number as an exact one; raises TypeError for anything but ints and floats."""
    kind = type(number)
    if kind is int:
        return cast("int", number)
    if kind is not float:
        if isinstance(number, Integral):
            return int(number)
        if not isinstance(number, Real) or isinstance(number, Fraction):
            raise TypeError(
                f"Expected an int or a float to add, got {kind.__name__} {number!r:.100}: return a number from `of`."
            )
    near = float(number)
    return Fraction(near) if isfinite(near) else near


def sum_of(one: ExactNumber, other: ExactNumber) -> ExactNumber:
    """Return the sum of two exact numbers."""
    if isinstance(one, float) or isinstance(other, float):  # a finite number does not change an infinite one
        return (one if isinstance(one, float) else 0.0) + (other if isinstance(other, float) else 0.0)
    return one + other


def sum_of_column(numbers: Sequence[Any]) -> ExactNumber:
    """Return the exact sum of numbers; raises TypeError for anything but ints and floats."""
    kinds = set(map(type, numbers))
    if kinds == {int}:
        whole: int = sum(numbers)
        return whole
    if kinds == {float} and len(numbers) > _FEW:
        column = np.array(numbers, np.float64)
        if np.isfinite(column).all():
            return _sum_of_floats(column)
    total: ExactNumber = reduce(sum_of, map(exact, numbers))
    return total


def _sum_of_floats(column: np.ndarray[Any, np.dtype[np.float64]]) -> Fraction:
    """Return the exact sum of finite floats.

    The mantissas of each exponent are summed as integers, in halves of 32 bits that cannot overflow.
    """
    mantissas, exponents = np.frexp(column)
    wholes = np.ldexp(mantissas, _MANTISSA_BITS).astype(np.int64)
    total = Fraction(0)
    for exponent in np.unique(exponents).tolist():
        chosen = wholes[exponents == exponent]
        whole = (int((chosen >> 32).sum()) << 32) + int((chosen & 0xFFFFFFFF).sum())
        total += whole * Fraction(2) ** (exponent - _MANTISSA_BITS)
    return total


def rounded(number: ExactNumber) -> int | float:
    """Return an exact number as an int, or as the nearest float."""
    return as_float(number) if isinstance(number, Fraction) else number


def as_float(number: int | Fraction) -> float:
    """Return the nearest float, infinite beyond the largest one."""
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def packed_number(number: ExactNumber) -> bytes:
    """Return an exact number as bytes."""
    if isinstance(number, float):
        return _FLOAT + _DOUBLE.pack(number)
    if isinstance(number, int):
        return _INT + _packed_int(number)
    return _FRACTION + _SHIFT.pack(number.denominator.bit_length() - 1) + _packed_int(number.numerator)


def unpacked_number(data: bytes) -> ExactNumber:
    """Return the exact number of bytes; raises ValueError, IndexError or struct.error for other bytes."""
    kind, rest = data[:1], data[1:]
    if kind == _INT:
        return int.from_bytes(rest, "big", signed=True)
    if kind == _FRACTION:
        (shift,) = _SHIFT.unpack_from(rest)
        return Fraction(int.from_bytes(rest[_SHIFT.size :], "big", signed=True), 1 << shift)
    if kind == _FLOAT:
        number: float = _DOUBLE.unpack(rest)[0]
        return number
    raise ValueError(f"unknown kind of number {kind!r}")


def _packed_int(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
