"""The stateless operators of KStream, each with a function that the user writes.

A stream that gets other keys is marked, so that the next operator by key repartitions it. The return annotation of a
function selects the serde of its result if the configuration has no default.

A function on columns (`penstock.processor.column_functions`) may replace a function on rows, with a column for each of
its parameters, except in `map` and `flat_map`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypedDict, overload

from penstock.dsl.call_batches import on_waiting_columns, record_function
from penstock.dsl.call_nodes import call_takes_key, calling, check_no_park, checked_call
from penstock.dsl.calls import Calls
from penstock.dsl.column_functions import (
    ArrayAction,
    ArrayFunction,
    ArrayMapper,
    C,
    D,
    items_serde,
    on_columns,
    result_serde,
)
from penstock.dsl.functions import checked, checked_items, items_take_key, takes_key
from penstock.dsl.graph import Graph
from penstock.dsl.options import Named, name_of
from penstock.dsl.park import Park, parking
from penstock.dsl.returning_records import check_no_return
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import KR, VR, K, V
from penstock.plan import names, nodes
from penstock.processor.column_functions import ColumnAction, ColumnFunction, Vectorized
from penstock.serdes import Serde
from penstock.serdes.annotated import serdes_of_pair, serdes_of_pairs
from penstock.serdes.answers import (
    answer_serde_of,
    items_answer_serde_of,
    no_answer_serde_of,
    pair_answer_serde_of,
    pairs_answer_serde_of,
)

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream


_How = tuple[Park | None, Calls | None]
"""The options `on_error` and `calls` of an operator."""


class _Run(TypedDict):
    """How a node runs its function."""

    parking: nodes.Parking | None
    calling: nodes.Calling | None


class OperatorNodes(Shell, Generic[K, V]):
    """What operators of KStream with a function share: how their nodes run it, and the streams of their results."""

    _graph: Graph
    _id: nodes.NodeId
    _key_serde: Serde | None
    _value_serde: Serde | None
    _repartition_required: bool

    def _on_columns(
        self, how: _How, function: Callable[..., Any], make: type[ColumnFunction] = ColumnFunction
    ) -> Callable[..., Any]:
        _, calls = how
        find = on_columns if calls is None else on_waiting_columns
        return find(function, self._key_serde, self._value_serde, make)

    def _on_waiting_columns(self, how: _How, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of an operator that takes columns only with calls."""
        _, calls = how
        return function if calls is None else self._on_columns(how, function)

    def _run(
        self,
        how: _How,
        name: str,
        function: Callable[..., Any],
        answers: Callable[[Callable[..., Any]], Serde] = answer_serde_of,
        *,
        with_key: bool = True,
    ) -> _Run:
        """Return how the node `name` runs its function.

        Args:
            how: the options of the user.
            name: the name of the node.
            function: its function.
            answers: returns the serde of the results of calls by the annotation of the function.
            with_key: whether the function takes the key.
        """
        on_error, calls = how
        self._check_then(name, calls or on_error)
        if calls is None:
            return {"parking": parking(on_error, name, self._key_serde, self._value_serde), "calling": None}
        check_no_park(name, on_error)
        serdes = self._key_serde, self._value_serde
        return {
            "parking": None,
            "calling": calling(calls, name, function, serdes, answers(record_function(function)), with_key=with_key),
        }

    def _check_then(self, name: str, given: Calls | Park | None) -> None:
        """Raise TopologyError if the topic of dead letters of the operator `name` is one that it reads."""
        if isinstance(given, Calls | Park) and given.then is not None:
            writes = f"then= of the {type(given).__name__} of {name} writes the records that fail"
            check_no_return(self._graph, self._id, given.then, writes, "fail")

    def _name(self, named: Named | str | None, prefix: str) -> str:
        return self._graph.names.processor_name(name_of(named), prefix)

    def _same(self, node: nodes.GraphNode) -> KStream:
        return self._graph.stream(
            self._graph.add(node), self._key_serde, self._value_serde, repartition_required=self._repartition_required
        )

    def _other_value(self, node: nodes.GraphNode, value_serde: Serde | None = None) -> KStream:
        return self._graph.stream(
            self._graph.add(node), self._key_serde, value_serde, repartition_required=self._repartition_required
        )

    def _other_key_and_value(
        self, node: nodes.GraphNode, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> KStream:
        return self._graph.stream(self._graph.add(node), key_serde, value_serde, repartition_required=True)


class StatelessOperators(OperatorNodes[K, V]):
    """The stateless operators of KStream."""

    # ---------------------------------------- operators that keep the key

    @overload
    def filter(
        self, predicate: Callable[..., Awaitable[bool]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, V]: ...
    @overload
    def filter(
        self,
        predicate: Callable[[K, V], bool],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def filter(
        self, predicate: Callable[..., bool], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, V]: ...
    @overload
    def filter(
        self,
        predicate: Vectorized[tuple[K, V], bool] | ArrayFunction[C, D, bool],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, V]: ...
    def filter(
        self,
        predicate: Callable[..., Any],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, V]:
        """Return the records that match `predicate(key, value)`."""
        return self._filtered(predicate, named, (on_error, calls), negate=False)

    @overload
    def filter_not(
        self, predicate: Callable[..., Awaitable[bool]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, V]: ...
    @overload
    def filter_not(
        self,
        predicate: Callable[[K, V], bool],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def filter_not(
        self, predicate: Callable[..., bool], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, V]: ...
    @overload
    def filter_not(
        self,
        predicate: Vectorized[tuple[K, V], bool] | ArrayFunction[C, D, bool],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, V]: ...
    def filter_not(
        self,
        predicate: Callable[..., Any],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, V]:
        """Return the records that do not match `predicate(key, value)`."""
        return self._filtered(predicate, named, (on_error, calls), negate=True)

    def _filtered(
        self, predicate: Callable[..., Any], named: Named | str | None, how: _How, *, negate: bool
    ) -> KStream[K, V]:
        predicate = self._on_columns(how, predicate)
        _checked(how, predicate, "predicate(key, value)")
        name = self._name(named, names.STREAM_FILTER)
        return self._same(
            nodes.FilterNode(
                name=name, parents=(self._id,), predicate=predicate, negate=negate, **self._run(how, name, predicate)
            )
        )

    @overload
    def map_values(
        self,
        mapper: Vectorized[V, VR] | Vectorized[tuple[K, V], VR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self, mapper: Callable[..., Awaitable[VR]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[V], VR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], VR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self, mapper: Callable[..., VR], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self,
        mapper: ArrayMapper[C, VR] | ArrayFunction[C, D, VR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, VR]: ...
    def map_values(
        self,
        mapper: Callable[..., Any],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, Any]:
        """Return each record with the value `mapper(value)`.

        If `mapper` requires two arguments, the value is `mapper(key, value)`.
        """
        mapper = self._on_columns((on_error, calls), mapper)
        with_key = takes_key(mapper, "mapper") if calls is None else call_takes_key(calls, mapper, "mapper")
        name = self._name(named, names.STREAM_MAP_VALUES)
        run = self._run((on_error, calls), name, mapper, with_key=with_key)
        node = nodes.MapValuesNode(name=name, parents=(self._id,), mapper=mapper, with_key=with_key, **run)
        return self._other_value(node, result_serde(mapper))

    @overload
    def flat_map_values(
        self,
        mapper: Vectorized[V, Iterable[VR]] | Vectorized[tuple[K, V], Iterable[VR]],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[..., Awaitable[Iterable[VR]]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[VR]],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[VR]],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[..., Iterable[VR]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self,
        mapper: ArrayMapper[C, Iterable[VR]] | ArrayFunction[C, D, Iterable[VR]],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, VR]: ...
    def flat_map_values(
        self,
        mapper: Callable[..., Any],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, Any]:
        """Return a record for each value of `mapper(value)`.

        If `mapper` requires two arguments, it is called as `mapper(key, value)`.
        """
        mapper = self._on_columns((on_error, calls), mapper)
        with_key = items_take_key(mapper, "mapper") if calls is None else call_takes_key(calls, mapper, "mapper")
        name = self._name(named, names.STREAM_FLAT_MAP_VALUES)
        run = self._run((on_error, calls), name, mapper, items_answer_serde_of, with_key=with_key)
        node = nodes.FlatMapValuesNode(name=name, parents=(self._id,), mapper=mapper, with_key=with_key, **run)
        return self._other_value(node, items_serde(mapper))

    @overload
    def peek(
        self, action: Callable[..., Awaitable[object]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, V]: ...
    @overload
    def peek(
        self,
        action: Callable[[K, V], object],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def peek(
        self, action: Callable[..., object], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[K, V]: ...
    @overload
    def peek(
        self,
        action: ArrayAction[C, D],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, V]: ...
    def peek(
        self,
        action: Callable[..., object],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[K, V]:
        """Call `action(key, value)` for each record and return the records unchanged."""
        how = on_error, calls
        action = self._on_columns(how, action, ColumnAction)
        _checked(how, action, "action(key, value)")
        name = self._name(named, names.STREAM_PEEK)
        run = self._run(how, name, action, no_answer_serde_of)
        return self._same(nodes.PeekNode(name=name, parents=(self._id,), action=action, **run))

    @overload
    def foreach(
        self, action: Callable[..., Awaitable[object]], named: Named | str | None = None, *, calls: Calls
    ) -> None: ...
    @overload
    def foreach(
        self,
        action: Callable[[K, V], object],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> None: ...
    @overload
    def foreach(self, action: Callable[..., object], named: Named | str | None = None, *, calls: Calls) -> None: ...
    @overload
    def foreach(
        self,
        action: ArrayAction[C, D],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> None: ...
    def foreach(
        self,
        action: Callable[..., object],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> None:
        """Call `action(key, value)` for each record; a terminal operator."""
        how = on_error, calls
        action = self._on_columns(how, action, ColumnAction)
        _checked(how, action, "action(key, value)")
        name = self._name(named, names.STREAM_FOREACH)
        run = self._run(how, name, action, no_answer_serde_of)
        self._graph.add(nodes.ForeachNode(name=name, parents=(self._id,), action=action, **run))

    # ---------------------------------------- operators that may change the key

    @overload
    def map(
        self, mapper: Vectorized[tuple[K, V], tuple[KR, VR]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[KR, VR]: ...
    @overload
    def map(
        self, mapper: Callable[..., Awaitable[tuple[KR, VR]]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[KR, VR]: ...
    @overload
    def map(
        self,
        mapper: Callable[[K, V], tuple[KR, VR]],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[KR, VR]: ...
    @overload
    def map(
        self, mapper: Callable[..., tuple[KR, VR]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[KR, VR]: ...
    def map(
        self,
        mapper: Callable[..., Any],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[Any, Any]:
        """Return each record as the (key, value) of `mapper(key, value)`."""
        how = on_error, calls
        mapper = self._on_waiting_columns(how, mapper)
        _checked(how, mapper, "mapper(key, value)")
        name = self._name(named, names.STREAM_MAP)
        run = self._run(how, name, mapper, pair_answer_serde_of)
        node = nodes.MapNode(name=name, parents=(self._id,), mapper=mapper, **run)
        return self._other_key_and_value(node, *serdes_of_pair(record_function(mapper)))

    @overload
    def flat_map(
        self,
        mapper: Vectorized[tuple[K, V], Iterable[tuple[KR, VR]]],
        named: Named | str | None = None,
        *,
        calls: Calls,
    ) -> KStream[KR, VR]: ...
    @overload
    def flat_map(
        self,
        mapper: Callable[..., Awaitable[Iterable[tuple[KR, VR]]]],
        named: Named | str | None = None,
        *,
        calls: Calls,
    ) -> KStream[KR, VR]: ...
    @overload
    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[KR, VR]]],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[KR, VR]: ...
    @overload
    def flat_map(
        self, mapper: Callable[..., Iterable[tuple[KR, VR]]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[KR, VR]: ...
    def flat_map(
        self,
        mapper: Callable[..., Any],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[Any, Any]:
        """Return a record for each (key, value) of `mapper(key, value)`."""
        form = "mapper(key, value)"
        mapper = self._on_waiting_columns((on_error, calls), mapper)
        checked_items(mapper, form) if calls is None else checked_call(calls, mapper, form)
        name = self._name(named, names.STREAM_FLAT_MAP)
        run = self._run((on_error, calls), name, mapper, pairs_answer_serde_of)
        node = nodes.FlatMapNode(name=name, parents=(self._id,), mapper=mapper, **run)
        return self._other_key_and_value(node, *serdes_of_pairs(record_function(mapper)))

    @overload
    def select_key(
        self,
        mapper: Vectorized[tuple[K, V], KR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[KR, V]: ...
    @overload
    def select_key(
        self, mapper: Callable[..., Awaitable[KR]], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[KR, V]: ...
    @overload
    def select_key(
        self,
        mapper: Callable[[K, V], KR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[KR, V]: ...
    @overload
    def select_key(
        self, mapper: Callable[..., KR], named: Named | str | None = None, *, calls: Calls
    ) -> KStream[KR, V]: ...
    @overload
    def select_key(
        self,
        mapper: ArrayFunction[C, D, KR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[KR, V]: ...
    def select_key(
        self,
        mapper: Callable[..., Any],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
        calls: Calls | None = None,
    ) -> KStream[Any, V]:
        """Return each record with the key `mapper(key, value)`."""
        id, key_serde = self._select_key(mapper, name_of(named), (on_error, calls))
        return self._graph.stream(id, key_serde, self._value_serde, repartition_required=True)

    def _select_key(self, mapper: Callable[..., Any], name: str | None, how: _How) -> tuple[nodes.NodeId, Serde | None]:
        """Add the node; returns it, and the serde of its keys if the annotation selects one."""
        mapper = self._on_columns(how, mapper)
        _checked(how, mapper, "mapper(key, value)")
        name = self._graph.names.processor_name(name, names.STREAM_KEY_SELECT)
        run = self._run(how, name, mapper)
        id = self._graph.add(nodes.SelectKeyNode(name=name, parents=(self._id,), selector=mapper, **run))
        return id, result_serde(mapper, is_key=True)


def _checked(how: _How, function: Callable[..., Any], form: str) -> None:
    """Raise TypeError unless a function can be called in the form `form`, by the task or outside of it."""
    _, calls = how
    if calls is None:
        checked(function, form)
    else:
        checked_call(calls, function, form)
