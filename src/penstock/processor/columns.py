"""User functions applied to columns.

They run row by row inside C loops, so that an error affects its own row only and no row runs twice. A function that
takes whole columns is called once (`ColumnCall`), and again for parts of them if it fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, repeat
from typing import Any

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import EngineContext, FailureHandler, Processor, RowOrigin
from penstock.processor.row_partitions import RowPartitions
from penstock.record import ArrayColumn, Int64Array, Record, RecordBatch, sliced, take_from
from penstock.serdes.api import Library
from penstock.state.api import EngineStore, RecordContext

NULL_NOT_ALLOWED = "The provided KeyValueMapper returned null which is not allowed."

FEWEST_ROWS = 25
"""Minimum number of rows for columns: below it, records are cheaper, with the same results."""


class ColumnError(TypeError):
    """A function on columns returned something else than a column of the same length: an error of the program."""


class ColumnCall(ABC):
    """A function on whole columns, which a call applies to a single row."""

    batch_size: int | None = None
    """Maximum number of rows in a call; None for no limit."""

    @abstractmethod
    def __call__(self, *row: Any) -> Any:
        """Return the result for one row."""

    @abstractmethod
    def libraries(self, count: int) -> tuple[Library | None, ...]:
        """Return the libraries of the arrays from which it takes `count` columns; None for objects."""

    @abstractmethod
    def call(self, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Return the result for each row; raises ColumnError for anything but one result per row."""


class AppliedRows:
    """The results of a function over rows.

    Args:
        results: one result for each row of `kept`.
        kept: the rows with a result; None for every row.
    """

    __slots__ = ("kept", "results")

    def __init__(self, results: Sequence[Any], kept: Int64Array | None) -> None:
        self.results = results
        self.kept = kept


def apply(
    function: Callable[..., Any],
    columns: Sequence[Sequence[Any]],
    failures: FailureHandler,
    null_error: str | None = None,
) -> AppliedRows:
    """Call `function` for each row in turn, with one argument per column.

    A row whose call raises is passed to `failures`; if that returns, the row is left out. With `null_error`, a result
    of None counts as a TypeError with this text. A `ColumnCall` takes all rows at once.
    """
    if isinstance(function, ColumnCall):
        return _WholeColumns(function, columns, failures, null_error).applied()
    rows = len(columns[0])
    results: list[Any] = []
    failed: list[int] = []
    calls = map(function, *columns)
    checked = 0
    while len(results) < rows:
        error: Exception
        try:
            results.extend(calls)
            if len(results) == rows:
                break
            # map() mistakes a StopIteration of the user's function for its own end
            error = RuntimeError("The function raised StopIteration.")
        except Exception as raised:
            error = raised
        row = len(results)
        if null_error is not None:
            failed += _null_rows(results, checked, failures, null_error)
        failures(row, error)
        failed.append(row)
        results.append(None)
        checked = row + 1
    if null_error is not None:
        failed += _null_rows(results, checked, failures, null_error)
    if not failed:
        return AppliedRows(results, None)
    kept = np.delete(np.arange(rows, dtype=np.int64), failed)
    return AppliedRows([results[row] for row in kept.tolist()], kept)


class _WholeColumns:
    """Applies a function to whole columns, or to their parts if it fails.

    Args:
        function: the function.
        columns: one column per argument.
        failures: receives the rows on which the function fails alone, in their order.
        null_error: as for `apply`.
    """

    def __init__(
        self,
        function: ColumnCall,
        columns: Sequence[Sequence[Any]],
        failures: FailureHandler,
        null_error: str | None,
    ) -> None:
        self._function = function
        self._columns = columns
        self._failures = failures
        self._null_error = null_error
        self._parts: list[Sequence[Any]] = []
        self._failed: list[int] = []

    def applied(self) -> AppliedRows:
        """Return the results of all rows."""
        rows = len(self._columns[0])
        size = self._function.batch_size or max(1, rows)
        for start in range(0, rows, size):
            self._run(start, min(start + size, rows))
        results = self._parts[0] if len(self._parts) == 1 else list(chain.from_iterable(self._parts))
        if not self._failed:
            return AppliedRows(results, None)
        kept = np.delete(np.arange(rows, dtype=np.int64), self._failed)
        return AppliedRows(take_from(results, kept), kept)

    def _run(self, start: int, stop: int) -> None:
        """Add the results of the rows from `start` up to `stop`; those of each half if the function fails."""
        error: Exception
        whole = stop - start == len(self._columns[0])
        columns = self._columns if whole else [sliced(column, start, stop) for column in self._columns]
        try:
            results = self._function.call(columns)
        except ColumnError:
            raise
        except Exception as raised:
            error = raised
        else:
            self._parts.append(results)
            if self._null_error is not None:
                failures = self._failures if not start else lambda row, error: self._failures(start + row, error)
                self._failed += [start + row for row in _null_rows(results, 0, failures, self._null_error)]
            return
        if stop - start == 1:
            self._failures(start, error)
            self._failed.append(start)
            self._parts.append([None])
            return
        middle = (start + stop) // 2
        self._run(start, middle)
        self._run(middle, stop)


def _null_rows(results: Sequence[Any], start: int, failures: FailureHandler, null_error: str) -> list[int]:
    if not has_null(results):
        return []
    found = [row for row in range(start, len(results)) if results[row] is None]
    for row in found:
        try:
            raise TypeError(null_error)
        except TypeError as error:  # raised to get the traceback that handlers show
            failures(row, error)
    return found


def kept_rows(batch: RecordBatch, kept: Int64Array | None) -> RecordBatch:
    """Return the rows `kept` of `batch`; None means all rows."""
    return batch if kept is None else batch.take(kept)


def composed(outer: Int64Array | None, inner: Int64Array | None) -> Int64Array | None:
    """Return the rows `inner` of the rows `outer`; None means all rows, as in `RowOrigin`."""
    if outer is None or inner is None:
        return outer if inner is None else inner
    return outer[inner]


def write_contexts(partitions: RowPartitions, batch: RecordBatch, rows: Int64Array) -> list[RecordContext]:
    """Return the contexts of the writes that `rows` of `batch` cause.

    Args:
        partitions: the source partitions of the batch.
        batch: all rows.
        rows: the numbers of the rows.
    """
    topics, numbers = partitions.columns(rows)
    headers = repeat(()) if batch.headers is None else take_from(batch.headers, rows)
    timestamps, offsets = batch.timestamps[rows].tolist(), batch.offsets[rows].tolist()
    return list(map(RecordContext, timestamps, headers, topics, numbers, offsets))


def caused_by_rows(
    context: EngineContext, store: EngineStore, batch: RecordBatch
) -> Iterator[AbstractContextManager[None]]:
    """Return a `with` block per row that makes the row the cause of writes.

    The blocks have no effect if `store` is not logged.
    """
    if not store.logged:
        return repeat(nullcontext(), len(batch))
    return map(context.in_record_context, write_contexts(context.source_partitions(), batch, np.arange(len(batch))))


def process_each(
    processor: Processor, context: EngineContext, batch: RecordBatch, failures: FailureHandler
) -> tuple[RecordBatch, RowOrigin]:
    """Process the rows of `batch` one by one with `processor`; returns no rows.

    The processor holds its updates back.
    """
    contexts = write_contexts(context.source_partitions(), batch, np.arange(len(batch), dtype=np.int64))
    rows = zip(batch.keys, batch.values, batch.timestamps.tolist(), contexts, strict=True)
    for row, (key, value, timestamp, cause) in enumerate(rows):
        try:
            with context.in_record_context(cause):
                processor.process(Record(key, value, timestamp, cause.headers))
        except Exception as error:
            failures(row, error)
    return batch.slice(0, 0), np.empty(0, np.int64)


def with_key(context: EngineContext, batch: RecordBatch) -> tuple[RecordBatch, RowOrigin]:
    """Return the rows of `batch` that have a key, and their row numbers.

    The others are dropped.
    """
    if not has_null(batch.keys):
        return batch, None
    keyed = np.fromiter((key is not None for key in batch.keys), np.bool_, len(batch))
    rows = np.flatnonzero(keyed)
    context.drop_rows(DropReason.NULL_KEY, np.flatnonzero(~keyed))
    return batch.take(rows), rows


def has_null(column: Sequence[Any]) -> bool:
    """Return whether a column contains None.

    Compares types, since user objects may redefine equality and truth.
    """
    if isinstance(column, ArrayColumn) and not column.may_have_null:
        return False
    return type(None) in set(map(type, column))
