"""KGroupedStream: aggregations of records by key, each into a table with a store.

Every method adds nodes; nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, overload

from penstock.aggregations import Aggregation
from penstock.dsl.aggregate_builder import GroupedStreamAggregateBuilder
from penstock.dsl.arguments import check_windows, first, option
from penstock.dsl.cogrouped import CogroupedKStream
from penstock.dsl.count_windowed import CountWindowedKStream, checked_number
from penstock.dsl.functions import checked
from penstock.dsl.graph import Graph
from penstock.dsl.options import Materialized, Named, name_of
from penstock.dsl.ready_aggregation import ReadyAggregation, is_ready
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import VR, K, V
from penstock.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from penstock.plan import names, nodes
from penstock.serdes import Serde, Serdes
from penstock.serdes.annotated import serde_of_aggregate, serde_of_result
from penstock.state.api import StoreBuilder
from penstock.windows import SessionWindows, SlidingWindows, Windows

if TYPE_CHECKING:
    from penstock.dsl.table import KTable


class KGroupedStream(Shell, Generic[K, V]):
    """Records grouped by key (Kafka class: KGroupedStream).

    Created by `KStream.group_by` and `group_by_key`. Every aggregation drops records without key or value.

    The parameter `named` names the node of an operator: a string or `Named.as_("x")`; TopologyError if it is invalid.
    `materialized` configures the store of the table; a named store can be queried.

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
        self.aggregate_builder = GroupedStreamAggregateBuilder(
            graph, id, key_serde, value_serde, repartition_name, repartition_required
        )

    def count(self, materialized: Materialized | None = None, named: Named | str | None = None) -> KTable[K, int]:
        """Return the table of the number of records of each key, as an 8-byte integer."""
        if materialized is not None and option(materialized, Materialized()).user_store_name is None:
            self.aggregate_builder.graph.names.new_store_name(names.STREAM_AGGREGATE)  # Kafka takes this number twice
        store, queryable = self.aggregate_builder.store(materialized, names.STREAM_AGGREGATE, Serdes.long())
        name = self.aggregate_builder.graph.names.processor_name(name_of(named), names.STREAM_AGGREGATE)
        return self._aggregated(
            lambda parent: nodes.CountNode(name=name, parents=(parent,), store=store), store, queryable
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[K, V]:
        """Return the table of the combined values of each key.

        The aggregate starts as the first value and is updated by `reducer(aggregate, value)`; None deletes the key.
        """
        checked(reducer, "reducer(aggregate, value)")
        store, queryable = self.aggregate_builder.store(
            materialized, names.STREAM_REDUCE, first(self.aggregate_builder.value_serde, serde_of_result(reducer))
        )
        name = self.aggregate_builder.graph.names.processor_name(name_of(named), names.STREAM_REDUCE)
        return self._aggregated(
            lambda parent: nodes.ReduceNode(name=name, parents=(parent,), store=store, reducer=reducer),
            store,
            queryable,
        )

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
        aggregator: Callable[[K, V, VR], VR],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[K, VR]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        aggregator: Any = None,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[K, Any]:
        """Return the table of an aggregate of each key.

        It starts as `initializer()` and is updated by `aggregator(key, value, aggregate)`; None deletes the key.

        The serde of the aggregate comes from `materialized`, else from `default.value.serde`, else from the annotation
        of `aggregator` or `initializer`.

        Instead of the functions, a ready aggregation such as `aggregations.mean()` gives the table of its results. Its
        options are keywords.
        """
        if is_ready(initializer):
            value_serde = self.aggregate_builder.value_serde
            ready = ReadyAggregation.of(initializer, value_serde, materialized, aggregator)
            states = self._aggregate(initializer.initial, ready.adder, ready.store_serde, ready.store_options, named)
            return ready.results(states, named)
        checked(initializer, "initializer()")
        function = checked(aggregator, "aggregator(key, value, aggregate)")
        serde = serde_of_aggregate(initializer, function)
        return self._aggregate(initializer, function, serde, materialized, named)

    def _aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[..., Any],
        value_serde: Serde | None,
        materialized: Materialized | None,
        named: Named | str | None,
    ) -> KTable[K, Any]:
        store, queryable = self.aggregate_builder.store(materialized, names.STREAM_AGGREGATE, value_serde)
        name = self.aggregate_builder.graph.names.processor_name(name_of(named), names.STREAM_AGGREGATE)
        return self._aggregated(
            lambda parent: nodes.AggregateNode(
                name=name, parents=(parent,), store=store, initializer=initializer, aggregator=aggregator
            ),
            store,
            queryable,
        )

    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: Windows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Return the records grouped by key and window.

        The result is a SessionWindowedKStream for SessionWindows, otherwise a TimeWindowedKStream.
        """
        check_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self.aggregate_builder, windows)
        return TimeWindowedKStream(self.aggregate_builder, windows)

    def count_windows(self, n: int) -> CountWindowedKStream[K, V]:
        """Return the records grouped by key and into windows of `n` records of a key.

        The windows of a key follow each other: each record belongs to one. An aggregation gives one record for each
        full window.

        Args:
            n: number of records of a window, at least 1.

        Raises:
            TypeError: `n` is not an int.
            ValueError: `n` is less than 1.
        """
        return CountWindowedKStream(self.aggregate_builder, checked_number(n))

    def cogroup(self, aggregator: Callable[[K, V, VR], VR]) -> CogroupedKStream[K, VR]:
        """Return a cogroup that aggregates these records with `aggregator(key, value, aggregate)`.

        Add other groupings to it.
        """
        cogrouped: CogroupedKStream[K, VR] = CogroupedKStream(self.aggregate_builder.graph)
        return cogrouped.cogroup(self, aggregator)

    def _aggregated(
        self, make: Callable[[nodes.NodeId], nodes.GraphNode], store: StoreBuilder, queryable: str | None
    ) -> KTable:
        """Add the node that `make` returns for its parent, after a repartition if required."""
        return self.aggregate_builder.build(make, store, queryable, store.key_serde)
