"""The graph of a StreamsBuilder: its nodes, its name counter, and the users' shells (KStream, KTable ...).

The builder passes in the classes of the shells, so that the modules of streams, tables and groups need not import each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.errors import TopologyError
from penstock.extras import load
from penstock.notebook import Forms, failed
from penstock.plan.lower.plan import lower
from penstock.plan.names import InternalNameProvider
from penstock.plan.nodes import ForeachNode, GraphNode, NodeId, Plan, ProcessNode, RepartitionNode, TableSourceNode
from penstock.plan.optimize import optimize
from penstock.plan.topology import Topology
from penstock.plan.topology_config import TopologyConfig
from penstock.plan.user_lines import calling_line
from penstock.processor.api import ProcessorSupplier
from penstock.serdes import Serde

if TYPE_CHECKING:
    from penstock.dsl.grouped import KGroupedStream
    from penstock.dsl.grouped_table import KGroupedTable
    from penstock.dsl.options import Grouped
    from penstock.dsl.stream import KStream
    from penstock.dsl.table import KTable
    from penstock.host.inline.head import Head


@dataclass(frozen=True)
class Shells:
    """The classes of the users' objects."""

    stream: Callable[..., KStream]
    table: Callable[..., KTable]
    grouped_stream: Callable[..., KGroupedStream]
    grouped_table: Callable[..., KGroupedTable]


class Graph:
    """The nodes created so far by one StreamsBuilder (Kafka class: InternalStreamsBuilder).

    Args:
        shells: the classes of the users' objects.
        topology_config: the part of the configuration that is needed before the nodes become a topology.
    """

    def __init__(self, shells: Shells, topology_config: TopologyConfig | None) -> None:
        self.names = InternalNameProvider()
        self._shells = shells
        self._topology_config = topology_config
        self._nodes: dict[NodeId, GraphNode] = {}
        self._serdes: dict[NodeId, tuple[Serde | None, Serde | None]] = {}

    def plan(self) -> Plan:
        """Return the nodes created so far, in the order of creation."""
        return dict(self._nodes)

    def topology(self, optimizations: frozenset[str] = frozenset()) -> Topology:
        """Return the topology of the nodes created so far with these optimisations.

        Raises TopologyError if they are not a valid topology.
        """
        return lower(optimize(self.plan(), optimizations), self._topology_config)

    def forms(self, kind: str, id: NodeId, key_serde: Serde | None, value_serde: Serde | None) -> Forms:
        """Return the notebook display of a user's object, such as a KStream.

        It includes all nodes that lead to the node `id`.
        """
        title = f"{kind} {self.name_of(id)}"
        facts = {"keys": _name(key_serde), "values": _name(value_serde)}
        end = ForeachNode(name=f"{self.name_of(id)}-shown", action=lambda key, value: None)
        try:
            whole = self._ending_in(id, end)
        except TopologyError as error:
            return failed(title, error)
        return whole.upstream_of(*whole.parents_of(end.name)).describe().forms(title, facts)

    def head(
        self,
        id: NodeId,
        serdes: tuple[Serde | None, Serde | None],
        limit: int,
        config: StreamsConfig | Mapping[str, Any] | None,
        max_records: int,
        *between: GraphNode,
    ) -> Head[Any, Any]:
        """Return the first records of the node `id` with these `serdes`, after the nodes `between`.

        See `KStream.head`.
        """
        name = f"{self.name_of(id)}-head"

        def ending_in(supplier: ProcessorSupplier) -> Topology:
            end = ProcessNode(name=name, supplier=supplier, store_names=())
            return self._ending_in(id, *between, end).upstream_of(name)

        host = load("penstock.host.inline.head", "head()")
        records, read = host.first_records(ending_in, limit, config, max_records)
        head: Head[Any, Any] = host.Head(records, read, *serdes)
        return head

    def _ending_in(self, id: NodeId, *nodes: GraphNode) -> Topology:
        """Return the topology of a copy of this graph, with `nodes` added.

        They form a chain below the node `id`.
        """
        plan = dict(self._nodes)
        for node in nodes:
            following = len(plan)
            plan[following] = replace(node, parents=(id,))
            id = following
        return lower(optimize(plan, frozenset()), self._topology_config)

    def add(self, node: GraphNode) -> NodeId:
        """Add `node` and return its id."""
        id = len(self._nodes)
        self._nodes[id] = replace(node, line=calling_line())
        return id

    def node(self, id: NodeId) -> GraphNode:
        """Return the node `id`."""
        return self._nodes[id]

    def serdes_of(self, id: NodeId) -> tuple[Serde | None, Serde | None]:
        """Return the serdes of the keys and values of node `id`, None if unknown."""
        node = self._nodes[id]
        if isinstance(node, RepartitionNode | TableSourceNode):
            return node.key_serde, node.value_serde
        return self._serdes.get(id, (None, None))

    def name_of(self, id: NodeId) -> str:
        """Return the name of the node `id`."""
        return self._nodes[id].name

    def replace(self, id: NodeId, node: GraphNode) -> None:
        """Replace the node `id` by `node`."""
        self._nodes[id] = node

    def move_to_end(self, id: NodeId) -> None:
        """Make the node `id` the last one, as Kafka does with a shared repartition.

        The repartition moves when a second operator uses it.
        """
        self._nodes[id] = self._nodes.pop(id)

    def stream(
        self, id: NodeId, key_serde: Serde | None, value_serde: Serde | None, *, repartition_required: bool
    ) -> KStream:
        """Return the stream of a node's records.

        repartition_required: whether the keys changed since the last topic.
        """
        self._serdes[id] = key_serde, value_serde
        return self._shells.stream(self, id, key_serde, value_serde, repartition_required)

    def table(
        self, id: NodeId, key_serde: Serde | None, value_serde: Serde | None, queryable_store_name: str | None
    ) -> KTable:
        """Return the table with the updates of node `id`."""
        self._serdes[id] = key_serde, value_serde
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
        """Return the records of node `id` grouped by their keys.

        repartition_name: the user's name; None for a name derived from the store.
        """
        self._serdes[id] = key_serde, value_serde
        return self._shells.grouped_stream(self, id, key_serde, value_serde, repartition_name, repartition_required)

    def grouped_table(self, id: NodeId, grouped: Grouped) -> KGroupedTable:
        """Return the entries of node `id`, already with their new keys, with the options `grouped`."""
        return self._shells.grouped_table(self, id, grouped)


def _name(serde: Serde | None) -> str:
    return "default serde" if serde is None else type(serde.with_defaults(None, None)).__name__
