"""Conversion of users' stores of all kinds to tables and data frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.extras import load
from penstock.notebook import Forms, table
from penstock.tabular import Tabular

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.state.query.columns import StateColumns


class StoreTable(Tabular):
    """A store as a table.

    Its columns: `key`, `window_start` and `window_end` of windows and sessions, `value`, and `timestamp` if the store
    keeps one.
    """

    @property
    def name(self) -> str:
        """The name of the store."""
        raise NotImplementedError

    def _typed_stores(self) -> Sequence[Any]:
        """Return the current typed stores to read, one per partition."""
        raise NotImplementedError

    def _arrow_reader(self) -> pa.RecordBatchReader:
        arrow, stores = load("pyarrow", "A table"), self._typed_stores()
        columns = _columns(stores)

        def batches() -> Iterator[pa.RecordBatch]:
            for store in stores:
                yield from columns.entry_batches(store)

        return arrow.RecordBatchReader.from_batches(columns.entry_schema, batches())

    def _title(self) -> str:
        return f"Store {self.name}"

    def _table(self, limit: int) -> Forms:
        stores = self._typed_stores()
        columns = _columns(stores)
        rows = columns.first_rows(stores, limit)
        return table(self._title(), columns.facts(stores, rows), rows)


def _columns(stores: Sequence[Any]) -> StateColumns:
    """Return the columns of `stores`; their module needs Arrow, which a task does not."""
    columns: StateColumns = load("penstock.state.query.columns", "A table").StateColumns(stores[0])
    return columns
