"""The graph that a StreamsBuilder is making: its nodes, its counter of names, and the shells (KStream, KTable ...)
that users hold.

The shells are made here from classes that the builder hands in, so that the modules of streams, tables and groups need
not import one another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.plan.names import InternalNameProvider
from penstock.plan.nodes import GraphNode, NodeId, Plan
from penstock.plan.user_lines import calling_line
from penstock.serdes import Serde

if TYPE_CHECKING:
    from penstock.dsl.grouped import KGroupedStream
    from penstock.dsl.grouped_table import KGroupedTable
    from penstock.dsl.options import Grouped
    from penstock.dsl.stream import KStream
    from penstock.dsl.table import KTable


@dataclass(frozen=True)
class Shells:
    """The classes of the things that users hold."""

    stream: Callable[..., KStream]
    table: Callable[..., KTable]
    grouped_stream: Callable[..., KGroupedStream]
    grouped_table: Callable[..., KGroupedTable]


class Graph:
    """The nodes that one StreamsBuilder has made so far (Kafka class: InternalStreamsBuilder)."""

    def __init__(self, shells: Shells) -> None:
        """Start without nodes."""
        self.names = InternalNameProvider()
        self._shells = shells
        self._nodes: dict[NodeId, GraphNode] = {}

    def plan(self) -> Plan:
        """Return the nodes created so far, in the order of creation."""
        return dict(self._nodes)

    def add(self, node: GraphNode) -> NodeId:
        """Add `node` and return its id."""
        id = len(self._nodes)
        self._nodes[id] = replace(node, line=calling_line())
        return id

    def node(self, id: NodeId) -> GraphNode:
        """Return the node `id`."""
        return self._nodes[id]

    def name_of(self, id: NodeId) -> str:
        """Return the name of the node `id`."""
        return self._nodes[id].name

    def replace(self, id: NodeId, node: GraphNode) -> None:
        """Replace the node `id` by `node`."""
        self._nodes[id] = node

    def move_to_end(self, id: NodeId) -> None:
        """Make the node `id` count as added last, as Kafka does with a repartition that a second operator shares."""
        self._nodes[id] = self._nodes.pop(id)

    def stream(
        self, id: NodeId, key_serde: Serde | None, value_serde: Serde | None, *, repartition_required: bool
    ) -> KStream:
        """Return the stream of the records of node `id`; repartition_required: whether its keys changed since its
        last topic.
        """
        return self._shells.stream(self, id, key_serde, value_serde, repartition_required)

    def table(
        self, id: NodeId, key_serde: Serde | None, value_serde: Serde | None, queryable_store_name: str | None
    ) -> KTable:
        """Return the table whose updates node `id` forwards."""
        return self._shells.table(self, id, key_serde, value_serde, queryable_store_name)

    def grouped_stream(
        self,
        id: NodeId,
        key_serde: Serde | None,
        value_serde: Serde | None,
        repartition_name: str | None,
        *,
        repartition_required: bool,
    ) -> KGroupedStream:
        """Return the records of node `id` grouped by their keys; repartition_name: as the user named it, None to name
        it after the store.
        """
        return self._shells.grouped_stream(self, id, key_serde, value_serde, repartition_name, repartition_required)

    def grouped_table(self, id: NodeId, grouped: Grouped) -> KGroupedTable:
        """Return the entries of node `id`, which have their new keys, with the options `grouped`."""
        return self._shells.grouped_table(self, id, grouped)
