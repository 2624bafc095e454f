"""TimeWindowedKStream and SessionWindowedKStream: aggregations of records by key and window.

Each aggregation is a table with a store. Every method adds nodes; nothing runs.

The keys of the tables are Windowed. The parameter `named` names the node of an operator: a string or `Named.as_("x")`;
TopologyError if it is invalid. `materialized` configures the store of the table; ValueError if it retains results for
less time than windows are open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, overload

from penstock.aggregations import Aggregation
from penstock.dsl.aggregate_builder import GroupedStreamAggregateBuilder
from penstock.dsl.arguments import first, option
from penstock.dsl.functions import checked
from penstock.dsl.options import Materialized, Named, name_of
from penstock.dsl.ready_aggregation import ReadyAggregation, is_ready
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import VR, K, V
from penstock.dsl.window_stores import session_store, session_table_serde, window_store, window_table_serde
from penstock.plan import names, nodes
from penstock.processor.reduction import (
    MergedReduction,
    Reduction,
    counted,
    initial_count,
    merged_counts,
    no_aggregate,
)
from penstock.serdes import Serde, Serdes
from penstock.serdes.annotated import serde_of_aggregate, serde_of_result
from penstock.state.api import StoreBuilder
from penstock.windows import EmitStrategy, SessionWindows, SlidingWindows, UnlimitedWindows, Windowed, Windows

if TYPE_CHECKING:
    from penstock.dsl.table import KTable


class TimeWindowedKStream(Shell, Generic[K, V]):
    """Records grouped by key and time window (Kafka class: TimeWindowedKStream).

    Created by `KGroupedStream.windowed_by`. Windows are tumbling, hopping, sliding, unlimited or those of a calendar.
    Records without a key are dropped; sliding windows also drop records without a value.

    Args:
        builder: the grouped records.
        windows: the windows.
        emit_strategy: when aggregations emit.
    """

    def __init__(
        self,
        builder: GroupedStreamAggregateBuilder,
        windows: Windows | SlidingWindows,
        emit_strategy: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        self._builder = builder
        self._windows = windows
        self._emit_strategy = emit_strategy

    def emit_strategy(self, emit_strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Set aggregations to emit at each update, or once per window at its close.

        Returns this object. Raises ValueError for unlimited windows, which never close.
        """
        if isinstance(self._windows, UnlimitedWindows) and emit_strategy is EmitStrategy.ON_WINDOW_CLOSE:
            raise ValueError("ON_WINDOW_CLOSE emit strategy cannot be used for UnlimitedWindows")
        self._emit_strategy = emit_strategy
        return self

    def count(
        self, materialized: Materialized | None = None, named: Named | str | None = None
    ) -> KTable[Windowed[K], int]:
        """Return the table of record counts of each key and window, as 8-byte integers."""
        windows = self._windows
        unnamed = materialized is not None and option(materialized, Materialized()).user_store_name is None
        if unnamed and isinstance(windows, Windows):
            self._builder.graph.names.new_store_name(names.STREAM_AGGREGATE)  # Kafka takes this number twice
        store, queryable = self._store(materialized, names.STREAM_AGGREGATE, Serdes.long())
        name = self._builder.graph.names.processor_name(name_of(named), names.STREAM_AGGREGATE)
        if isinstance(windows, SlidingWindows):
            return self._build(name, store, queryable, initial_count, counted)
        return self._builder.build(
            lambda parent: nodes.TimeWindowedCountNode(
                name=name, parents=(parent,), store=store, windows=windows, emit_strategy=self._emit_strategy
            ),
            store,
            queryable,
            window_table_serde(store, windows),
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Return the table of the combined values of each key and window.

        The aggregate starts as the first value and is updated by `reducer(aggregate, value)`; None deletes the result
        of the window.
        """
        checked(reducer, "reducer(aggregate, value)")
        store, queryable = self._store(
            materialized, names.STREAM_REDUCE, first(self._builder.value_serde, serde_of_result(reducer))
        )
        name = self._builder.graph.names.processor_name(name_of(named), names.STREAM_REDUCE)
        return self._build(name, store, queryable, no_aggregate, Reduction(reducer))

    @overload
    def aggregate(
        self,
        initializer: Aggregation[V, VR],
        /,
        *,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], VR]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], VR],
        aggregator: Callable[[K, V, VR], VR],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], VR]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        aggregator: Any = None,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], Any]:
        """Return the table of an aggregate of each key and window.

        It starts as `initializer()` and is updated by `aggregator(key, value, aggregate)`; None deletes the result of
        the window.

        The serde of the aggregate comes from `materialized`, else from `default.value.serde`, else from the annotation
        of `aggregator` or `initializer`.

        Instead of the functions, a ready aggregation such as `aggregations.mean()` gives the table of its results. Its
        options are keywords.
        """
        if is_ready(initializer):
            ready = ReadyAggregation.of(initializer, self._builder.value_serde, materialized, aggregator)
            states = self._aggregate(initializer.initial, ready.adder, ready.store_serde, ready.store_options, named)
            return ready.results(states, named)
        checked(initializer, "initializer()")
        function = checked(aggregator, "aggregator(key, value, aggregate)")
        value_serde = serde_of_aggregate(initializer, function)
        return self._aggregate(initializer, function, value_serde, materialized, named)

    def _aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[..., Any],
        value_serde: Serde | None,
        materialized: Materialized | None,
        named: Named | str | None,
    ) -> KTable[Windowed[K], Any]:
        store, queryable = self._store(materialized, names.STREAM_AGGREGATE, value_serde)
        name = self._builder.graph.names.processor_name(name_of(named), names.STREAM_AGGREGATE)
        return self._build(name, store, queryable, initializer, aggregator)

    def _store(
        self, materialized: Materialized | None, prefix: str, value_serde: Serde | None
    ) -> tuple[StoreBuilder, str | None]:
        """Return the store of an aggregation, and its name if the user set it."""
        options = option(materialized, Materialized())
        queryable = options.user_store_name
        name = self._builder.graph.names.new_store_name(prefix) if queryable is None else queryable
        store = window_store(options, name, self._windows, self._emit_strategy, self._builder.key_serde, value_serde)
        return store, queryable

    def _build(
        self,
        name: str,
        store: StoreBuilder,
        queryable: str | None,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> KTable:
        windows = self._windows

        def make(parent: nodes.NodeId) -> nodes.GraphNode:
            return windowed_aggregate(name, parent, store, windows, self._emit_strategy, initializer, aggregator)

        return self._builder.build(make, store, queryable, window_table_serde(store, windows))


def windowed_aggregate(
    name: str,
    parent: nodes.NodeId,
    store: StoreBuilder,
    windows: Windows | SlidingWindows,
    emit_strategy: EmitStrategy,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
) -> nodes.GraphNode:
    """Return the node of an aggregation by key and window."""
    if isinstance(windows, SlidingWindows):
        return nodes.SlidingWindowedAggregateNode(
            name=name,
            parents=(parent,),
            store=store,
            windows=windows,
            emit_strategy=emit_strategy,
            initializer=initializer,
            aggregator=aggregator,
        )
    return nodes.TimeWindowedAggregateNode(
        name=name,
        parents=(parent,),
        store=store,
        windows=windows,
        emit_strategy=emit_strategy,
        initializer=initializer,
        aggregator=aggregator,
    )


class SessionWindowedKStream(Shell, Generic[K, V]):
    """Records grouped by key and session (Kafka class: SessionWindowedKStream).

    Created by `KGroupedStream.windowed_by`. Records without a key are dropped.

    Args:
        builder: the grouped records.
        windows: the session windows.
        emit_strategy: when aggregations emit.
    """

    def __init__(
        self,
        builder: GroupedStreamAggregateBuilder,
        windows: SessionWindows,
        emit_strategy: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        self._builder = builder
        self._windows = windows
        self._emit_strategy = emit_strategy

    def emit_strategy(self, emit_strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Set aggregations to emit at each update, or once per session at its close.

        Returns this object.
        """
        self._emit_strategy = emit_strategy
        return self

    def count(
        self, materialized: Materialized | None = None, named: Named | str | None = None
    ) -> KTable[Windowed[K], int]:
        """Return the table of record counts of each key and session, as 8-byte integers."""
        if materialized is not None and option(materialized, Materialized()).user_store_name is None:
            self._builder.graph.names.new_store_name(names.STREAM_AGGREGATE)  # Kafka takes this number twice
        return self._aggregated(
            names.STREAM_AGGREGATE, materialized, named, Serdes.long(), initial_count, counted, merged_counts
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Return the table of the combined values of each key and session.

        The aggregate starts as the first value and is updated by `reducer(aggregate, value)`, which also merges two
        sessions; None deletes the session.
        """
        checked(reducer, "reducer(aggregate, value)")
        return self._aggregated(
            names.STREAM_REDUCE,
            materialized,
            named,
            first(self._builder.value_serde, serde_of_result(reducer)),
            no_aggregate,
            Reduction(reducer),
            MergedReduction(reducer),
        )

    @overload
    def aggregate(
        self,
        initializer: Aggregation[V, VR],
        /,
        *,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], VR]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], VR],
        aggregator: Callable[[K, V, VR], VR],
        merger: Callable[[K, VR, VR], VR],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], VR]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        aggregator: Any = None,
        merger: Any = None,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KTable[Windowed[K], Any]:
        """Return the table of an aggregate of each key and session.

        It starts as `initializer()` and is updated by `aggregator(key, value, aggregate)`; `merger(key, one, other)`
        merges the aggregates of two sessions. None deletes the session.

        The serde of the aggregate comes from `materialized`, else from `default.value.serde`, else from the annotation
        of `aggregator` or `initializer`.

        Instead of the functions, a ready aggregation such as `aggregations.mean()` gives the table of its results. Its
        options are keywords.
        """
        if is_ready(initializer):
            ready = ReadyAggregation.of(initializer, self._builder.value_serde, materialized, aggregator, merger)
            states = self._aggregated(
                names.STREAM_AGGREGATE,
                ready.store_options,
                named,
                ready.store_serde,
                initializer.initial,
                ready.adder,
                ready.merger,
            )
            return ready.results(states, named)
        checked(initializer, "initializer()")
        function = checked(aggregator, "aggregator(key, value, aggregate)")
        merging = checked(merger, "merger(key, one, other)")
        value_serde = serde_of_aggregate(initializer, function, merging)
        return self._aggregated(
            names.STREAM_AGGREGATE, materialized, named, value_serde, initializer, function, merging
        )

    def _aggregated(
        self,
        prefix: str,
        materialized: Materialized | None,
        named: Named | str | None,
        value_serde: Serde | None,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any],
    ) -> KTable:
        options = option(materialized, Materialized())
        queryable = options.user_store_name
        store_name = self._builder.graph.names.new_store_name(prefix) if queryable is None else queryable
        store = session_store(
            options, store_name, self._windows, self._emit_strategy, self._builder.key_serde, value_serde
        )
        node = nodes.SessionWindowedAggregateNode(
            name=self._builder.graph.names.processor_name(name_of(named), prefix),
            store=store,
            windows=self._windows,
            emit_strategy=self._emit_strategy,
            initializer=initializer,
            aggregator=aggregator,
            merger=merger,
        )
        return self._builder.build(
            lambda parent: replace(node, parents=(parent,)), store, queryable, session_table_serde(store)
        )
