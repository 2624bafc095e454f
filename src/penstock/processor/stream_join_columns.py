"""The inner join of two streams column by column, over the rows of both sides in their order.

Each row reads the entries of the other side and adds its own, as record by record, in lists of the entries of each key.
Keys and values are serialised, read and joined as columns, and the stores are written once. So the four nodes of a join
run together: what a row finds depends on all rows before it, of both sides.

As in Kafka Streams, a record is stored after its joiner calls, as they have left its value. If a joiner changes a value
of a batch, the batch is joined again row by row, from the serialised values, and all later ones are joined row by row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import compress, groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import EngineContext, FailureHandler, RowOrigin
from penstock.processor.columns import AppliedRows, ColumnCall, apply, composed, has_null, write_contexts
from penstock.processor.joiner import KeyedJoiner
from penstock.processor.stream_join import StreamJoinWindow, StreamStreamInnerJoin
from penstock.record import Int64Array, RecordBatch, running_maximum, take_from
from penstock.serdes.columns import distinct
from penstock.state.duplicates import Entry, between, insert
from penstock.windows import LONG_MAX

_Mask = npt.NDArray[np.bool_]


class JoinRows(NamedTuple):
    """The rows of both sides of a join, in processing order.

    Args:
        batch: the rows.
        are_left: whether each row is of the left side.
        have_key: whether each row has a key.
        are_complete: whether each row has a key and a value.
    """

    batch: RecordBatch
    are_left: _Mask
    have_key: _Mask
    are_complete: _Mask

    @classmethod
    def of(cls, batch: RecordBatch, are_left: _Mask) -> JoinRows:
        """Return the rows of `batch`."""
        have_key = _not_null(batch.keys)
        return cls(batch, are_left, have_key, have_key & _not_null(batch.values))


class SideEntries:
    """The entries of one side that the rows of a batch read and write.

    Args:
        window: the processor that stores the rows of the side.
        rows: the rows of both sides.
        own: whether each row is of this side.
    """

    def __init__(self, window: StreamJoinWindow, rows: JoinRows, own: _Mask) -> None:
        self._window = window
        self._store = store = window.store
        self._rows = rows
        self._keys: list[Any] = store.serialize_keys(rows.batch.keys)
        self._known, self._places = distinct(self._keys)
        self._written = np.flatnonzero(own & rows.have_key)
        self._data = self._serialized(self._written, take_from(rows.batch.values, self._written))
        self._changed: dict[int, bytes] = {}
        self._lists = self._read_lists(rows.are_complete & ~own)

    def _serialized(self, rows: Int64Array, values: Sequence[Any]) -> list[bytes | None]:
        headers = self._rows.batch.headers
        return self._store.serialize_kept(values, None if headers is None else take_from(headers, rows))

    def _read_lists(self, readers: _Mask) -> list[list[Entry] | None]:
        are_read = np.zeros(len(self._known), np.bool_)
        are_read[self._places[readers]] = True
        return self._store.duplicates_of(self._known, are_read.tolist())  # a null key is not read

    def each_list(self) -> list[list[Entry] | None]:
        """Return, for each row, the list of its key."""
        return take_from(self._lists, self._places)

    def oldest_visible(self) -> Int64Array:
        """Return, for each row, the oldest time (ms) of entries that it can read."""
        rows = self._rows
        observed = rows.have_key if not self._store.persistent() else rows.are_complete
        times = np.full(len(rows.batch), np.iinfo(np.int64).min, np.int64)
        advancing = self._written[observed[self._written]]
        times[advancing] = rows.batch.timestamps[advancing]
        return self._store.oldest_visible_at(running_maximum(times))

    def new_entries(self) -> Iterable[tuple[int, Entry]]:
        """Return each row that writes an entry, with its entry."""
        data: list[Any] = self._data
        rows = self._written
        if has_null(data):
            stored = _not_null(data)
            data, rows = [each for each in data if each is not None], rows[stored]
        times = self._rows.batch.timestamps[rows].tolist()
        entries = zip(times, self._store.next_numbers(len(rows)).tolist(), data, strict=True)
        return zip(rows.tolist(), entries, strict=True)

    def read(self, data: list[bytes | None]) -> list[Any]:
        """Return the values of entries."""
        return self._store.deserialize_columns(data)[0]

    def are_changed(self, rows: Int64Array) -> bool:
        """Return whether a value of `rows`, which write entries, has changed since it was serialised."""
        values = take_from(self._rows.batch.values, rows)
        if all(map(self._store.reads_back, set(map(type, values)))):
            return False
        return self._serialized(rows, values) != take_from(self._data, np.searchsorted(self._written, rows))

    def current(self, entry: Entry) -> bytes:
        """Return the data of an entry as the joiner calls of its row have left it."""
        return self._changed.get(entry[1], entry[2])

    def change(self, row: int, value: Any, entry: Entry) -> None:
        """Write the entry of `row` as `value` is now."""
        (data,) = self._serialized(np.array([row]), [value])
        if data == entry[2]:
            return
        assert data is not None
        time, number, _ = entry
        self._data[int(np.searchsorted(self._written, row))] = data
        self._changed[number] = data
        entries = self._lists[self._places[row]]
        if entries is not None:
            entries[bisect_left(entries, (time, number))] = time, number, data

    def write(self, context: EngineContext) -> None:
        """Write the rows of this side, in order."""
        if not len(self._written):
            return
        batch, rows = self._rows.batch, self._written
        contexts = partial(write_contexts, context.source_partitions(), batch, rows)
        self._store.put_duplicates(take_from(self._keys, rows), self._data, batch.timestamps[rows], contexts)
        self._store.settle(self._known, self._lists, len(rows))


class Matches(NamedTuple):
    """What the rows of a batch find.

    Args:
        origin: the row of each match, ascending.
        found: the entry of each match.
        entries: the entry that each row writes; None if it writes none.
    """

    origin: Int64Array
    found: list[Entry]
    entries: list[Entry | None]


class StreamJoinColumns:
    """An inner join of two streams, column by column.

    Args:
        windows: the processors that store the rows of each side, the left one first.
        joins: the processors that join the rows of each side.
    """

    def __init__(
        self,
        windows: tuple[StreamJoinWindow, StreamJoinWindow],
        joins: tuple[StreamStreamInnerJoin, StreamStreamInnerJoin],
    ) -> None:
        self._windows = windows
        self._joins = joins
        self._changes_values = False

    def process_batch(
        self, batch: RecordBatch, are_left: _Mask, failures: FailureHandler
    ) -> tuple[RecordBatch, RowOrigin]:
        """Join the rows of both sides with all rows before them, and store them.

        Args:
            batch: the rows.
            are_left: whether each row is of the left side.
            failures: as for `BatchProcessor.process_batch`.

        Returns:
            The results, and the row of each.
        """
        rows = JoinRows.of(batch, are_left)
        self._drop_incomplete(rows)
        left = SideEntries(self._windows[0], rows, are_left)
        right = SideEntries(self._windows[1], rows, ~are_left)
        matches = self._matches(rows, left, right)
        origin = matches.origin
        applied = self._apply(rows, matches, left, right, failures)
        for side, window in zip((left, right), self._windows, strict=True):
            side.write(window.engine)
        if not len(origin):
            return batch.slice(0, 0), origin
        times, _, _ = zip(*matches.found, strict=True)
        keys = take_from(batch.keys, origin)
        kept = composed(origin, applied.kept)
        assert kept is not None
        result_times = np.maximum(batch.timestamps[origin], np.array(times, np.int64))
        return (
            RecordBatch(
                keys if applied.kept is None else take_from(keys, applied.kept),
                applied.results,
                result_times if applied.kept is None else result_times[applied.kept],
                batch.offsets[kept],
                None if batch.headers is None else take_from(batch.headers, kept),
            ),
            kept,
        )

    def _apply(
        self, rows: JoinRows, matches: Matches, left: SideEntries, right: SideEntries, failures: FailureHandler
    ) -> AppliedRows:
        """Call the joiner for each match."""
        values = rows.batch.values
        if self._changes_values:
            return self._apply_in_turn(rows, matches, (left, right), failures, values)
        origin = matches.origin
        if not len(origin):
            return AppliedRows([], None)
        of_left = rows.are_left[origin].tolist()
        others = _read_each(of_left, [data for _, _, data in matches.found], left, right)
        both = list(zip(of_left, take_from(values, origin), others, strict=True))
        lefts = [this if is_left else other for is_left, this, other in both]
        rights = [other if is_left else this for is_left, this, other in both]
        matched = np.unique(origin)
        are_left = rows.are_left[matched]

        def are_changed() -> bool:
            return left.are_changed(matched[are_left]) or right.are_changed(matched[~are_left])

        def failed(result: int, error: Exception) -> None:
            if are_changed():
                raise _ChangedValuesError
            failures(int(origin[result]), error)

        try:
            applied = apply(self._joiner(rows, origin), (take_from(rows.batch.keys, origin), lefts, rights), failed)
            self._changes_values = are_changed()
        except _ChangedValuesError:
            self._changes_values = True
        if self._changes_values:
            values = _as_serialized(rows, matches, left, right)
            return self._apply_in_turn(rows, matches, (left, right), failures, values)
        return applied

    def _apply_in_turn(
        self,
        rows: JoinRows,
        matches: Matches,
        sides: tuple[SideEntries, SideEntries],
        failures: FailureHandler,
        values: Sequence[Any],
    ) -> AppliedRows:
        """Call the joiner row by row: a row is written as its calls have left its value, and read so by later ones.

        values: the values of the rows, as they are before the calls.
        """
        joiner, batch = self._joins[0].joiner, rows.batch
        found = {row: list(places) for row, places in groupby(range(len(matches.origin)), matches.origin.__getitem__)}
        results: list[Any] = []
        kept: list[int] = []
        for row, entry in enumerate(matches.entries):
            if entry is None:
                continue
            own, other = sides if rows.are_left[row] else sides[::-1]
            this = values[row]
            for place in found.get(row, ()):
                (that,) = other.read([other.current(matches.found[place])])
                arguments = (this, that) if own is sides[0] else (that, this)
                try:
                    result = joiner(batch.keys[row], *arguments)
                except Exception as error:
                    failures(row, error)
                    continue
                results.append(deepcopy(result))  # later calls may change parts of it
                kept.append(place)
            own.change(row, this, entry)
        return AppliedRows(results, None if len(kept) == len(matches.origin) else np.array(kept, np.int64))

    def _joiner(self, rows: JoinRows, origin: Int64Array) -> KeyedJoiner:
        """Return the joiner; if a value has several results, one that is the value itself becomes a copy."""
        joiner = self._joins[0].joiner
        types = set(map(type, rows.batch.values))
        left, right = (window.store for window in self._windows)
        if not (origin[1:] == origin[:-1]).any() or all(map(left.reads_back, types)):
            return joiner

        def joined(key: Any, of_left: Any, of_right: Any) -> Any:
            result = joiner(key, of_left, of_right)
            if result is of_left:
                return left.fresh(result)
            return right.fresh(result) if result is of_right else result

        return joiner if isinstance(joiner, ColumnCall) else joined

    def _drop_incomplete(self, rows: JoinRows) -> None:
        if rows.are_complete.all():
            return
        for join, own in zip(self._joins, (rows.are_left, ~rows.are_left), strict=True):
            join.engine.drop_rows(DropReason.NULL_KEY, np.flatnonzero(own & ~rows.have_key))
            join.engine.drop_rows(DropReason.NULL_VALUE, np.flatnonzero(own & rows.have_key & ~rows.are_complete))

    def _matches(self, rows: JoinRows, left: SideEntries, right: SideEntries) -> Matches:
        """Return the entries that each row finds: those of the rows before it. Each row adds its own."""
        times, are_left = rows.batch.timestamps, rows.are_left
        before, after = (
            np.where(are_left, *(getattr(join.side, bound) for join in self._joins))
            for bound in ("before_ms", "after_ms")
        )
        oldest = np.where(are_left, right.oldest_visible(), left.oldest_visible())
        lowest = np.where(rows.are_complete, np.maximum(np.maximum(times - before, 0), oldest), LONG_MAX)
        highest = np.maximum(times + after, 0)
        entries: list[Entry | None] = [None] * len(times)
        for side in (left, right):
            for row, entry in side.new_entries():
                entries[row] = entry
        found: list[Entry] = []
        origin: list[int] = []
        for row, (is_left, of_left, of_right, low, high, entry) in enumerate(
            zip(
                are_left.tolist(),
                left.each_list(),
                right.each_list(),
                lowest.tolist(),
                highest.tolist(),
                entries,
                strict=True,
            )
        ):
            own, other = (of_left, of_right) if is_left else (of_right, of_left)
            if other and other[-1][0] >= low:
                last = other[-1]
                if last[0] <= high and (len(other) == 1 or other[-2][0] < low):  # the usual case
                    found.append(last)
                    origin.append(row)
                else:
                    near = between(other, low, high)
                    found += near
                    origin += [row] * len(near)
            if own is not None and entry is not None:
                insert(own, entry)
        return Matches(np.array(origin, np.int64), found, entries)


class _ChangedValuesError(Exception):
    """The joiner has changed values of the batch."""


def _as_serialized(rows: JoinRows, matches: Matches, left: SideEntries, right: SideEntries) -> list[Any]:
    """Return the values of rows, read from their entries; rows that have the same object keep one in common."""
    values: list[Any] = [None] * len(rows.batch)
    copies: dict[int, Any] = {}  # a stream joined with itself has each value on both sides
    for row, (value, entry) in enumerate(zip(rows.batch.values, matches.entries, strict=True)):
        if entry is None:
            continue
        if id(value) not in copies:
            (copies[id(value)],) = (left if rows.are_left[row] else right).read([entry[2]])
        values[row] = copies[id(value)]
    return values


def _read_each(of_left: Sequence[bool], data: Sequence[bytes], left: SideEntries, right: SideEntries) -> list[Any]:
    """Return the values of entries, each of the other side than its row."""
    if all(of_left):
        return right.read(list(data))
    if not any(of_left):
        return left.read(list(data))
    rights = iter(right.read(list(compress(data, of_left))))
    lefts = iter(left.read([each for each, is_left in zip(data, of_left, strict=True) if not is_left]))
    return [next(rights) if is_left else next(lefts) for is_left in of_left]


def _not_null(column: Sequence[Any]) -> _Mask:
    if not has_null(column):
        return np.ones(len(column), np.bool_)
    return np.fromiter((each is not None for each in column), np.bool_, len(column))
