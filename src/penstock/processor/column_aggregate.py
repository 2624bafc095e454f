"""Ready aggregations of a stream by key, or by key and time window, column by column.

If a cache holds back the updates, only the last state of a key or window is needed: all values of a key are added at
once. Otherwise, and if a part of a value is None or a function fails, values are added one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from penstock.processor.added_values import AddedValues
from penstock.processor.aggregate import KeyUpdates, StreamAggregate
from penstock.processor.api import FailureHandler, RowOrigin
from penstock.processor.columns import has_null
from penstock.processor.windowed_aggregate import TimeWindowAggregate, WindowUpdates
from penstock.record import Change, Int64Array, RecordBatch, take_from
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
        self._states = _ColumnStates(adder)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Add the values of all rows."""
        if not self._store.cached or not self._add_columns(batch):
            return super().process_batch(batch, failures)
        return batch.slice(0, 0), np.empty(0, np.int64)

    def _add_columns(self, batch: RecordBatch) -> bool:
        """Add the values of each key at once, and return whether that was possible."""
        if has_null(batch.keys) or (parts := self._states.parts(batch.values, self._store.reads_back)) is None:
            return False
        updates = KeyUpdates.of(batch, cast("list[bytes]", self._store.serialize_keys(batch.keys)))
        old, timestamps = self._store.get_columns(updates.keys)
        groups = np.argsort(updates.order)[updates.places]
        states = self._states.added(old, parts, groups)
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
        self._states = _ColumnStates(adder)

    def _aggregate(
        self,
        batch: RecordBatch,
        updates: WindowUpdates,
        aggregates: list[Any],
        timestamps: list[int],
        failures: FailureHandler,
    ) -> tuple[list[Change], list[int], Int64Array]:
        """Add the values of each window at once if possible."""
        rows, parts, states = updates.columns.rows, None, None
        if self._store.cached and len(rows):
            parts = self._states.parts(batch.values, self._store.reads_back)
        if parts is not None:
            states = self._states.added(aggregates, take_from(parts, rows), updates.entries)
        if states is None:
            return super()._aggregate(batch, updates, aggregates, timestamps, failures)
        latest = np.array(timestamps, np.int64)
        np.maximum.at(latest, updates.entries, batch.timestamps[rows])
        aggregates[:], timestamps[:] = states, latest.tolist()
        return [], [], np.arange(len(rows), dtype=np.int64)


class _ColumnStates:
    """The states of an aggregation after columns of values.

    Args:
        adder: the aggregation as an aggregator.
    """

    def __init__(self, adder: AddedValues) -> None:
        self._aggregation = adder.aggregation

    def parts(self, values: Sequence[Any], reads_back: Callable[[type], bool]) -> Sequence[Any] | None:
        """Return the aggregated part of each value; None if the values need to be added one by one.

        reads_back: returns whether the store returns values of a type unchanged.
        """
        try:
            parts = self._aggregation.column(values)
        except Exception:  # of one row, which fails again, alone
            return None
        takes = bool(parts) and not has_null(parts) and self._aggregation.takes_column(parts, reads_back)
        return parts if takes else None

    def added(self, states: Sequence[Any], parts: Sequence[Any], groups: Int64Array) -> list[Any] | None:
        """Return the state of each group after its parts; None if a part cannot be added.

        Args:
            states: the state of each group, None for a new one.
            parts: the parts of all groups, in the order of their rows.
            groups: the group of each part; every group has one.
        """
        ordered = take_from(parts, np.argsort(groups, kind="stable"))
        ends = np.cumsum(np.bincount(groups, minlength=len(states))).tolist()
        added, start = [], 0
        try:
            for state, end in zip(states, ends, strict=True):
                before = self._aggregation.initial() if state is None else state
                added.append(self._aggregation.added_column(before, ordered[start:end]))
                start = end
        except Exception:  # of one row, which fails again, alone
            return None
        return added
