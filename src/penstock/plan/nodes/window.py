"""Nodes of aggregations within windows, and of cogrouped streams.

Plain data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.plan.nodes.base import BaseNode
from penstock.state.api import StoreBuilder
from penstock.windows import EmitStrategy, SessionWindows, SlidingWindows, Windows


@dataclass(frozen=True, kw_only=True)
class WindowedTableNode(BaseNode):
    """A table with results per key and window."""

    store: StoreBuilder
    emit_strategy: EmitStrategy


@dataclass(frozen=True, kw_only=True)
class TimeWindowedCountNode(WindowedTableNode):
    """A table with the number of records per key and window."""

    windows: Windows


@dataclass(frozen=True, kw_only=True)
class TimeWindowedAggregateNode(WindowedTableNode):
    """A table with an aggregate per key and window."""

    windows: Windows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class SlidingWindowedAggregateNode(WindowedTableNode):
    """A table with an aggregate per key and sliding window."""

    windows: SlidingWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class SessionWindowedAggregateNode(WindowedTableNode):
    """A table with an aggregate per key and session.

    Args:
        merger: combines the aggregates of two sessions.
    """

    windows: SessionWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class CogroupMergeNode(BaseNode):
    """The table made by several aggregations of one store: the updates of all parents.

    Kafka class: KTablePassThrough.
    """

    store: StoreBuilder


WindowNode = (
    TimeWindowedCountNode
    | TimeWindowedAggregateNode
    | SlidingWindowedAggregateNode
    | SessionWindowedAggregateNode
    | CogroupMergeNode
)
"""One aggregation within windows, or the merge of cogrouped streams."""
