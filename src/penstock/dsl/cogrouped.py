"""CogroupedKStream and its windowed forms: several grouped streams aggregated into one table.

The table has one store. Every method adds nodes; nothing runs. Each stream becomes a separate aggregation on the store;
a node below merges their updates. All streams must have the same keys and equal numbers of partitions. The parameter
`named` is the prefix of the names of all these nodes: a string or `Named.as_("x")`; TopologyError if it is invalid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, overload

from penstock.dsl.aggregate_builder import GroupedStreamAggregateBuilder
from penstock.dsl.arguments import check_windows, first, option
from penstock.dsl.functions import checked
from penstock.dsl.graph import Graph
from penstock.dsl.options import Materialized, Named, name_of
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import VR, K, V
from penstock.dsl.window_stores import session_store, session_table_serde, window_store, window_table_serde
from penstock.dsl.windowed import windowed_aggregate
from penstock.plan import names, nodes
from penstock.serdes import Serde
from penstock.serdes.annotated import serde_of_aggregate
from penstock.state.api import StoreBuilder
from penstock.windows import EmitStrategy, SessionWindows, SlidingWindows, Windowed, Windows

if TYPE_CHECKING:
    from penstock.dsl.grouped import KGroupedStream
    from penstock.dsl.table import KTable

Aggregator = Callable[[Any, Any, Any], Any]


class _CogroupedStreams:
    """The streams of one cogroup with their aggregators and repartitions.

    Kafka class: CogroupedStreamAggregateBuilder.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._aggregators: dict[GroupedStreamAggregateBuilder, Aggregator] = {}
        self._parents: dict[GroupedStreamAggregateBuilder, nodes.NodeId] = {}

    def add(self, stream: GroupedStreamAggregateBuilder, aggregator: Aggregator) -> None:
        """Add a stream, or replace the aggregator of an existing one."""
        self._aggregators[stream] = aggregator

    def store_name(self, options: Materialized) -> str:
        """Return the user's name of the store, or a generated one."""
        return options.user_store_name or self.graph.names.new_store_name(names.COGROUP_AGGREGATE)

    def key_serde(self) -> Serde | None:
        """Return the serde of the keys of the first stream that has one."""
        return first(*(stream.key_serde for stream in self._aggregators))

    def value_serde(self, initializer: Callable[[], Any], *mergers: Callable[..., Any]) -> Serde | None:
        """Return the aggregate serde selected by the functions' annotations."""
        return serde_of_aggregate(initializer, *self._aggregators.values(), *mergers)

    def build(
        self,
        make: Callable[[str, nodes.NodeId, Aggregator], nodes.GraphNode],
        store: StoreBuilder,
        queryable: str | None,
        key_serde: Serde | None,
        named: Named | str | None,
    ) -> KTable:
        """Add one node per stream, and a node that merges them; returns the merged table.

        `make` returns a stream's node for its name, parent and aggregator.
        """
        for stream in self._aggregators:
            self._add_parent(stream, store.name)
        given = name_of(named)
        ids = []
        for number, (stream, aggregator) in enumerate(self._aggregators.items()):
            name = self._name(given, f"-cogroup-agg-{number}", names.COGROUP_AGGREGATE)
            ids.append(self.graph.add(make(name, self._parents[stream], aggregator)))
        merge = nodes.CogroupMergeNode(
            name=self._name(given, "-cogroup-merge", names.COGROUP_MERGE), parents=tuple(ids), store=store
        )
        return self.graph.table(self.graph.add(merge), key_serde, store.value_serde, queryable)

    def _add_parent(self, stream: GroupedStreamAggregateBuilder, store_name: str) -> None:
        """Record the parent of the aggregation of `stream`: a repartition, created once, if required."""
        if not stream.repartition_required:
            self._parents[stream] = stream.id
            return
        repartition = stream.new_repartition(store_name)
        if stream not in self._parents:
            self._parents[stream] = self.graph.add(repartition)

    def _name(self, given: str | None, suffix: str, prefix: str) -> str:
        return self.graph.names.processor_name(None if given is None else names.check_name(given + suffix), prefix)


class CogroupedKStream(Shell, Generic[K, VR]):
    """Streams grouped by the same keys, for a common aggregation (Kafka class: CogroupedKStream).

    Created by `KGroupedStream.cogroup`, without streams. Records without key or value are dropped.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._streams = _CogroupedStreams(graph)

    def cogroup(
        self, grouped_stream: KGroupedStream[K, V], aggregator: Callable[[K, V, VR], VR]
    ) -> CogroupedKStream[K, VR]:
        """Add a grouped stream; returns this object.

        Its records update the aggregate by `aggregator(key, value, aggregate)`.
        """
        checked(aggregator, "aggregator(key, value, aggregate)")
        self._streams.add(grouped_stream.aggregate_builder, aggregator)
        return self

    def aggregate(
        self,
        initializer: Callable[[], VR],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[K, VR]:
        """Return the table of an aggregate of each key.

        It starts as `initializer()` and is updated by the aggregator of each record's stream; None deletes the key.

        The key serde comes from `materialized`, else from the streams; that of the aggregate is selected as in
        `KGroupedStream.aggregate`.
        """
        checked(initializer, "initializer()")
        options = option(materialized, Materialized())
        store = options.store_builder(
            self._streams.store_name(options), self._streams.key_serde(), self._streams.value_serde(initializer)
        )

        def make(name: str, parent: nodes.NodeId, aggregator: Aggregator) -> nodes.GraphNode:
            return nodes.AggregateNode(
                name=name, parents=(parent,), store=store, initializer=initializer, aggregator=aggregator
            )

        return self._streams.build(make, store, options.user_store_name, store.key_serde, named)

    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedCogroupedKStream[K, VR]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, VR]: ...
    def windowed_by(
        self, windows: Windows | SlidingWindows | SessionWindows
    ) -> TimeWindowedCogroupedKStream[K, VR] | SessionWindowedCogroupedKStream[K, VR]:
        """Return the streams grouped by key and window; null values are treated as in `KGroupedStream.windowed_by`."""
        check_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._streams, windows)
        return TimeWindowedCogroupedKStream(self._streams, windows)


class TimeWindowedCogroupedKStream(Shell, Generic[K, VR]):
    """Streams grouped by key and time window, for a common aggregation.

    Kafka class: TimeWindowedCogroupedKStream. Created by `CogroupedKStream.windowed_by`. Results are emitted at each
    update.

    Args:
        streams: the grouped streams.
        windows: the windows.
    """

    def __init__(self, streams: _CogroupedStreams, windows: Windows | SlidingWindows) -> None:
        self._streams = streams
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], VR],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], VR]:
        """Return the table of an aggregate of each key and window, like `CogroupedKStream.aggregate`.

        Raises ValueError if `materialized` retains results for less time than windows are open.
        """
        checked(initializer, "initializer()")
        options, windows = option(materialized, Materialized()), self._windows
        store_name, strategy = self._streams.store_name(options), EmitStrategy.ON_WINDOW_UPDATE
        serdes = self._streams.key_serde(), self._streams.value_serde(initializer)
        store = window_store(options, store_name, windows, strategy, *serdes)

        def make(name: str, parent: nodes.NodeId, aggregator: Aggregator) -> nodes.GraphNode:
            return windowed_aggregate(name, parent, store, windows, strategy, initializer, aggregator)

        return self._streams.build(make, store, options.user_store_name, window_table_serde(store, windows), named)


class SessionWindowedCogroupedKStream(Shell, Generic[K, VR]):
    """Streams grouped by key and session, for a common aggregation.

    Kafka class: SessionWindowedCogroupedKStream. Created by `CogroupedKStream.windowed_by`. Results are emitted at each
    update.

    Args:
        streams: the grouped streams.
        windows: the session windows.
    """

    def __init__(self, streams: _CogroupedStreams, windows: SessionWindows) -> None:
        self._streams = streams
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], VR],
        merger: Callable[[K, VR, VR], VR],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], VR]:
        """Return the table of an aggregate of each key and session, like `CogroupedKStream.aggregate`.

        `merger(key, one, other)` merges the aggregates of two sessions. Raises ValueError if `materialized` retains
        sessions for less time than they are open.
        """
        checked(initializer, "initializer()")
        checked(merger, "merger(key, one, other)")
        options, windows = option(materialized, Materialized()), self._windows
        store_name, strategy = self._streams.store_name(options), EmitStrategy.ON_WINDOW_UPDATE
        serdes = self._streams.key_serde(), self._streams.value_serde(initializer, merger)
        store = session_store(options, store_name, windows, strategy, *serdes)

        def make(name: str, parent: nodes.NodeId, aggregator: Aggregator) -> nodes.GraphNode:
            return nodes.SessionWindowedAggregateNode(
                name=name,
                parents=(parent,),
                store=store,
                windows=windows,
                emit_strategy=strategy,
                initializer=initializer,
                aggregator=aggregator,
                merger=merger,
            )

        return self._streams.build(make, store, options.user_store_name, session_table_serde(store), named)
