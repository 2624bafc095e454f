"""Aggregations of windows of n records per key: their aggregators, and the results of full windows.

Rules:
- A store has the latest window of each key. A full one stays until the next record of its key, which begins a window.
- A window is full as soon as it has at least n records, so a smaller n closes open windows with their next record.

The functions are next to the operators because workers load both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.windows import CountWindow


@dataclass(frozen=True)
class CountWindowAdder:
    """The aggregator of windows of `n` records; a window may be without an aggregate.

    Args:
        n: number of records of a window.
        initializer: returns the first aggregate of a window.
        aggregator: returns the next aggregate from key, value and aggregate.
    """

    n: int
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]

    def initial(self) -> CountWindow[Any]:
        """Return a window without records."""
        return CountWindow(0, False, self.initializer())

    def __call__(self, key: Any, value: Any, window: CountWindow[Any]) -> CountWindow[Any] | None:
        """Return the window of the key after `value`; None deletes it."""
        current = self.initial() if window.is_full else window
        number = current.count + 1
        return CountWindow(number, number >= self.n, self.aggregator(key, value, current.aggregate))


@dataclass(frozen=True)
class CountWindowFunction(CountWindowAdder):
    """The aggregator of windows with a user's function, whose None deletes the window."""

    @property
    def __wrapped__(self) -> Callable[[Any, Any, Any], Any]:
        """The user's function, as with `functools.wraps`."""
        return self.aggregator

    def __call__(self, key: Any, value: Any, window: CountWindow[Any]) -> CountWindow[Any] | None:
        """Return the window of the key after `value`, or None."""
        updated = super().__call__(key, value, window)
        return None if updated is None or updated.aggregate is None else updated


@dataclass(frozen=True)
class FullWindows:
    """Maps updates of windows to the results of full ones.

    Args:
        result: returns the result of an aggregate; None for a window without one.
    """

    result: Callable[[Any], Any]

    def __call__(self, window: CountWindow[Any] | None) -> tuple[Any, ...]:
        """Return the result of a full window; no result of another one, or of a deleted one."""
        if window is None or not window.is_full:
            return ()
        result = self.result(window.aggregate)
        return () if result is None else (result,)


def aggregate_of(aggregate: Any) -> Any:
    """Return the aggregate of a user's function, which is the result."""
    return aggregate
