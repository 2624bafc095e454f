"""Tap: the last records that have reached a node of a running application."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import StreamsError
from penstock.extras import load
from penstock.host.api import Host
from penstock.notebook import TEXT, Forms, table
from penstock.tabular import Tabular
from penstock.task.taps import TappedRecord

if TYPE_CHECKING:
    import pyarrow as pa


class Tap(Tabular):
    """The last records that have reached a node, until it is closed; created by `KafkaStreams.tap`.

    It is a table with `key`, `window_start` and `window_end` of windowed keys, `value`, `timestamp`, `headers`, the
    `task`, and the `topic`, `partition` and `offset` of the input record.

    Args:
        node: the name of the node.
        limit: the number of records to keep.
        host: returns the host of the tasks.
    """

    def __init__(self, node: str, limit: int, host: Callable[[], Host]) -> None:
        self.node = node
        self._limit = limit
        self._host = host
        self._lock = threading.Lock()
        self._is_open = True
        self._last: list[TappedRecord] = []
        self.reads = 0
        """The number of reads of the records."""
        self.records()

    @property
    def is_open(self) -> bool:
        """Whether records are still being kept."""
        return self._is_open

    def records(self) -> Sequence[TappedRecord]:
        """Return the last records, newest last; after `close` the last ones before it.

        Raises StreamsError while no task runs.
        """
        with self._lock:
            self.reads += 1
            if self._is_open:
                found = sorted(self._host().tapped(self.node, self._limit), key=lambda record: record.tapped_ms)
                self._last = found[-self._limit :] or self._last
            return list(self._last)

    def close(self) -> None:
        """Stop keeping records; the application runs at full speed again. Harmless when called again."""
        if not self._is_open:
            return
        with suppress(StreamsError):  # no task runs any more: the last seen records stay
            self.records()
        with self._lock:
            self._is_open = False
            self._host().untap(self.node)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.records())

    def __repr__(self) -> str:
        return self._table(self._limit)[TEXT]()

    def _columns(self, records: Sequence[TappedRecord]) -> list[Any]:
        columns: list[Any] = load("penstock.state.query.columns", "A table").tapped_columns(records)
        return columns

    def _arrow_reader(self) -> pa.RecordBatchReader:
        columns, records = load("penstock.state.query.columns", "A table"), self.records()
        own = self._columns(records)
        batches = columns.record_batches(own, ((record.key, record) for record in records))
        return load("pyarrow", "A table").RecordBatchReader.from_batches(columns.schema_of(own), batches)

    def _title(self) -> str:
        return f"Tap of {self.node}"

    def _table(self, limit: int) -> Forms:
        columns, records = load("penstock.state.query.columns", "A table"), self.records()
        entries = ((record.key, record) for record in reversed(records))
        rows = columns.first_rows(self._columns(records), entries, max(limit, self._limit))
        facts = {"records": str(len(records)), "state": "open" if self._is_open else "closed"}
        return table(self._title(), facts, rows)
