"""GlobalKTable: a table that every task can read completely, for joins with streams by any of their fields."""

from __future__ import annotations

from typing import Generic

from penstock.dsl.type_variables import K, V


class GlobalKTable(Generic[K, V]):
    """A table whose keys every task can read (Kafka class: GlobalKTable); created by `StreamsBuilder.global_table`.

    store_name: the name of its store, which any processor can read with `context.get_state_store(store_name)`.
    """

    def __init__(self, store_name: str, queryable_store_name: str | None) -> None:
        """Hold the table of the global store `store_name`; users get it from StreamsBuilder."""
        self.store_name = store_name
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the table's store if the user named it, None if the table cannot be queried."""
        return self._queryable_store_name
