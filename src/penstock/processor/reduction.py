"""Counts and reductions as aggregations: the functions that their operators run instead of a user's initializer,
aggregator and merger. They are next to the operators, because workers load both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def initial_count() -> int:
    """Return the count of a window without records."""
    return 0


def counted(key: Any, value: Any, count: int) -> int:
    """Return the count of a window with one more record."""
    return count + 1


def merged_counts(key: Any, one: int, other: int) -> int:
    """Return the count of two sessions together."""
    return one + other


def no_aggregate() -> None:
    """Start a reduction without an aggregate: the first value is kept unchanged."""


@dataclass(frozen=True)
class Reduction:
    """A reducer as an aggregator; the first value is kept unchanged."""

    reducer: Callable[[Any, Any], Any]

    @property
    def __wrapped__(self) -> Callable[[Any, Any], Any]:
        """The user's function, as `functools.wraps` keeps it."""
        return self.reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate with `value`."""
        return value if aggregate is None else self.reducer(aggregate, value)


@dataclass(frozen=True)
class MergedReduction:
    """A reducer as the merger of two sessions."""

    reducer: Callable[[Any, Any], Any]

    @property
    def __wrapped__(self) -> Callable[[Any, Any], Any]:
        """The user's function, as `functools.wraps` keeps it."""
        return self.reducer

    def __call__(self, key: Any, one: Any, other: Any) -> Any:
        """Return the aggregate of two sessions together; `one` is None if there is only the record."""
        return other if one is None else self.reducer(one, other)
