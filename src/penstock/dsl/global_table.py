"""GlobalKTable: a table fully readable by every task, for stream joins on any field."""

from __future__ import annotations

from typing import Generic

from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import K, V
from penstock.plan.nodes import NodeId
from penstock.serdes import Serde


class GlobalKTable(Shell, Generic[K, V]):
    """A table with all keys readable by every task (Kafka class: GlobalKTable).

    Created by `StreamsBuilder.global_table`.

    Args:
        id: the node of the table.
        key_serde: the serde of the keys.
        store_name: the name of its store, which any processor can read with `context.get_state_store(store_name)`.
        queryable_store_name: the same if the user named it, otherwise None.
    """

    def __init__(self, id: NodeId, key_serde: Serde | None, store_name: str, queryable_store_name: str | None) -> None:
        self._id = id
        self._key_serde = key_serde
        self.store_name = store_name
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str | None:
        """The user's name of the table's store, or None if the table cannot be queried."""
        return self._queryable_store_name
