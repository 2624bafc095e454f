"""Ready aggregations as the functions of operators: aggregator, merger and subtractor.

They are next to the operators because workers load both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.aggregations import Aggregation


@dataclass(frozen=True)
class AddedValues:
    """The aggregator of an aggregation."""

    aggregation: Aggregation[Any, Any]

    def __call__(self, key: Any, value: Any, state: Any) -> Any:
        """Return the state after `value`."""
        return self.aggregation.added(state, value)


@dataclass(frozen=True)
class MergedStates:
    """The merger of an aggregation for two sessions."""

    aggregation: Aggregation[Any, Any]

    def __call__(self, key: Any, one: Any, other: Any) -> Any:
        """Return the state of both sessions."""
        return self.aggregation.merged(one, other)


@dataclass(frozen=True)
class SubtractedValues:
    """The subtractor of an aggregation of a table."""

    aggregation: Aggregation[Any, Any]

    def __call__(self, key: Any, value: Any, state: Any) -> Any:
        """Return the state without `value`."""
        return self.aggregation.subtracted(state, value)
