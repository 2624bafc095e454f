"""The stateless operators of a stream.

All of them except `StreamPrint` work on single records and on columns, with equal results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import (
    BatchProcessor,
    BranchingProcessor,
    EngineContext,
    FailureHandler,
    Processor,
    RowOrigin,
)
from penstock.processor.arrays import items_in
from penstock.processor.columns import NULL_NOT_ALLOWED, AppliedRows, ColumnCall, apply, composed, has_null, kept_rows
from penstock.processor.first_results import (
    KEY_SELECTOR,
    MAPPER,
    PREDICATE,
    PREDICATES,
    NeedsResults,
    UsesResults,
)
from penstock.processor.not_awaited import check_awaited, check_first_awaited
from penstock.record import ArrayColumn, Int64Array, KeyValue, LazyColumn, Record, RecordBatch, rows_of
from penstock.serdes.api import Library

Predicate = Callable[[Any, Any], bool]
KeyValueMapper = Callable[[Any, Any], Any]
ForeachAction = Callable[[Any, Any], object]

_TUPLES = frozenset((tuple, KeyValue))
_PAIR = frozenset((2,))
_NO_PAIRS = (str, bytes, bytearray, dict, set, frozenset)

ArrayLibraries = tuple[Library | None, Library | None]

NULL_VALUES = "The provided ValueMapper returned null, expected an iterable of values."


class StreamFilter(BatchProcessor, UsesResults):
    """Forwards the records that match a predicate, or the others (Kafka class: KStreamFilter).

    Args:
        predicate: the predicate of key and value.
        negate: whether to forward the records that do not match.
    """

    held = (PREDICATE,)
    takes_arrays = True

    def __init__(self, predicate: Predicate, negate: bool = False) -> None:
        self._predicate = predicate
        self._negate = negate

    @property
    def libraries(self) -> ArrayLibraries:
        """The libraries of the arrays in which its function takes keys and values."""
        return _libraries(self._predicate, with_key=True)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record if it passes."""
        passes: object = self._predicate(record.key, record.value)
        if type(passes) is not bool:
            check_awaited(passes, "predicate")
        if bool(passes) != self._negate:
            self.context.forward(record)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows that pass."""
        applied = apply(self._predicate, (batch.keys, batch.values), failures)
        passing = _truths(applied.results)
        if self._negate:
            passing = ~passing
        return _select(batch, passing, applied.kept)


class NullKeyFilter(BatchProcessor):
    """Forwards records with a key: the filter before a repartition topic.

    Kafka: the filter of OptimizableRepartitionNode.
    """

    takes_arrays = True

    @property
    def drops_rows(self) -> bool:
        """Whether `process_batch` reports each dropped row: it does."""
        return True

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record if it has a key; as in Kafka, others are not counted."""
        if record.key is None:
            cast(EngineContext, self.context).write_dropped(DropReason.NULL_KEY)
        else:
            self.context.forward(record)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with a key."""
        if not has_null(batch.keys):
            return batch, None
        keyed = np.fromiter((key is not None for key in batch.keys), np.bool_, len(batch))
        cast(EngineContext, self.context).write_dropped_rows(DropReason.NULL_KEY, np.flatnonzero(~keyed))
        return _select(batch, keyed, None)


def _truths(results: Sequence[Any]) -> npt.NDArray[np.bool_]:
    if isinstance(results, ArrayColumn) and isinstance(results.array, np.ndarray):
        return results.array.astype(np.bool_)
    check_first_awaited(results, "predicate")
    return np.fromiter(map(bool, results), np.bool_, len(results))


def _libraries(function: Callable[..., Any], *, with_key: bool) -> ArrayLibraries:
    if not isinstance(function, ColumnCall):
        return None, None
    libraries = function.libraries(2 if with_key else 1)
    return (libraries[0], libraries[1]) if with_key else (None, libraries[0])


def _select(batch: RecordBatch, passing: Any, kept: Int64Array | None) -> tuple[RecordBatch, RowOrigin]:
    """Return the rows of `batch` whose entry in `passing` is true.

    Entry i belongs to row kept[i], or to row i if `kept` is None.
    """
    if kept is not None:
        rows = kept[passing]
        return batch.take(rows), rows
    if passing.all():
        return batch, None
    rows = np.flatnonzero(passing)
    if isinstance(batch.keys, ArrayColumn) or isinstance(batch.values, ArrayColumn):
        return batch.take(rows), rows
    flags = passing.tolist()
    selected = RecordBatch(
        list(compress(batch.keys, flags)),
        list(compress(batch.values, flags)),
        batch.timestamps[rows],
        batch.offsets[rows],
        None if batch.headers is None else list(compress(batch.headers, flags)),
    )
    return selected, rows


class StreamMap(BatchProcessor, NeedsResults):
    """Maps each record to another key and value (Kafka class: KStreamMap).

    Args:
        mapper: returns the new key and value, as a pair, from key and value.
    """

    expected = "a pair (key, value)"

    def __init__(self, mapper: KeyValueMapper) -> None:
        self._mapper = mapper

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record with its new key and value.

        Raises TypeError if the mapper returns None.
        """
        pair = self._mapper(record.key, record.value)
        if pair is None:
            raise TypeError(NULL_NOT_ALLOWED)
        key, value = as_pair(pair)
        self.context.forward(Record(key, value, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with new keys and values."""
        applied = apply(self._mapper, (batch.keys, batch.values), failures, NULL_NOT_ALLOWED)
        rows = kept_rows(batch, applied.kept)
        pairs: Sequence[Any] = applied.results
        kept = applied.kept
        if not _are_pairs(pairs):
            checked = apply(as_pair, (pairs,), _of_rows(failures, kept))
            pairs, kept = checked.results, composed(kept, checked.kept)
            rows = kept_rows(batch, kept)
        keys = [key for key, _ in pairs]
        values = [value for _, value in pairs]
        return RecordBatch(keys, values, rows.timestamps, rows.offsets, rows.headers), kept


class StreamSelectKey(BatchProcessor, UsesResults):
    """Gives each record another key (Kafka class: the KStreamMap of selectKey).

    Args:
        selector: returns the new key from key and value.
    """

    held = (KEY_SELECTOR,)
    takes_arrays = True

    def __init__(self, selector: KeyValueMapper) -> None:
        self._selector = selector

    @property
    def libraries(self) -> ArrayLibraries:
        """The libraries of the arrays in which its function takes keys and values."""
        return _libraries(self._selector, with_key=True)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record with its new key."""
        self.context.forward(
            Record(self._selector(record.key, record.value), record.value, record.timestamp, record.headers)
        )

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with their new keys."""
        applied = apply(self._selector, (batch.keys, batch.values), failures)
        rows = kept_rows(batch, applied.kept)
        return RecordBatch(applied.results, rows.values, rows.timestamps, rows.offsets, rows.headers), applied.kept


class StreamMapValues(BatchProcessor, UsesResults):
    """Gives each record another value (Kafka class: KStreamMapValues).

    Args:
        mapper: returns the new value.
        with_key: whether the mapper takes key and value, or only the value.
    """

    held = (MAPPER,)
    takes_arrays = True

    def __init__(self, mapper: Callable[..., Any], with_key: bool) -> None:
        self._mapper = mapper
        self._with_key = with_key

    @property
    def libraries(self) -> ArrayLibraries:
        """The libraries of the arrays in which its function takes keys and values."""
        return _libraries(self._mapper, with_key=self._with_key)

    @property
    def passes_keys(self) -> bool:
        """Whether it forwards the keys of a batch without a look at them."""
        return not self._with_key

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record with its new value."""
        value = self._mapper(record.key, record.value) if self._with_key else self._mapper(record.value)
        self.context.forward(Record(record.key, value, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with their new values."""
        columns = (batch.keys, batch.values) if self._with_key else (batch.values,)
        applied = apply(self._mapper, columns, failures)
        rows = kept_rows(batch, applied.kept)
        return RecordBatch(rows.keys, applied.results, rows.timestamps, rows.offsets, rows.headers), applied.kept


class StreamFlatMap(BatchProcessor, NeedsResults):
    """Maps each record to any number of records (Kafka class: KStreamFlatMap).

    Args:
        mapper: returns an iterable of pairs from key and value.
    """

    expected = "a list of pairs (key, value)"

    def __init__(self, mapper: KeyValueMapper) -> None:
        self._mapper = mapper

    def process(self, record: Record[Any, Any]) -> None:
        """Forward a record for each pair; raises TypeError if the mapper returns None."""
        pairs = self._mapper(record.key, record.value)
        if pairs is None:
            raise TypeError(NULL_NOT_ALLOWED)
        for key, value in map(as_pair, pairs):
            self.context.forward(Record(key, value, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return a row for each pair."""
        applied = apply(self._mapper, (batch.keys, batch.values), failures, NULL_NOT_ALLOWED)
        lists, kept = _listed(_as_pairs, applied, failures)
        repeated, origin = _repeat(batch, lists, kept, with_keys=False)
        repeated.keys = [key for pairs in lists for key, _ in pairs]
        repeated.values = [value for pairs in lists for _, value in pairs]
        return repeated, origin


class StreamFlatMapValues(BatchProcessor, NeedsResults):
    """Maps each value to any number of values of the same key (Kafka class: KStreamFlatMapValues).

    Args:
        mapper: returns an iterable of values.
        with_key: whether the mapper takes key and value, or only the value.
    """

    expected = "a list of values"
    takes_arrays = True

    def __init__(self, mapper: Callable[..., Any], with_key: bool) -> None:
        self._mapper = mapper
        self._with_key = with_key

    @property
    def libraries(self) -> ArrayLibraries:
        """The libraries of the arrays in which its function takes keys and values."""
        return _libraries(self._mapper, with_key=self._with_key)

    @property
    def passes_keys(self) -> bool:
        """Whether it forwards the keys of a batch without a look at them."""
        return not self._with_key

    def process(self, record: Record[Any, Any]) -> None:
        """Forward a record for each value; raises TypeError if the mapper returns None."""
        values = self._mapper(record.key, record.value) if self._with_key else self._mapper(record.value)
        if values is None:
            raise TypeError(NULL_VALUES)
        for value in values if type(values) is list else _as_values(values):
            self.context.forward(Record(record.key, value, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return a row for each value."""
        columns = (batch.keys, batch.values) if self._with_key else (batch.values,)
        applied = apply(self._mapper, columns, failures, NULL_VALUES)
        lists, kept = applied.results, applied.kept
        if kept is None and (found := items_in(lists)) is not None:
            items, lengths = found
            repeated, origin = _repeated(batch, lengths, None, with_keys=True)
            repeated.values = items
            return repeated, origin
        lists = rows_of(lists)
        if not all(type(result) is list for result in lists):
            lists, kept = _listed(_as_values, applied, failures)
        repeated, origin = _repeat(batch, lists, kept, with_keys=True)
        repeated.values = list(chain.from_iterable(lists))
        return repeated, origin


def _listed(
    convert: Callable[[Any], list[Any]], applied: AppliedRows, failures: FailureHandler
) -> tuple[list[list[Any]], Int64Array | None]:
    """Return each result as a list, and the rows that did not fail.

    The rows are those of the batch (None: all). A generator runs the user's code only at this point.
    """
    listed = apply(convert, (applied.results,), _of_rows(failures, applied.kept))
    return rows_of(listed.results), composed(applied.kept, listed.kept)


def _of_rows(failures: FailureHandler, kept: Int64Array | None) -> FailureHandler:
    """Return `failures` for indexes of the results instead of rows of the batch."""
    if kept is None:
        return failures
    return lambda entry, error: failures(int(kept[entry]), error)


def as_pair(pair: Any) -> tuple[Any, Any]:
    """Return a mapper's result as key and value.

    Raises TypeError if it is not a pair. Characters of a text, keys of a dict and members of a set are not a pair, even
    if there are two.
    """
    try:
        if type(pair) is not tuple and isinstance(pair, _NO_PAIRS):
            raise ValueError(f"a {type(pair).__name__} is no pair")
        key, value = pair
    except (TypeError, ValueError) as error:
        raise TypeError(f"The mapper returned {pair!r:.100} where a pair (key, value) was expected.") from error
    return key, value


def _as_pairs(pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
    listed = list(pairs)
    return listed if _are_pairs(listed) else [as_pair(pair) for pair in listed]


def _are_pairs(pairs: Sequence[Any]) -> bool:
    """Return whether all are tuples of two elements; other kinds of pairs also give False."""
    return _TUPLES.issuperset(map(type, pairs)) and _PAIR.issuperset(map(len, pairs))


def _as_values(values: Iterable[Any]) -> list[Any]:
    """Return a mapper's result as a list of values.

    Raises TypeError for a text, whose characters would become values.
    """
    if isinstance(values, str | bytes | bytearray):
        raise TypeError(
            f"The mapper returned the text {values!r:.100} where an iterable of values was expected: return a list, "
            "such as [text] or text.split(), or list(text) if each character is a value."
        )
    return list(values)


def _repeat(
    batch: RecordBatch, lists: Sequence[list[Any]], kept: Int64Array | None, with_keys: bool
) -> tuple[RecordBatch, Int64Array]:
    """Return the rows of `batch` repeated once per entry of their list, and their origins.

    The rows have no values, and keys only if `with_keys`.
    """
    return _repeated(batch, np.fromiter(map(len, lists), np.int64, len(lists)), kept, with_keys)


def _repeated(
    batch: RecordBatch, counts: Int64Array, kept: Int64Array | None, with_keys: bool
) -> tuple[RecordBatch, Int64Array]:
    rows = np.arange(len(batch), dtype=np.int64) if kept is None else kept
    origin = np.repeat(rows, counts)
    keys: Sequence[Any] = []
    if with_keys and isinstance(batch.keys, LazyColumn):
        keys = batch.keys.take(origin)
    elif with_keys:
        source = np.fromiter(batch.keys, object, len(batch))
        keys = np.repeat(source if kept is None else source[kept], counts).tolist()
    headers = None if batch.headers is None else [batch.headers[row] for row in origin.tolist()]
    return RecordBatch(keys, [], batch.timestamps[origin], batch.offsets[origin], headers), origin


class StreamPeek(BatchProcessor):
    """Runs an action on each record and forwards it (Kafka class: KStreamPeek).

    Args:
        action: the action on key and value.
    """

    takes_arrays = True

    def __init__(self, action: ForeachAction) -> None:
        self._action = action

    @property
    def libraries(self) -> ArrayLibraries:
        """The libraries of the arrays in which its function takes keys and values."""
        return _libraries(self._action, with_key=True)

    def process(self, record: Record[Any, Any]) -> None:
        """Call the action, then forward the record."""
        check_awaited(self._action(record.key, record.value), "action")
        self.context.forward(record)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Call the action for each row and return the rows."""
        applied = apply(self._action, (batch.keys, batch.values), failures)
        check_first_awaited(applied.results, "action")
        return kept_rows(batch, applied.kept), applied.kept


class StreamForeach(BatchProcessor):
    """Runs an action on each record, without output (Kafka class: the terminal KStreamForeach).

    Args:
        action: the action on key and value.
    """

    takes_arrays = True

    def __init__(self, action: ForeachAction) -> None:
        self._action = action

    @property
    def libraries(self) -> ArrayLibraries:
        """The libraries of the arrays in which its function takes keys and values."""
        return _libraries(self._action, with_key=True)

    def process(self, record: Record[Any, Any]) -> None:
        """Call the action."""
        check_awaited(self._action(record.key, record.value), "action")

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Call the action for each row and return no rows."""
        applied = apply(self._action, (batch.keys, batch.values), failures)
        check_first_awaited(applied.results, "action")
        return batch.slice(0, 0), np.empty(0, np.int64)


class StreamMerge(BatchProcessor):
    """Forwards the records of all parents (Kafka class: PassThrough)."""

    takes_arrays = True

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record."""
        self.context.forward(record)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows."""
        return batch, None


class StreamBranch(BranchingProcessor, UsesResults):
    """Forwards each record to the child of the first matching predicate (Kafka class: KStreamBranch).

    Other records go to the default child, if it exists.

    Args:
        predicates: the predicates of key and value.
        children: the names of their children, then the name of the default child if it exists.
    """

    held = (PREDICATES,)

    def __init__(self, predicates: Sequence[Predicate], children: Sequence[str]) -> None:
        self._predicates = tuple(predicates)
        self._children = tuple(children)

    def _place(self, key: Any, value: Any) -> int:
        """Return the index of the child for a record.

        The default child follows that of the last predicate.
        """
        for place, predicate in enumerate(self._predicates):
            if predicate(key, value):
                return place
        return len(self._predicates)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record to one child, or drop it."""
        place = self._place(record.key, record.value)
        if place < len(self._children):
            self.context.forward(record, self._children[place])

    def branch_batch(
        self, batch: RecordBatch, failures: FailureHandler
    ) -> tuple[RecordBatch, RowOrigin, Mapping[str, Int64Array]]:
        """Return the rows, and the indexes of each child's rows."""
        applied = apply(self._place, (batch.keys, batch.values), failures)
        places = np.fromiter(applied.results, np.int64, len(applied.results))
        rows = {child: np.flatnonzero(places == place) for place, child in enumerate(self._children)}
        return kept_rows(batch, applied.kept), applied.kept, rows


class StreamPrint(Processor):
    """Writes a line for each record, `[label]: text`, without output records (Kafka class: KStreamPrint).

    The file is opened for each record, so its lines are visible immediately, from all tasks.

    Args:
        label: the label of the lines.
        mapper: returns the text from key and value; None for key and value themselves.
        path: the file; None for standard output.
    """

    def __init__(self, label: str, mapper: Callable[[Any, Any], str] | None, path: str | None) -> None:
        self._label = label
        self._mapper = mapper or _key_and_value
        self._path = path

    def process(self, record: Record[Any, Any]) -> None:
        """Write the line of the record."""
        line = f"[{self._label}]: {self._mapper(record.key, record.value)}\n"
        if self._path is None:
            sys.stdout.write(line)
            return
        with Path(self._path).open("a", encoding="utf-8") as file:
            file.write(line)


def _key_and_value(key: Any, value: Any) -> str:
    return f"{_text(key)}, {_text(value)}"


def _text(part: Any) -> str:
    return "null" if part is None else str(part)
