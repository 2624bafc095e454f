"""CountWindowedKStream: aggregations of windows of n records per key, each into a stream of full windows.

Every method adds nodes; nothing runs. An aggregation is a table of the latest window of each key, whose full windows
are a stream. The parameter `named` names the node of the table: a string or `Named.as_("x")`; TopologyError if it is
invalid. `materialized` configures its store, whose value serde is that of the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, overload

from penstock.aggregations import Aggregation
from penstock.aggregations.totals import Count
from penstock.dsl.aggregate_builder import GroupedStreamAggregateBuilder
from penstock.dsl.arguments import check_fits, first, option
from penstock.dsl.functions import checked
from penstock.dsl.options import Materialized, Named, name_of
from penstock.dsl.ready_aggregation import ReadyAggregation, is_ready
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import VR, K, V
from penstock.plan import names, nodes
from penstock.plan.user_lines import at_line
from penstock.processor.count_window import CountWindowAdder, CountWindowFunction, FullWindows, aggregate_of
from penstock.processor.reduction import Reduction, no_aggregate
from penstock.serdes import Serde
from penstock.serdes.annotated import serde_of_aggregate, serde_of_result
from penstock.serdes.count_window import CountWindowSerde

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream


class CountWindowedKStream(Shell, Generic[K, V]):
    """Records grouped by key and into windows of n records of a key.

    Created by `KGroupedStream.count_windows`. Records without a key or value are dropped, and not counted. Every
    aggregation gives a stream with one record for each full window: the key, the result, and the largest timestamp of
    the records of the key so far.

    Args:
        builder: the grouped records.
        n: number of records of a window.
    """

    def __init__(self, builder: GroupedStreamAggregateBuilder, n: int) -> None:
        self._builder = builder
        self._n = n

    def count(self, materialized: Materialized | None = None, named: Named | str | None = None) -> KStream[K, int]:
        """Return the number of records of each full window, as an 8-byte integer.

        It is n, or more in a window that was open when the program got a smaller n.
        """
        return self._ready(Count(), materialized, named)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KStream[K, V]:
        """Return the combined values of each full window.

        The aggregate starts as the first value and is updated by `reducer(aggregate, value)`; None deletes the window,
        and the next record begins another one.
        """
        function = Reduction(checked(reducer, "reducer(aggregate, value)"))
        serde = first(self._builder.value_serde, serde_of_result(reducer))
        adder = CountWindowFunction(self._n, no_aggregate, function)
        return self._aggregated(names.STREAM_REDUCE, adder, serde, materialized, named)

    @overload
    def aggregate(
        self,
        initializer: Aggregation[V, VR],
        /,
        *,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], VR],
        aggregator: Callable[[K, V, VR], VR],
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KStream[K, VR]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        aggregator: Any = None,
        materialized: Materialized | None = None,
        named: Named | str | None = None,
    ) -> KStream[K, Any]:
        """Return the aggregate of each full window.

        It starts as `initializer()` and is updated by `aggregator(key, value, aggregate)`; None deletes the window, and
        the next record begins another one.

        The serde of the aggregate comes from `materialized`, else from `default.value.serde`, else from the annotation
        of `aggregator` or `initializer`.

        Instead of the functions, a ready aggregation such as `aggregations.mean()` gives its results. Its options are
        keywords. A full window without any aggregated part has no result, and gives no record.
        """
        if is_ready(initializer):
            return self._ready(initializer, materialized, named, aggregator)
        checked(initializer, "initializer()")
        function = checked(aggregator, "aggregator(key, value, aggregate)")
        adder = CountWindowFunction(self._n, initializer, function)
        return self._aggregated(
            names.STREAM_AGGREGATE, adder, serde_of_aggregate(initializer, function), materialized, named
        )

    def _ready(
        self,
        aggregation: Aggregation[Any, Any],
        materialized: Materialized | None,
        named: Named | str | None,
        *functions: object,
    ) -> KStream:
        ready = ReadyAggregation.of(aggregation, self._builder.value_serde, materialized, *functions)
        adder = CountWindowAdder(self._n, aggregation.initial, ready.adder)
        states = option(ready.store_options, Materialized())
        windows = self._windows(names.STREAM_AGGREGATE, adder, ready.store_serde, states, named)
        return self._full(windows, aggregation.result, states.key_serde, ready.result_serde, named)

    def _aggregated(
        self,
        prefix: str,
        adder: CountWindowFunction,
        serde: Serde | None,
        materialized: Materialized | None,
        named: Named | str | None,
    ) -> KStream:
        options = option(materialized, Materialized())
        windows = self._windows(prefix, adder, serde, options, named)
        return self._full(windows, aggregate_of, options.key_serde, first(options.value_serde, serde), named)

    def _windows(
        self,
        prefix: str,
        adder: CountWindowAdder,
        serde: Serde | None,
        options: Materialized,
        named: Named | str | None,
    ) -> nodes.NodeId:
        """Return the node with the latest window of each key, whose aggregates have `serde` without an option.

        The store has no record cache, which would hold back full windows.
        """
        check_fits("The store of count_windows", "value", options.value_serde, serde)
        of_windows = options.with_value_serde(CountWindowSerde(first(options.value_serde, serde)))
        store, _ = self._builder.store(of_windows.with_caching_disabled(), prefix, None)
        name = self._builder.graph.names.processor_name(name_of(named), prefix)
        return self._builder.add(
            lambda parent: nodes.AggregateNode(
                name=name, parents=(parent,), store=store, initializer=adder.initial, aggregator=adder
            ),
            store,
        )

    def _full(
        self,
        windows: nodes.NodeId,
        result: Callable[[Any], Any],
        key_serde: Serde | None,
        value_serde: Serde | None,
        named: Named | str | None,
    ) -> KStream:
        """Return the stream of the results of full windows."""
        graph, given = self._builder.graph, name_of(named)

        def name(end: str, prefix: str) -> str:
            return graph.names.processor_name(None if given is None else f"{given}-{end}", prefix)

        updates = nodes.TableToStreamNode(name=name("updates", names.TABLE_TO_STREAM), parents=(windows,))
        results = nodes.FlatMapValuesNode(
            name=name("full", names.STREAM_FLAT_MAP_VALUES),
            parents=(graph.add(updates),),
            mapper=FullWindows(result),
            with_key=False,
        )
        keys = first(key_serde, self._builder.key_serde)
        return graph.stream(graph.add(results), keys, value_serde, repartition_required=False)


def checked_number(n: object) -> int:
    """Return the user's number of records of a window.

    Raises TypeError unless it is an int, ValueError if it is less than 1.
    """
    where = f"count_windows{at_line()}"
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"{where}: expected the number of records of a window as an int, got {n!r:.100}.")
    if n < 1:
        raise ValueError(f"{where}: a window has at least 1 record, got n={n}.")
    return n
