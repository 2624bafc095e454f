"""Lowering of aggregations within windows, and of cogrouped streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from penstock.calendar_windows import CalendarWindows
from penstock.plan import nodes as n
from penstock.plan.lower.lowering import Lowering
from penstock.processor.added_values import AddedValues
from penstock.processor.aggregate import Aggregator, Initializer
from penstock.processor.api import Processor
from penstock.processor.column_aggregate import ColumnWindowAggregate
from penstock.processor.reduction import counted, initial_count
from penstock.processor.session_aggregate import FinalSessionWindowAggregate, SessionWindowAggregate
from penstock.processor.sliding_aggregate import FinalSlidingWindowAggregate, SlidingWindowAggregate
from penstock.processor.stateless import StreamMerge
from penstock.processor.windowed_aggregate import (
    FinalCalendarWindowAggregate,
    FinalTimeWindowAggregate,
    TimeWindowAggregate,
    TimeWindowCount,
)
from penstock.windows import EmitStrategy, TimeWindows


def add_window_node(lowering: Lowering, id: n.NodeId, node: n.WindowNode) -> None:
    """Add the processors and stores of `node` to the topology."""
    send_old_values = lowering.tables.sends_old_values(id)
    match node:
        case n.TimeWindowedCountNode():
            if node.emit_strategy is EmitStrategy.ON_WINDOW_CLOSE:
                _add_final(lowering, node, initial_count, counted)
            else:
                make = partial(TimeWindowCount, node.name, node.store.name, node.windows, send_old_values)
                lowering.add_processor(node, make, node.store)
        case n.TimeWindowedAggregateNode():
            if node.emit_strategy is EmitStrategy.ON_WINDOW_CLOSE:
                _add_final(lowering, node, node.initializer, node.aggregator)
            else:
                lowering.add_processor(node, _windowed(node, send_old_values), node.store)
        case n.SlidingWindowedAggregateNode():
            _add_sliding(lowering, node, send_old_values)
        case n.SessionWindowedAggregateNode():
            _add_sessions(lowering, node, send_old_values)
        case n.CogroupMergeNode():
            lowering.add_processor(node, StreamMerge)
            lowering.copartition(id)
        case _:
            assert_never(node)


def _windowed(node: n.TimeWindowedAggregateNode, send_old_values: bool) -> Callable[[], Processor]:
    """Return the factory of the aggregation `node`, which emits each update."""
    common = node.name, node.store.name, node.windows
    match node.aggregator:
        case AddedValues() as adder:
            return partial(ColumnWindowAggregate, *common, adder, send_old_values)
        case aggregator:
            return partial(TimeWindowAggregate, *common, node.initializer, aggregator, send_old_values)


def _add_final(
    lowering: Lowering,
    node: n.TimeWindowedCountNode | n.TimeWindowedAggregateNode,
    initializer: Initializer,
    aggregator: Aggregator,
) -> None:
    """Add an aggregation that emits results when windows close."""
    make: Callable[[], Processor]
    match node.windows:
        case TimeWindows() as windows:
            make = partial(FinalTimeWindowAggregate, node.name, node.store.name, windows, initializer, aggregator)
        case CalendarWindows() as windows:
            make = partial(FinalCalendarWindowAggregate, node.name, node.store.name, windows, initializer, aggregator)
        case _:
            raise ValueError(
                "ON_WINDOW_CLOSE strategy is only supported for TimeWindows, CalendarWindows and SlidingWindows for "
                "TimeWindowedKStream"
            )
    lowering.add_processor(node, make, node.store)


def _add_sliding(lowering: Lowering, node: n.SlidingWindowedAggregateNode, send_old_values: bool) -> None:
    common = node.name, node.store.name, node.windows, node.initializer, node.aggregator
    make: Callable[[], Processor] = (
        partial(FinalSlidingWindowAggregate, *common)
        if node.emit_strategy is EmitStrategy.ON_WINDOW_CLOSE
        else partial(SlidingWindowAggregate, *common, send_old_values)
    )
    lowering.add_processor(node, make, node.store)


def _add_sessions(lowering: Lowering, node: n.SessionWindowedAggregateNode, send_old_values: bool) -> None:
    common = node.name, node.store.name, node.windows, node.initializer, node.aggregator, node.merger
    make: Callable[[], Processor] = (
        partial(FinalSessionWindowAggregate, *common)
        if node.emit_strategy is EmitStrategy.ON_WINDOW_CLOSE
        else partial(SessionWindowAggregate, *common, send_old_values)
    )
    lowering.add_processor(node, make, node.store)
