"""The stateless operators of KStream, each with a function that the user writes.

A stream that gets other keys is marked, so that the next operator by key repartitions it. The return annotation of a
function selects the serde of its result if the configuration has no default.

A function on columns (`penstock.processor.column_functions`) may replace a function on rows, with a column for each of
its parameters, except in `map` and `flat_map`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, overload

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
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import KR, VR, K, V
from penstock.plan import names, nodes
from penstock.processor.column_functions import ColumnAction, ColumnFunction, Vectorized
from penstock.serdes import Serde
from penstock.serdes.annotated import serdes_of_pair, serdes_of_pairs

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream


class StatelessOperators(Shell, Generic[K, V]):
    """The stateless operators of KStream."""

    _graph: Graph
    _id: nodes.NodeId
    _key_serde: Serde | None
    _value_serde: Serde | None
    _repartition_required: bool

    # ---------------------------------------- operators that keep the key

    @overload
    def filter(
        self, predicate: Callable[[K, V], bool], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, V]: ...
    @overload
    def filter(
        self,
        predicate: Vectorized[tuple[K, V], bool] | ArrayFunction[C, D, bool],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, V]: ...
    def filter(
        self, predicate: Callable[..., Any], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, V]:
        """Return the records that match `predicate(key, value)`."""
        return self._filtered(predicate, named, on_error, negate=False)

    @overload
    def filter_not(
        self, predicate: Callable[[K, V], bool], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, V]: ...
    @overload
    def filter_not(
        self,
        predicate: Vectorized[tuple[K, V], bool] | ArrayFunction[C, D, bool],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, V]: ...
    def filter_not(
        self, predicate: Callable[..., Any], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, V]:
        """Return the records that do not match `predicate(key, value)`."""
        return self._filtered(predicate, named, on_error, negate=True)

    def _filtered(
        self, predicate: Callable[..., Any], named: Named | str | None, on_error: Park | None, *, negate: bool
    ) -> KStream[K, V]:
        predicate = self._on_columns(predicate)
        checked(predicate, "predicate(key, value)")
        name = self._name(named, names.STREAM_FILTER)
        return self._same(
            nodes.FilterNode(
                name=name,
                parents=(self._id,),
                parking=self._parking(on_error, name),
                predicate=predicate,
                negate=negate,
            )
        )

    @overload
    def map_values(
        self,
        mapper: Vectorized[V, VR] | Vectorized[tuple[K, V], VR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self, mapper: Callable[[V], VR], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], VR], named: Named | str | None = None, *, on_error: Park | None = None
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
        self, mapper: Callable[..., Any], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, Any]:
        """Return each record with the value `mapper(value)`.

        If `mapper` requires two arguments, the value is `mapper(key, value)`.
        """
        mapper = self._on_columns(mapper)
        with_key = takes_key(mapper, "mapper")
        name = self._name(named, names.STREAM_MAP_VALUES)
        node = nodes.MapValuesNode(
            name=name,
            parents=(self._id,),
            parking=self._parking(on_error, name),
            mapper=mapper,
            with_key=with_key,
        )
        return self._other_value(node, result_serde(mapper))

    @overload
    def flat_map_values(
        self,
        mapper: Vectorized[V, Iterable[VR]] | Vectorized[tuple[K, V], Iterable[VR]],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[VR]], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[VR]], named: Named | str | None = None, *, on_error: Park | None = None
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
        self, mapper: Callable[..., Any], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, Any]:
        """Return a record for each value of `mapper(value)`.

        If `mapper` requires two arguments, it is called as `mapper(key, value)`.
        """
        mapper = self._on_columns(mapper)
        with_key = items_take_key(mapper, "mapper")
        name = self._name(named, names.STREAM_FLAT_MAP_VALUES)
        node = nodes.FlatMapValuesNode(
            name=name,
            parents=(self._id,),
            parking=self._parking(on_error, name),
            mapper=mapper,
            with_key=with_key,
        )
        return self._other_value(node, items_serde(mapper))

    @overload
    def peek(
        self, action: Callable[[K, V], object], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, V]: ...
    @overload
    def peek(
        self, action: ArrayAction[C, D], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, V]: ...
    def peek(
        self, action: Callable[..., object], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, V]:
        """Call `action(key, value)` for each record and return the records unchanged."""
        action = self._on_columns(action, ColumnAction)
        checked(action, "action(key, value)")
        name = self._name(named, names.STREAM_PEEK)
        return self._same(
            nodes.PeekNode(name=name, parents=(self._id,), parking=self._parking(on_error, name), action=action)
        )

    @overload
    def foreach(
        self, action: Callable[[K, V], object], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> None: ...
    @overload
    def foreach(
        self, action: ArrayAction[C, D], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> None: ...
    def foreach(
        self, action: Callable[..., object], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> None:
        """Call `action(key, value)` for each record; a terminal operator."""
        action = self._on_columns(action, ColumnAction)
        checked(action, "action(key, value)")
        name = self._name(named, names.STREAM_FOREACH)
        self._graph.add(
            nodes.ForeachNode(name=name, parents=(self._id,), parking=self._parking(on_error, name), action=action)
        )

    # ---------------------------------------- operators that may change the key

    def map(
        self, mapper: Callable[[K, V], tuple[KR, VR]], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[KR, VR]:
        """Return each record as the (key, value) of `mapper(key, value)`."""
        checked(mapper, "mapper(key, value)")
        name = self._name(named, names.STREAM_MAP)
        node = nodes.MapNode(name=name, parents=(self._id,), parking=self._parking(on_error, name), mapper=mapper)
        return self._other_key_and_value(node, *serdes_of_pair(mapper))

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[KR, VR]]],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[KR, VR]:
        """Return a record for each (key, value) of `mapper(key, value)`."""
        checked_items(mapper, "mapper(key, value)")
        name = self._name(named, names.STREAM_FLAT_MAP)
        node = nodes.FlatMapNode(name=name, parents=(self._id,), parking=self._parking(on_error, name), mapper=mapper)
        return self._other_key_and_value(node, *serdes_of_pairs(mapper))

    @overload
    def select_key(
        self,
        mapper: Vectorized[tuple[K, V], KR],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[KR, V]: ...
    @overload
    def select_key(
        self, mapper: Callable[[K, V], KR], named: Named | str | None = None, *, on_error: Park | None = None
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
        self, mapper: Callable[..., Any], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[Any, V]:
        """Return each record with the key `mapper(key, value)`."""
        id, key_serde = self._select_key(mapper, name_of(named), on_error)
        return self._graph.stream(id, key_serde, self._value_serde, repartition_required=True)

    def _select_key(
        self, mapper: Callable[..., Any], name: str | None, on_error: Park | None = None
    ) -> tuple[nodes.NodeId, Serde | None]:
        """Add the node; returns it, and the serde of its keys if the annotation selects one."""
        mapper = self._on_columns(mapper)
        checked(mapper, "mapper(key, value)")
        name = self._graph.names.processor_name(name, names.STREAM_KEY_SELECT)
        id = self._graph.add(
            nodes.SelectKeyNode(name=name, parents=(self._id,), parking=self._parking(on_error, name), selector=mapper)
        )
        return id, result_serde(mapper, is_key=True)

    # ---------------------------------------- results

    def _on_columns(
        self, function: Callable[..., Any], make: type[ColumnFunction] = ColumnFunction
    ) -> Callable[..., Any]:
        return on_columns(function, self._key_serde, self._value_serde, make)

    def _parking(self, on_error: Park | None, name: str) -> nodes.Parking | None:
        return parking(on_error, name, self._key_serde, self._value_serde)

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
