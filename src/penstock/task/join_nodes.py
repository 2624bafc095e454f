"""The nodes of a join of two streams, which run column by column together: each side reads what the other stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.processor.stream_join import StreamJoinWindow, StreamStreamInnerJoin
from penstock.processor.stream_join_columns import StreamJoinColumns
from penstock.task.error_handling import ErrorHandling
from penstock.task.processor_topology import ProcessorNode, ProcessorTopology

_Side = tuple[ProcessorNode, ProcessorNode, StreamJoinWindow, StreamStreamInnerJoin]


@dataclass(frozen=True)
class JoinNodes:
    """The nodes of one join.

    Args:
        windows: the nodes that store the records of each side, the left one first.
        joins: the nodes that join the records of each side.
        columns: joins rows of both sides.
    """

    windows: tuple[ProcessorNode, ProcessorNode]
    joins: tuple[ProcessorNode, ProcessorNode]
    columns: StreamJoinColumns

    @property
    def counted(self) -> frozenset[str]:
        """The names of the nodes and of their stores, which count dropped records."""
        return self.names.union(*(node.stores for node in (*self.windows, *self.joins)))

    @property
    def names(self) -> frozenset[str]:
        """The names of the nodes."""
        return frozenset(node.name for node in (*self.windows, *self.joins))


def join_nodes(topology: ProcessorTopology, errors: ErrorHandling) -> tuple[JoinNodes, ...]:
    """Return the joins whose nodes can run column by column.

    No other node uses their stores. The task fails with an error in these nodes, and does not write the records that
    they drop.
    """
    if errors.ask_in_order or errors.may_resume:
        return ()
    return tuple(join for join in _inner_joins(topology) if _are_alone(join, topology))


def _inner_joins(topology: ProcessorTopology) -> Iterator[JoinNodes]:
    sides: dict[str, dict[bool, _Side]] = {}
    for window in topology.processors:
        if not isinstance(window.processor, StreamJoinWindow) or len(window.children) != 1:
            continue
        (join,) = window.children
        if isinstance(join, ProcessorNode) and isinstance(join.processor, StreamStreamInnerJoin):
            side = join.processor.side
            sides.setdefault(side.join_name, {})[side.left] = window, join, window.processor, join.processor
    for found in sides.values():
        if len(found) == 2:
            left_window, left, stores_left, joins_left = found[True]
            right_window, right, stores_right, joins_right = found[False]
            columns = StreamJoinColumns((stores_left, stores_right), (joins_left, joins_right))
            yield JoinNodes((left_window, right_window), (left, right), columns)


def _are_alone(join: JoinNodes, topology: ProcessorTopology) -> bool:
    own = (*join.windows, *join.joins)
    stores = {name for node in own for name in node.stores}
    users = {node.name for node in topology.processors if not stores.isdisjoint(node.stores)}
    left, right = join.joins
    return users == join.names and left.children == right.children and not any(node.dropped_sinks for node in own)
