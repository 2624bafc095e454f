"""Quantiles of numbers, from a histogram.

Each number is rounded to eight significant binary digits: the relative error is at most 2^-8 (0.4 %), and whole numbers
up to 256 are exact. The bins do not depend on the order of the numbers, and numbers can be subtracted.

Source: the bins of HdrHistogram, for all floats; a bin is the beginning of a float's IEEE 754 form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar, Final

import numpy as np

from penstock.aggregations.api import Aggregation, V
from penstock.aggregations.exact_number import as_float, exact
from penstock.aggregations.extremes import is_nan
from penstock.aggregations.state_serde import StateSerde
from penstock.record import Int64Array
from penstock.serdes import DoubleSerde, ListSerde, Serde

_CUT_BITS: Final = 45
_HALF: Final = 1 << (_CUT_BITS - 1)
_ENTRY: Final = np.dtype([("bin", ">i4"), ("count", ">u8")])


@dataclass(frozen=True)
class Histogram:
    """The state of quantiles: the number of values in each bin, ordered by bin.

    Args:
        bins: rounded values as the beginning of their IEEE 754 form; the complement for negative values.
        counts: the number of values in each bin.
    """

    bins: tuple[int, ...]
    counts: tuple[int, ...]

    def quantile(self, share: float) -> float:
        """Return the least rounded value with at least `share` (0 to 1) of all values up to it."""
        totals = np.cumsum(np.array(self.counts, np.int64))
        rank = max(1, ceil(Fraction(repr(share)) * int(totals[-1])))  # as written: 0.1 of 30 values are 3
        return _value_of(self.bins[int(np.searchsorted(totals, rank))])


@dataclass(frozen=True, kw_only=True)
class Quantiles(Aggregation[V, list[float]]):
    """Approximate quantiles of numbers; its state is a Histogram.

    Args:
        at: the shares of the values, each from 0 to 1.
    """

    at: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.at or not all(0 <= share <= 1 for share in self.at):
            raise ValueError(f"Expected shares from 0 to 1 for quantiles(), such as [0.5, 0.99], got {self.at!r}.")

    @property
    def subtractable(self) -> bool:
        """Whether values can be subtracted."""
        return True

    def takes_column(self, parts: Sequence[Any], reads_back: Callable[[type], bool]) -> bool:
        """Return whether all parts have an order."""
        return not any(map(is_nan, parts))

    def result(self, state: Histogram | None) -> list[float] | None:
        """Return the value of each quantile."""
        return None if state is None else [state.quantile(share) for share in self.at]

    def state_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of Histogram."""
        return HistogramSerde()

    def result_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of lists of 8-byte floating-point numbers."""
        return ListSerde(DoubleSerde())

    def added_column(self, state: Histogram | None, parts: Sequence[Any]) -> Histogram | None:
        """Return the state after `parts`."""
        column = _column_of(parts)
        bins, counts = np.unique(_bins_of(column[~np.isnan(column)]), return_counts=True)
        return self._combined(state, bins, counts) if len(bins) else state

    def added_part(self, state: Histogram | None, part: Any) -> Histogram | None:
        """Return the state after `part`."""
        return self.added_column(state, [part])

    def merged_states(self, one: Histogram, other: Histogram) -> Histogram | None:
        """Return the state of the values of both states."""
        return self._combined(one, np.array(other.bins, np.int64), np.array(other.counts, np.int64))

    def subtracted_part(self, state: Histogram, part: Any) -> Histogram | None:
        """Return the state without `part`."""
        bins = _bins_of(_column_of([part]))
        return self._combined(state, bins, -np.ones(1, np.int64))

    @staticmethod
    def _combined(state: Histogram | None, bins: Int64Array, counts: Int64Array) -> Histogram | None:
        """Return the state with `counts` added to `bins`; None if no values remain."""
        if state is not None:
            all_bins = np.concatenate([np.array(state.bins, np.int64), bins])
            all_counts = np.concatenate([np.array(state.counts, np.int64), counts])
            bins, places = np.unique(all_bins, return_inverse=True)
            counts = np.zeros(len(bins), np.int64)
            np.add.at(counts, places, all_counts)
            bins, counts = bins[counts > 0], counts[counts > 0]
        return Histogram(tuple(bins.tolist()), tuple(counts.tolist())) if len(bins) else None


class HistogramSerde(StateSerde):
    """The serde of Histogram: each bin in 4 bytes, and its number of values in 8."""

    kind: ClassVar[bytes] = b"H"
    aggregation: ClassVar[str] = "quantiles"
    unchanging_types = frozenset({Histogram})

    def _packed(self, topic: str, state: Histogram) -> bytes:
        entries = np.empty(len(state.bins), _ENTRY)
        entries["bin"], entries["count"] = state.bins, state.counts
        return entries.tobytes()

    def _unpacked(self, topic: str, data: bytes) -> Histogram:
        entries = np.frombuffer(data, _ENTRY)
        return Histogram(tuple(entries["bin"].tolist()), tuple(entries["count"].tolist()))


def _column_of(parts: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return numbers as floats; raises TypeError for anything but ints and floats."""
    if not set(map(type, parts)) <= {int, float}:
        parts = [exact(part) for part in parts]
    return np.array([part if type(part) is float else as_float(part) for part in parts], np.float64)


def _bins_of(column: np.ndarray[Any, np.dtype[np.float64]]) -> Int64Array:
    """Return the bin of each number: its form in IEEE 754, rounded; the larger bin of two equally near ones."""
    magnitudes = (np.abs(column).view(np.int64) + _HALF) >> _CUT_BITS
    bins: Int64Array = np.where(column < 0, ~magnitudes, magnitudes)
    return bins


def _value_of(bin: int) -> float:
    magnitude = float(np.array([(~bin if bin < 0 else bin) << _CUT_BITS], np.int64).view(np.float64)[0])
    return -magnitude if bin < 0 else magnitude
