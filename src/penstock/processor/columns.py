"""User functions applied to columns.

They run row by row inside C loops, so that an error affects its own row only and no row runs twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from typing import Any

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import EngineContext, FailureHandler, Processor, RowOrigin
from penstock.record import Int64Array, Record, RecordBatch, TopicPartition, take_from
from penstock.state.api import EngineStore, RecordContext

NULL_NOT_ALLOWED = "The provided KeyValueMapper returned null which is not allowed."


class AppliedRows:
    """The results of a function over rows.

    Args:
        results: one result for each row of `kept`.
        kept: the rows with a result; None for every row.
    """

    __slots__ = ("kept", "results")

    def __init__(self, results: list[Any], kept: Int64Array | None) -> None:
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
    of None counts as a TypeError with this text.
    """
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


def _null_rows(results: list[Any], start: int, failures: FailureHandler, null_error: str) -> list[int]:
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


def write_contexts(partition: TopicPartition, batch: RecordBatch, rows: Int64Array) -> list[RecordContext]:
    """Return the contexts of the writes that `rows` of `batch` cause.

    Args:
        partition: the source partition of the batch.
        batch: all rows.
        rows: the numbers of the rows.
    """
    topic, number = repeat(partition.topic), repeat(partition.partition)
    headers = repeat(()) if batch.headers is None else take_from(batch.headers, rows)
    timestamps, offsets = batch.timestamps[rows].tolist(), batch.offsets[rows].tolist()
    return list(map(RecordContext, timestamps, headers, topic, number, offsets))


def caused_by_rows(
    context: EngineContext, store: EngineStore, batch: RecordBatch
) -> Iterator[AbstractContextManager[None]]:
    """Return a `with` block per row that makes the row the cause of writes.

    The blocks have no effect if `store` is not logged.
    """
    if not store.logged:
        return repeat(nullcontext(), len(batch))
    return map(context.in_record_context, write_contexts(context.source_partition(), batch, np.arange(len(batch))))


def process_each(
    processor: Processor, context: EngineContext, batch: RecordBatch, failures: FailureHandler
) -> tuple[RecordBatch, RowOrigin]:
    """Process the rows of `batch` one by one with `processor`; returns no rows.

    The processor holds its updates back.
    """
    contexts = write_contexts(context.source_partition(), batch, np.arange(len(batch), dtype=np.int64))
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
    return type(None) in set(map(type, column))
