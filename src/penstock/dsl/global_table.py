"""GlobalKTable: a table that every task can read completely, for joins with streams by any of their fields."""

from __future__ import annotations

from typing import Generic

from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import K, V
from penstock.plan.nodes import NodeId
from penstock.serdes import Serde


class GlobalKTable(Shell, Generic[K, V]):
    """A table whose keys every task can read (Kafka class: GlobalKTable); created by `StreamsBuilder.global_table`.

    store_name: the name of its store, which any processor can read with `context.get_state_store(store_name)`.
    """

    def __init__(self, id: NodeId, key_serde: Serde | None, store_name: str, queryable_store_name: str | None) -> None:
        """Hold the table of node `id` with the global store `store_name`; users get it from StreamsBuilder."""
        self._id = id
        self._key_serde = key_serde
        self.store_name = store_name
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the table's store if the user named it, None if the table cannot be queried."""
        return self._queryable_store_name
