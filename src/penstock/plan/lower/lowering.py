"""The common state of lowering: the new topology and its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.plan import nodes as n
from penstock.plan.lower.table_facts import TableFacts
from penstock.plan.topology import Topology
from penstock.plan.topology_config import TopologyConfig
from penstock.plan.upstream import broadcast_names, keeping_null_keys, source_names
from penstock.processor.api import Processor, SimpleSupplier
from penstock.state.api import StoreBuilder


class Lowering:
    """A topology under construction.

    Args:
        plan: the plan to lower.
        topology_config: the configuration needed during construction, or None.
    """

    def __init__(self, plan: n.Plan, topology_config: TopologyConfig | None) -> None:
        self.plan = plan
        self.topology = Topology(topology_config)
        self.tables = TableFacts(plan)
        self.keeping_null_keys = keeping_null_keys(plan)
        self._broadcasts = broadcast_names(plan)

    def parents(self, node: n.BaseNode) -> list[str]:
        """Return the names of the parents of `node`."""
        return [self.plan[parent].name for parent in node.parents]

    def copartition(self, *ids: n.NodeId, source: str | None = None) -> None:
        """Require equal numbers of partitions for the sources of `ids` and the source node `source`.

        Except for broadcasts: their records meet those of any key.
        """
        own = () if source is None else (source,)
        sources = {name for id in ids for name in source_names(self.plan, id)} - self._broadcasts
        self.topology.copartition_sources(sources.union(own))

    def broadcasts_above(self, id: n.NodeId) -> list[str]:
        """Return the names of the broadcasts whose records reach the node `id` without another topic."""
        return sorted(source_names(self.plan, id) & self._broadcasts)

    def add_processor(self, node: n.BaseNode, factory: Callable[[], Processor], *stores: StoreBuilder) -> None:
        """Add a processor for `node`, below its parents.

        Args:
            node: the node, which names the processor.
            factory: makes the processors.
            stores: stores to add and connect to the processor.
        """
        self.add_processor_below(node.name, self.parents(node), factory, *stores)

    def add_processor_below(
        self, name: str, parents: Iterable[str], factory: Callable[[], Processor], *stores: StoreBuilder
    ) -> None:
        """Add a processor below the nodes `parents`.

        Args:
            name: the name of the processor.
            parents: the names of its parents.
            factory: makes the processors.
            stores: stores to add and connect to the processor.
        """
        self.topology.add_processor(name, SimpleSupplier(factory, stores), *parents)
