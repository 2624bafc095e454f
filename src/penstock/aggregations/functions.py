"""The functions that create ready aggregations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Never, TypeVar, overload

from penstock.aggregations.api import Aggregation
from penstock.aggregations.combined import Combined
from penstock.aggregations.distinct import ApproxDistinct
from penstock.aggregations.extremes import First, Last, Max, Min
from penstock.aggregations.histogram import Quantiles
from penstock.aggregations.lists import Collect, Top
from penstock.aggregations.totals import Count, MeanAggregation, Sum

V = TypeVar("V")
VR = TypeVar("VR")


def count(of: Callable[[V], Any] | None = None) -> Aggregation[V, int]:
    """Return the number of values that are not None; without values it is 0.

    Args:
        of: returns the counted part of a value; None counts values.
    """
    return Count(of=of)


@overload
def sum() -> Aggregation[Any, Any]: ...
@overload
def sum(of: Callable[[V], VR | None]) -> Aggregation[V, VR]: ...
def sum(of: Callable[[Any], Any] | None = None) -> Aggregation[Any, Any]:
    """Return the sum of ints and floats.

    The sum is exact, and rounded once for the result: an int if all numbers are ints, else a float.

    Args:
        of: returns the number in a value; None for values that are numbers.
    """
    return Sum(of=of)


def mean(of: Callable[[V], float | None] | None = None) -> Aggregation[V, float]:
    """Return the arithmetic mean of ints and floats: the float nearest to the exact mean.

    Args:
        of: returns the number in a value; None for values that are numbers.
    """
    return MeanAggregation(of=of)


@overload
def min() -> Aggregation[Any, Any]: ...
@overload
def min(of: Callable[[V], VR | None]) -> Aggregation[V, VR]: ...
def min(of: Callable[[Any], Any] | None = None) -> Aggregation[Any, Any]:
    """Return the least value; floats that are not a number are skipped.

    Args:
        of: returns the compared part of a value, which is the result; None for whole values.
    """
    return Min(of=of)


@overload
def max() -> Aggregation[Any, Any]: ...
@overload
def max(of: Callable[[V], VR | None]) -> Aggregation[V, VR]: ...
def max(of: Callable[[Any], Any] | None = None) -> Aggregation[Any, Any]:
    """Return the largest value; floats that are not a number are skipped.

    Args:
        of: returns the compared part of a value, which is the result; None for whole values.
    """
    return Max(of=of)


@overload
def first() -> Aggregation[Any, Any]: ...
@overload
def first(of: Callable[[V], VR | None]) -> Aggregation[V, VR]: ...
def first(of: Callable[[Any], Any] | None = None) -> Aggregation[Any, Any]:
    """Return the value that is processed first; of merged sessions, that of the earlier session.

    Args:
        of: returns a part of a value, which is the result; None for whole values.
    """
    return First(of=of)


@overload
def last() -> Aggregation[Any, Any]: ...
@overload
def last(of: Callable[[V], VR | None]) -> Aggregation[V, VR]: ...
def last(of: Callable[[Any], Any] | None = None) -> Aggregation[Any, Any]:
    """Return the value that is processed last.

    Args:
        of: returns a part of a value, which is the result; None for whole values.
    """
    return Last(of=of)


@overload
def collect(*, limit: int = 1000) -> Aggregation[Any, list[Any]]: ...
@overload
def collect(of: Callable[[V], VR | None], *, limit: int = 1000) -> Aggregation[V, list[VR]]: ...
def collect(of: Callable[[Any], Any] | None = None, *, limit: int = 1000) -> Aggregation[Any, list[Any]]:
    """Return the list of the values in the order of processing; merged sessions in the order of time.

    Args:
        of: returns a part of a value, which is the entry; None for whole values.
        limit: the largest number of values; later ones are left out.

    Raises:
        ValueError: `limit` is less than 1.
    """
    return Collect(of=of, limit=limit)


@overload
def top(n: int) -> Aggregation[Any, list[Any]]: ...
@overload
def top(n: int, by: Callable[[V], Any]) -> Aggregation[V, list[V]]: ...
def top(n: int, by: Callable[[Any], Any] | None = None) -> Aggregation[Any, list[Any]]:
    """Return the list of the `n` largest values, in descending order; of equal ones the first.

    Args:
        n: the largest number of values.
        by: returns the compared part of a value; None compares whole values.

    Raises:
        ValueError: `n` is less than 1.
    """
    return Top(limit=n, by=by)


def approx_distinct(of: Callable[[V], Any] | None = None) -> Aggregation[V, int]:
    """Return the approximate number of distinct values, with a standard error of 1.6 %.

    The values are str, bytes, int, float, UUID or tuples of these. The state, of HyperLogLog, has at most 4 KiB.

    Args:
        of: returns the counted part of a value; None counts whole values.
    """
    return ApproxDistinct(of=of)


def quantiles(at: Sequence[float], of: Callable[[V], float | None] | None = None) -> Aggregation[V, list[float]]:
    """Return approximate quantiles of ints and floats, with a relative error of at most 0.4 %.

    Whole numbers up to 256 are exact. Floats that are not a number are skipped.

    Args:
        at: the shares of the values, each from 0 to 1, such as [0.5, 0.99]; the results have the same order.
        of: returns the number in a value; None for values that are numbers.

    Raises:
        TypeError: the shares are no sequence.
        ValueError: there are no shares, or one is outside of 0 to 1.
    """
    given: Any = at  # users need not run a type checker
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise TypeError(f"Expected a list of shares for quantiles(), such as quantiles([0.5]), got {given!r}.")
    return Quantiles(of=of, at=tuple(at))


def combined(*unnamed: Never, **aggregations: Aggregation[V, Any]) -> Aggregation[V, dict[str, Any]]:
    """Return several aggregations as one, whose result is a dict of their results.

    Args:
        unnamed: nothing; it makes the error for an aggregation without a name.
        aggregations: the aggregations by name, such as `total=aggregations.sum(), number=aggregations.count()`.

    Raises:
        TypeError: there are no aggregations, or an argument is not one.
    """
    if unnamed:
        raise TypeError(
            f"combined() takes aggregations by name, since its result is a dict, got {unnamed[0]!s} without one: write "
            "combined(number=aggregations.count()), for example."
        )
    return Combined(aggregations=aggregations)
