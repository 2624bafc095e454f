"""Counts and reductions as aggregations.

Contains the functions that their operators run instead of a user's initializer, aggregator and merger. They are next to
the operators because workers load both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def initial_count() -> int:
    """Return the count of a window without records."""
    return 0


def counted(key: Any, value: Any, count: int) -> int:
    """Return the count of a window after one more record."""
    return count + 1


def merged_counts(key: Any, one: int, other: int) -> int:
    """Return the total count of two sessions."""
    return one + other


def no_aggregate() -> None:
    """Start a reduction without an aggregate: the first value is stored unchanged."""


@dataclass(frozen=True)
class Reduction:
    """A reducer as an aggregator; the first value is stored unchanged."""

    reducer: Callable[[Any, Any], Any]

    @property
    def __wrapped__(self) -> Callable[[Any, Any], Any]:
        """The user's function, as with `functools.wraps`."""
        return self.reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate after `value`."""
        return value if aggregate is None else self.reducer(aggregate, value)


@dataclass(frozen=True)
class MergedReduction:
    """A reducer as the merger of two sessions."""

    reducer: Callable[[Any, Any], Any]

    @property
    def __wrapped__(self) -> Callable[[Any, Any], Any]:
        """The user's function, as with `functools.wraps`."""
        return self.reducer

    def __call__(self, key: Any, one: Any, other: Any) -> Any:
        """Return the combined aggregate of two sessions; `one` is None for a single record."""
        return other if one is None else self.reducer(one, other)
