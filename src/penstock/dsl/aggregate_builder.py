"""Adds aggregations of grouped records to the graph, with a repartition if required."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.dsl.arguments import option
from penstock.dsl.graph import Graph
from penstock.dsl.options import Materialized
from penstock.plan import nodes
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder

if TYPE_CHECKING:
    from penstock.dsl.table import KTable


class GroupedStreamAggregateBuilder:
    """The grouped records of an aggregation (Kafka class: GroupedStreamAggregateBuilder).

    Args:
        graph: the graph.
        id: the node with the records.
        key_serde, value_serde: their serdes.
        repartition_name: the user's name of the repartition; None for a name derived from the store.
        repartition_required: whether the keys may have changed.
    """

    def __init__(
        self,
        graph: Graph,
        id: nodes.NodeId,
        key_serde: Serde | None,
        value_serde: Serde | None,
        repartition_name: str | None,
        repartition_required: bool,
    ) -> None:
        self.graph = graph
        self.id = id
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.repartition_required = repartition_required
        self._repartition_name = repartition_name
        self._shared_repartition: nodes.NodeId | None = None

    def build(
        self,
        make: Callable[[nodes.NodeId], nodes.GraphNode],
        store: StoreBuilder,
        queryable: str | None,
        key_serde: Serde | None,
    ) -> KTable:
        """Add the node that `make` returns for its parent, after a repartition if required.

        Returns the table of the node, with keys of `key_serde`.
        """
        return self.graph.table(self.add(make, store), key_serde, store.value_serde, queryable)

    def add(self, make: Callable[[nodes.NodeId], nodes.GraphNode], store: StoreBuilder) -> nodes.NodeId:
        """Like `build`, but return the id of the node."""
        parent = self._repartition(store.name) if self.repartition_required else self.id
        return self.graph.add(make(parent))

    def store(
        self, materialized: Materialized | None, prefix: str, value_serde: Serde | None
    ) -> tuple[StoreBuilder, str | None]:
        """Return the store of an aggregation without time windows, and its name if the user set it."""
        options = option(materialized, Materialized())
        queryable = options.user_store_name
        name = self.graph.names.new_store_name(prefix) if queryable is None else queryable
        return options.store_builder(name, self.key_serde, value_serde), queryable

    def new_repartition(self, store_name: str) -> nodes.RepartitionNode:
        """Return a repartition of the records, not added yet.

        Its names take three numbers of the counter.
        """
        prefix = self._repartition_name or store_name
        return nodes.RepartitionNode.below(self.id, prefix, self.graph.names, self.key_serde, self.value_serde)

    def _repartition(self, store_name: str) -> nodes.NodeId:
        """Return the repartition before an aggregation.

        It is the aggregation's own, or shared by all aggregations if the user named it.
        """
        node = self.new_repartition(store_name)
        if self._shared_repartition is not None:
            self.graph.move_to_end(self._shared_repartition)
            return self._shared_repartition
        id = self.graph.add(node)
        if self._repartition_name is not None:
            self._shared_repartition = id
        return id
