"""Lists of values: the first ones up to a limit, and the largest ones. Their states are the lists."""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Callable
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Any

from penstock.aggregations.api import VR, Aggregation, V, check_part_of
from penstock.aggregations.default_value_serde import DefaultValueSerde
from penstock.aggregations.extremes import is_nan
from penstock.serdes import ListSerde, Serde


@dataclass(frozen=True, kw_only=True)
class _ManyValues(Aggregation[V, VR]):
    """The common base: the state is a list with at most `limit` entries."""

    limit: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.limit) is not int or self.limit < 1:
            raise ValueError(f"The number of values of {self} must be an int of at least 1, not {self.limit!r}.")

    def result(self, state: Any) -> Any:
        """Return the list."""
        return state

    def result_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of lists of the values."""
        return ListSerde(DefaultValueSerde() if part_serde is None else part_serde)


@dataclass(frozen=True, kw_only=True)
class Collect(_ManyValues[V, VR]):
    """The values in the order of processing; those after the first `limit` are left out."""

    def added_part(self, state: list[Any] | None, part: Any) -> list[Any]:
        """Return the state after `part`."""
        if state is None:
            return [part]
        return state if len(state) >= self.limit else [*state, part]

    def merged_states(self, one: list[Any], other: list[Any]) -> list[Any]:
        """Return the state of the values of both states."""
        return [*one, *other][: self.limit]


@dataclass(frozen=True, kw_only=True)
class Top(_ManyValues[V, VR]):
    """The largest values, in descending order; equal ones in the order of processing.

    Args:
        by: returns the value to compare; None compares the values themselves.
    """

    by: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by is not None:
            check_part_of(self.by, "by")

    def added_part(self, state: list[Any] | None, part: Any) -> list[Any] | None:
        """Return the state after `part`."""
        if is_nan(part if self.by is None else self.by(part)):
            return state
        larger = [] if state is None else list(state)
        insort_right(larger, part, key=self._descending)
        return larger[: self.limit]

    def merged_states(self, one: list[Any], other: list[Any]) -> list[Any]:
        """Return the state of the values of both states."""
        return list(islice(merge(one, other, key=self._descending), self.limit))

    def _descending(self, value: Any) -> _Descending:
        return _Descending(value if self.by is None else self.by(value))


class _Descending:
    """A value in descending order."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return bool(self.value > other.value)
