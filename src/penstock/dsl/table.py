"""KTable: what can be done with a table: updates by key. Every method adds a node; nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.dsl.graph import Graph
from penstock.dsl.options import Named, name_of
from penstock.plan import names, nodes
from penstock.serdes import Serde

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream


class KTable:
    """A table: the latest value of each key, as a stream of updates (Kafka class: KTable)."""

    def __init__(
        self,
        graph: Graph,
        id: nodes.NodeId,
        key_serde: Serde | None,
        value_serde: Serde | None,
        queryable_store_name: str | None,
    ) -> None:
        """Hold the updates of node `id` of `graph`; users get tables from operators."""
        self._graph = graph
        self._id = id
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the table's store if the user named it, None if the table cannot be queried."""
        return self._queryable_store_name

    def to_stream(self, mapper: Callable[[Any, Any], Any] | None = None, named: Named | str | None = None) -> KStream:
        """Return the updates as records: the new value under its key, None where the key was deleted.

        Args:
            mapper: gives each record another key, `mapper(key, value)`.
            named: name of the node, a text or a Named; TopologyError if it is not legal.
        """
        name = self._graph.names.processor_name(name_of(named), names.TABLE_TO_STREAM)
        id = self._graph.add(nodes.TableToStream(name=name, parents=(self._id,)))
        stream = self._graph.stream(id, self._key_serde, self._value_serde, repartition_required=False)
        return stream if mapper is None else stream.select_key(mapper)
