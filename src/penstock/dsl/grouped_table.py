"""KGroupedTable: aggregations of table entries by another key, each into a table with a store.

Every method adds nodes; nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, overload

from penstock.aggregations import Aggregation
from penstock.dsl.arguments import option
from penstock.dsl.functions import checked
from penstock.dsl.graph import Graph
from penstock.dsl.options import Grouped, Materialized, Named, name_of
from penstock.dsl.ready_aggregation import ReadyAggregation, is_ready
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import VR, K, V
from penstock.plan import names, nodes
from penstock.plan.internal_topics import REPARTITION_SUFFIX
from penstock.serdes import Serde, Serdes
from penstock.serdes.annotated import serde_of_aggregate
from penstock.state.api import StoreBuilder

if TYPE_CHECKING:
    from penstock.dsl.table import KTable


@dataclass(frozen=True)
class _Place:
    """The place of an aggregation: its store, the queryable name, its name, the node above it."""

    store: StoreBuilder
    queryable_store_name: str | None
    name: str
    parent: nodes.NodeId


class KGroupedTable(Shell, Generic[K, V]):
    """The entries of a table grouped by another key (Kafka class: KGroupedTable).

    Created by `KTable.group_by`. When an entry changes, its old value is subtracted from the aggregate of its group and
    the new one is added. The parameter `named` names the node of an operator: a string or `Named.as_("x")`;
    TopologyError if it is invalid. `materialized` configures the store of the table; a named store can be queried.

    Args:
        graph: the graph.
        id: the node with the entries.
        grouped: the options of the grouping.
    """

    def __init__(self, graph: Graph, id: nodes.NodeId, grouped: Grouped) -> None:
        self._graph = graph
        self._id = id
        self._grouped = grouped
        self._shared_repartition: nodes.NodeId | None = None

    def count(self, materialized: Materialized | None = None, named: Named | str | None = None) -> KTable[K, int]:
        """Return the table of the number of entries of each group, as an 8-byte integer."""
        place = self._place(named, materialized, names.TABLE_AGGREGATE, Serdes.long())
        return self._table(nodes.TableCountNode(name=place.name, parents=(place.parent,), store=place.store), place)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[K, V]:
        """Return the table of the combined values of each group.

        The aggregate starts as the first value and is updated by `adder(aggregate, value)` for new values and
        `subtractor(aggregate, value)` for old ones; None deletes the group.
        """
        checked(adder, "adder(aggregate, value)")
        checked(subtractor, "subtractor(aggregate, value)")
        place = self._place(named, materialized, names.TABLE_REDUCE, self._grouped.value_serde)
        node = nodes.TableReduceNode(
            name=place.name, parents=(place.parent,), store=place.store, adder=adder, subtractor=subtractor
        )
        return self._table(node, place)

    @overload
    def aggregate(
        self,
        initializer: Aggregation[V, VR],
        /,
        *,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[K, VR]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], VR],
        adder: Callable[[K, V, VR], VR],
        subtractor: Callable[[K, V, VR], VR],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[K, VR]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        adder: Any = None,
        subtractor: Any = None,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[K, Any]:
        """Return the table of an aggregate of each group.

        It starts as `initializer()` and is updated by `adder(key, value, aggregate)` for new values and
        `subtractor(key, value, aggregate)` for old ones; None deletes the group.

        The serde of the aggregate comes from `materialized`, else from `default.value.serde`, else from the annotation
        of `adder`, `subtractor` or `initializer`.

        Instead of the functions, a ready aggregation such as `aggregations.mean()` gives the table of its results. Its
        options are keywords.
        """
        if is_ready(initializer):
            ready = ReadyAggregation.of(initializer, self._grouped.value_serde, materialized, adder, subtractor)
            subtract, serde, options = ready.subtractor, ready.store_serde, ready.store_options
            states = self._aggregate(initializer.initial, ready.adder, subtract, serde, options, named)
            return ready.results(states, named)
        checked(initializer, "initializer()")
        adding = checked(adder, "adder(key, value, aggregate)")
        subtracting = checked(subtractor, "subtractor(key, value, aggregate)")
        value_serde = serde_of_aggregate(initializer, adding, subtracting)
        return self._aggregate(initializer, adding, subtracting, value_serde, materialized, named)

    def _aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[..., Any],
        subtractor: Callable[..., Any],
        value_serde: Serde | None,
        materialized: Materialized | None,
        named: Named | str | None,
    ) -> KTable[K, Any]:
        place = self._place(named, materialized, names.TABLE_AGGREGATE, value_serde)
        node = nodes.TableAggregateNode(
            name=place.name,
            parents=(place.parent,),
            store=place.store,
            initializer=initializer,
            adder=adder,
            subtractor=subtractor,
        )
        return self._table(node, place)

    def _place(
        self, named: Named | str | None, materialized: Materialized | None, prefix: str, value_serde: Serde | None
    ) -> _Place:
        """Return the place of an aggregation, below a repartition.

        The repartition is the aggregation's own, or shared by all aggregations if the user named it.
        """
        options, provider, name = option(materialized, Materialized()), self._graph.names, name_of(named)
        queryable = options.user_store_name
        store_name = provider.new_store_name(names.TABLE_AGGREGATE) if queryable is None else queryable
        store = options.store_builder(store_name, self._grouped.key_serde, value_serde)
        sink_name = provider.suffixed_name(name, "-sink", names.STREAM_SINK)
        source_name = provider.suffixed_name(name, "-source", names.STREAM_SOURCE)
        node_name = provider.processor_name(name, prefix)
        if self._shared_repartition is not None:
            self._graph.move_to_end(self._shared_repartition)
            return _Place(store, queryable, node_name, self._shared_repartition)
        id = self._graph.add(
            nodes.GroupedTableRepartitionNode(
                name=source_name,
                parents=(self._id,),
                sink_name=sink_name,
                topic=(self._grouped.name or store_name) + REPARTITION_SUFFIX,
                key_serde=self._grouped.key_serde,
                value_serde=self._grouped.value_serde,
            )
        )
        if self._grouped.name is not None:
            self._shared_repartition = id
        return _Place(store, queryable, node_name, id)

    def _table(self, node: nodes.GraphNode, place: _Place) -> KTable:
        return self._graph.table(
            self._graph.add(node), place.store.key_serde, place.store.value_serde, place.queryable_store_name
        )
