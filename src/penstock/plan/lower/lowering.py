"""What the lowering of every family of nodes needs: the topology that is made and the plan that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.plan import nodes as n
from penstock.plan.lower.table_facts import TableFacts
from penstock.plan.topology import Topology
from penstock.plan.topology_config import TopologyConfig
from penstock.plan.upstream import keeping_null_keys
from penstock.processor.api import Processor, SimpleSupplier
from penstock.state.api import StoreBuilder


class Lowering:
    """A topology in the making."""

    def __init__(self, plan: n.Plan, topology_config: TopologyConfig | None) -> None:
        """Start with an empty topology for `plan`."""
        self.plan = plan
        self.topology = Topology(topology_config)
        self.tables = TableFacts(plan)
        self.keeping_null_keys = keeping_null_keys(plan)

    def parents(self, node: n.GraphNode) -> list[str]:
        """Return the names of the nodes that `node` hangs on."""
        return [self.plan[parent].name for parent in node.parents]

    def add_processor(self, node: n.GraphNode, factory: Callable[[], Processor], *stores: StoreBuilder) -> None:
        """Add the processors that `factory` makes under the name of `node` and below its parents; `stores` are added
        and connected to it."""
        self.add_processor_below(node.name, self.parents(node), factory, *stores)

    def add_processor_below(
        self, name: str, parents: Iterable[str], factory: Callable[[], Processor], *stores: StoreBuilder
    ) -> None:
        """Add the processors that `factory` makes under `name` and below the nodes `parents`; `stores` are added and
        connected to it."""
        self.topology.add_processor(name, SimpleSupplier(factory, stores), *parents)
