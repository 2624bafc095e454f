"""Ready aggregations of a stream by key, or by key and time window, column by column.

If a cache holds back the updates, only the last state of a key or window is needed: all values of a key are added at
once. If a function fails for a row, or the part of a value is None, the parts are added one by one. No function runs
twice for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.aggregations import Aggregation
from penstock.processor.added_values import AddedValues
from penstock.processor.aggregate import KeyUpdates, StreamAggregate
from penstock.processor.api import FailureHandler, RowOrigin
from penstock.processor.windowed_aggregate import TimeWindowAggregate, WindowUpdates
from penstock.record import Change, Int64Array, RecordBatch, take_from
from penstock.state.api import EngineColumnStore
from penstock.windows import Windows


class ColumnAggregate(StreamAggregate):
    """Adds the values of a key to the state of a ready aggregation.

    Args:
        store_name: the name of the store.
        adder: the aggregation as an aggregator.
        send_old_values: whether updates include the previous state.
    """

    def __init__(self, store_name: str, adder: AddedValues, send_old_values: bool = False) -> None:
        super().__init__(store_name, adder.aggregation.initial, adder, send_old_values)
        self._columns = _Columns(adder.aggregation)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Add the values of all rows."""
        if not self._store.cached:
            return super().process_batch(batch, failures)
        batch, keys, rows = self._with_key_and_value(batch, self._store.serialize_keys(batch.keys))
        parts = self._columns.parts(batch.values)
        if keys and not self._add_columns(batch, keys, parts):
            self._update_each(replace(batch, values=parts), keys, rows, self._columns.add_part, failures)
        return batch.slice(0, 0), np.empty(0, np.int64)

    def _add_columns(self, batch: RecordBatch, keys: Sequence[bytes], parts: list[Any]) -> bool:
        """Add the parts of each key at once, and return whether that was possible."""
        if not self._columns.are_taken(parts, self._store):
            return False
        updates = KeyUpdates.of(batch, keys)
        old, timestamps = self._store.get_columns(updates.keys)
        states = self._columns.added(old, parts, np.argsort(updates.order)[updates.places])
        if states is None:
            return False
        self._write(batch, updates.keys, states, np.maximum(timestamps, updates.timestamps), updates.last_rows)
        return True


class ColumnWindowAggregate(TimeWindowAggregate):
    """Adds the values of a key and window to the state of a ready aggregation, and emits each update.

    Args:
        name: the name of the node.
        store_name: the name of the store.
        windows: the windows.
        adder: the aggregation as an aggregator.
        send_old_values: whether updates include the previous state.
    """

    def __init__(
        self, name: str, store_name: str, windows: Windows, adder: AddedValues, send_old_values: bool = False
    ) -> None:
        super().__init__(name, store_name, windows, adder.aggregation.initial, adder, send_old_values)
        self._columns = _Columns(adder.aggregation)

    def _aggregate(
        self,
        batch: RecordBatch,
        updates: WindowUpdates,
        aggregates: list[Any],
        timestamps: list[int],
        failures: FailureHandler,
    ) -> tuple[list[Change], list[int], Int64Array]:
        """Add the values of each window at once if possible."""
        if not self._store.cached:
            return super()._aggregate(batch, updates, aggregates, timestamps, failures)
        rows, places = np.unique(updates.columns.rows, return_inverse=True)
        parts = self._columns.parts(take_from(batch.values, rows))
        states = None
        if self._columns.are_taken(parts, self._store):
            states = self._columns.added(aggregates, take_from(parts, places), updates.entries)
        if states is None:
            values: list[Any] = [None] * len(batch)
            for row, part in zip(rows.tolist(), parts, strict=True):
                values[row] = part
            given = replace(batch, values=values)
            return self._aggregate_each(given, updates, aggregates, timestamps, self._columns.add_part, failures)
        latest = np.array(timestamps, np.int64)
        np.maximum.at(latest, updates.entries, batch.timestamps[updates.columns.rows])
        aggregates[:], timestamps[:] = states, latest.tolist()
        return [], [], np.arange(len(updates.entries), dtype=np.int64)


@dataclass(frozen=True)
class _Failed:
    """The failure of the function `of` for a value."""

    error: Exception


@dataclass(frozen=True)
class _Waiting:
    """A value that is added without its part: None, or a value after a failure, where the task may end."""

    value: Any


class _Columns:
    """The columns of an aggregation.

    Args:
        aggregation: the aggregation.
    """

    def __init__(self, aggregation: Aggregation[Any, Any]) -> None:
        self._aggregation = aggregation

    def parts(self, values: Sequence[Any]) -> list[Any]:
        """Return the aggregated part of each value, _Waiting or _Failed."""
        parts: list[Any] = []
        for row, value in enumerate(values):
            try:
                part = self._aggregation.part(value)
            except Exception as error:
                return [*parts, _Failed(error), *map(_Waiting, values[row + 1 :])]
            parts.append(_Waiting(None) if part is None else part)
        return parts

    def are_taken(self, parts: list[Any], store: EngineColumnStore) -> bool:
        """Return whether the parts of a key can be added at once to its state in `store`."""
        kinds = set(map(type, parts))
        plain = bool(kinds) and kinds.isdisjoint((_Failed, _Waiting))
        return plain and self._aggregation.takes_column(parts, store.reads_back)

    def added(self, states: Sequence[Any], parts: Sequence[Any], groups: Int64Array) -> list[Any] | None:
        """Return the state of each group after its parts; None if a part cannot be added.

        Args:
            states: the state of each group, None for a new one.
            parts: the parts of all groups, in the order of their rows.
            groups: the group of each part; every group has one.
        """
        ordered = take_from(parts, np.argsort(groups, kind="stable"))
        ends = np.cumsum(np.bincount(groups, minlength=len(states))).tolist()
        added: list[Any] = []
        start = 0
        try:
            for state, end in zip(states, ends, strict=True):
                before = self._aggregation.initial() if state is None else state
                added.append(self._aggregation.added_column(before, ordered[start:end]))
                start = end
        except Exception:  # fails again for its row
            return None
        return added

    def add_part(self, key: Any, part: Any, state: Any) -> Any:
        """Return the state after an entry of `parts`; raises the error of a failed one."""
        match part:
            case _Failed():
                raise part.error
            case _Waiting():
                return self._aggregation.added(state, part.value)
            case _:
                return self._aggregation.added_part(state, part)
