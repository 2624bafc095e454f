"""The stateless operators of KStream, each with a function that the user writes.

A stream that gets other keys is marked, so that the next operator by key repartitions it. The return annotation of a
function selects the serde of its result if the configuration has no default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, overload

from penstock.dsl.functions import checked, checked_items, items_take_key, takes_key
from penstock.dsl.graph import Graph
from penstock.dsl.options import Named, name_of
from penstock.dsl.park import Park, parking
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import KR, VR, K, V
from penstock.plan import names, nodes
from penstock.serdes import Serde
from penstock.serdes.annotated import serde_of_items, serde_of_result, serdes_of_pair, serdes_of_pairs

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

    def filter(
        self,
        predicate: Callable[[K, V], bool],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, V]:
        """Return the records that match `predicate(key, value)`."""
        return self._filtered(predicate, named, on_error, negate=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], bool],
        named: Named | str | None = None,
        *,
        on_error: Park | None = None,
    ) -> KStream[K, V]:
        """Return the records that do not match `predicate(key, value)`."""
        return self._filtered(predicate, named, on_error, negate=True)

    def _filtered(
        self, predicate: Callable[[Any, Any], bool], named: Named | str | None, on_error: Park | None, *, negate: bool
    ) -> KStream[K, V]:
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
        self, mapper: Callable[[V], VR], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], VR], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, VR]: ...
    def map_values(
        self, mapper: Callable[..., VR], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, VR]:
        """Return each record with the value `mapper(value)`.

        If `mapper` requires two arguments, the value is `mapper(key, value)`.
        """
        with_key = takes_key(mapper, "mapper")
        name = self._name(named, names.STREAM_MAP_VALUES)
        node = nodes.MapValuesNode(
            name=name,
            parents=(self._id,),
            parking=self._parking(on_error, name),
            mapper=mapper,
            with_key=with_key,
        )
        return self._other_value(node, serde_of_result(mapper))

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[VR]], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[VR]], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, VR]: ...
    def flat_map_values(
        self, mapper: Callable[..., Iterable[VR]], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, VR]:
        """Return a record for each value of `mapper(value)`.

        If `mapper` requires two arguments, it is called as `mapper(key, value)`.
        """
        with_key = items_take_key(mapper, "mapper")
        name = self._name(named, names.STREAM_FLAT_MAP_VALUES)
        node = nodes.FlatMapValuesNode(
            name=name,
            parents=(self._id,),
            parking=self._parking(on_error, name),
            mapper=mapper,
            with_key=with_key,
        )
        return self._other_value(node, serde_of_items(mapper))

    def peek(
        self, action: Callable[[K, V], object], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[K, V]:
        """Call `action(key, value)` for each record and return the records unchanged."""
        checked(action, "action(key, value)")
        name = self._name(named, names.STREAM_PEEK)
        return self._same(
            nodes.PeekNode(name=name, parents=(self._id,), parking=self._parking(on_error, name), action=action)
        )

    def foreach(
        self, action: Callable[[K, V], object], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> None:
        """Call `action(key, value)` for each record; a terminal operator."""
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

    def select_key(
        self, mapper: Callable[[K, V], KR], named: Named | str | None = None, *, on_error: Park | None = None
    ) -> KStream[KR, V]:
        """Return each record with the key `mapper(key, value)`."""
        id = self._select_key(mapper, name_of(named), on_error)
        return self._graph.stream(
            id, serde_of_result(mapper, is_key=True), self._value_serde, repartition_required=True
        )

    def _select_key(self, mapper: Callable[[K, V], KR], name: str | None, on_error: Park | None = None) -> nodes.NodeId:
        checked(mapper, "mapper(key, value)")
        name = self._graph.names.processor_name(name, names.STREAM_KEY_SELECT)
        return self._graph.add(
            nodes.SelectKeyNode(name=name, parents=(self._id,), parking=self._parking(on_error, name), selector=mapper)
        )

    # ---------------------------------------- results

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
