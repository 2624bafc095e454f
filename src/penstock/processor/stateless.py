"""The operators of a stream that keep no state; each but `StreamPrint` works on one record or column by column, with
the same result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress, repeat
from pathlib import Path
from typing import Any

import numpy as np

from penstock.processor.api import BatchProcessor, BranchingProcessor, FailureHandler, Processor, RowOrigin
from penstock.processor.columns import NULL_NOT_ALLOWED, AppliedRows, apply, composed, has_null, kept_rows
from penstock.processor.first_results import KEY_SELECTOR, MAPPER, PREDICATE, PREDICATES, UsesResults
from penstock.record import Int64Array, KeyValue, Record, RecordBatch

Predicate = Callable[[Any, Any], bool]
KeyValueMapper = Callable[[Any, Any], Any]
ForeachAction = Callable[[Any, Any], object]

_TUPLES = frozenset((tuple, KeyValue))
_PAIR = frozenset((2,))
_NO_PAIRS = (str, bytes, bytearray, dict, set, frozenset)

NULL_VALUES = "The provided ValueMapper returned null, expected an iterable of values."


class StreamFilter(BatchProcessor, UsesResults):
    """Forwards the records that match a predicate, or that do not match it (Kafka class: KStreamFilter)."""

    held = (PREDICATE,)

    def __init__(self, predicate: Predicate, negate: bool = False) -> None:
        """Take the predicate of key and value; `negate` lets the others pass."""
        self._predicate = predicate
        self._negate = negate

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record if it passes."""
        if bool(self._predicate(record.key, record.value)) != self._negate:
            self.context.forward(record)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows that pass."""
        applied = apply(self._predicate, (batch.keys, batch.values), failures)
        passing = np.fromiter(map(bool, applied.results), np.bool_, len(applied.results))
        if self._negate:
            passing = ~passing
        return _select(batch, passing, applied.kept)


class NullKeyFilter(BatchProcessor):
    """Lets the records with a key pass: the filter before a repartition topic (Kafka: the filter of
    OptimizableRepartitionNode)."""

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record if it has a key."""
        if record.key is not None:
            self.context.forward(record)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with a key."""
        if not has_null(batch.keys):
            return batch, None
        return _select(batch, np.fromiter((key is not None for key in batch.keys), np.bool_, len(batch)), None)


def _select(batch: RecordBatch, passing: Any, kept: Int64Array | None) -> tuple[RecordBatch, RowOrigin]:
    """Return the rows of `batch` whose entry in `passing` is true; entry i belongs to row kept[i], or to row i."""
    if kept is not None:
        rows = kept[passing]
        return batch.take(rows), rows
    if passing.all():
        return batch, None
    rows = np.flatnonzero(passing)
    flags = passing.tolist()
    selected = RecordBatch(
        list(compress(batch.keys, flags)),
        list(compress(batch.values, flags)),
        batch.timestamps[rows],
        batch.offsets[rows],
        None if batch.headers is None else list(compress(batch.headers, flags)),
    )
    return selected, rows


class StreamMap(BatchProcessor):
    """Turns each record into another key and value (Kafka class: KStreamMap)."""

    def __init__(self, mapper: KeyValueMapper) -> None:
        """Take the mapper of key and value to a pair."""
        self._mapper = mapper

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record with the key and value that the mapper returns; raises TypeError if it returns None."""
        pair = self._mapper(record.key, record.value)
        if pair is None:
            raise TypeError(NULL_NOT_ALLOWED)
        key, value = as_pair(pair)
        self.context.forward(Record(key, value, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with new keys and values."""
        applied = apply(self._mapper, (batch.keys, batch.values), failures, NULL_NOT_ALLOWED)
        rows = kept_rows(batch, applied.kept)
        pairs = applied.results
        kept = applied.kept
        if not _are_pairs(pairs):
            checked = apply(as_pair, (pairs,), _of_rows(failures, kept))
            pairs, kept = checked.results, composed(kept, checked.kept)
            rows = kept_rows(batch, kept)
        keys = [key for key, _ in pairs]
        values = [value for _, value in pairs]
        return RecordBatch(keys, values, rows.timestamps, rows.offsets, rows.headers), kept


class StreamSelectKey(BatchProcessor, UsesResults):
    """Gives each record another key (Kafka class: the KStreamMap of selectKey)."""

    held = (KEY_SELECTOR,)

    def __init__(self, selector: KeyValueMapper) -> None:
        """Take the mapper of key and value to the new key."""
        self._selector = selector

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
    """Gives each record another value (Kafka class: KStreamMapValues)."""

    held = (MAPPER,)

    def __init__(self, mapper: Callable[..., Any], with_key: bool) -> None:
        """Take the mapper, of the value, or of key and value if `with_key`."""
        self._mapper = mapper
        self._with_key = with_key

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


class StreamFlatMap(BatchProcessor):
    """Turns each record into any number of records (Kafka class: KStreamFlatMap)."""

    def __init__(self, mapper: KeyValueMapper) -> None:
        """Take the mapper of key and value to an iterable of pairs."""
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


class StreamFlatMapValues(BatchProcessor):
    """Turns each value into any number of values of the same key (Kafka class: KStreamFlatMapValues)."""

    def __init__(self, mapper: Callable[..., Any], with_key: bool) -> None:
        """Take the mapper to an iterable of values, of the value, or of key and value if `with_key`."""
        self._mapper = mapper
        self._with_key = with_key

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
        if not all(type(result) is list for result in lists):
            lists, kept = _listed(_as_values, applied, failures)
        repeated, origin = _repeat(batch, lists, kept, with_keys=True)
        repeated.values = list(chain.from_iterable(lists))
        return repeated, origin


def _listed(
    convert: Callable[[Any], list[Any]], applied: AppliedRows, failures: FailureHandler
) -> tuple[list[list[Any]], Int64Array | None]:
    """Return each result as a list (a generator runs the user's code only now) and the rows of the batch that did not
    fail (None: all)."""
    listed = apply(convert, (applied.results,), _of_rows(failures, applied.kept))
    return listed.results, composed(applied.kept, listed.kept)


def _of_rows(failures: FailureHandler, kept: Int64Array | None) -> FailureHandler:
    """Return `failures` for an entry of the results instead of a row of the batch."""
    if kept is None:
        return failures
    return lambda entry, error: failures(int(kept[entry]), error)


def as_pair(pair: Any) -> tuple[Any, Any]:
    """Return what a mapper returned as key and value; raises TypeError if it is no pair. The characters of a text, the
    keys of a dict or the members of a set are none, though there may be two."""
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


def _are_pairs(pairs: list[Any]) -> bool:
    """Return whether all are tuples of two; False says nothing of others."""
    return _TUPLES.issuperset(map(type, pairs)) and _PAIR.issuperset(map(len, pairs))


def _as_values(values: Iterable[Any]) -> list[Any]:
    """Return the values that a mapper returned; raises TypeError for a text, whose characters would become values."""
    if isinstance(values, str | bytes | bytearray):
        raise TypeError(
            f"The mapper returned the text {values!r:.100} where an iterable of values was expected: return a list, "
            "such as [text] or text.split(), or list(text) if each character is a value."
        )
    return list(values)


def _repeat(
    batch: RecordBatch, lists: list[list[Any]], kept: Int64Array | None, with_keys: bool
) -> tuple[RecordBatch, Int64Array]:
    """Return the rows of `batch` repeated once for each entry of their list, without values (and without keys unless
    asked for), and their origins."""
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    rows = np.arange(len(batch), dtype=np.int64) if kept is None else kept
    origin = np.repeat(rows, counts)
    keys: list[Any] = []
    if with_keys:
        source = batch.keys if kept is None else [batch.keys[row] for row in kept.tolist()]
        keys = list(chain.from_iterable(map(repeat, source, counts.tolist())))
    headers = None if batch.headers is None else [batch.headers[row] for row in origin.tolist()]
    return RecordBatch(keys, [], batch.timestamps[origin], batch.offsets[origin], headers), origin


class StreamPeek(BatchProcessor):
    """Shows each record to an action and forwards it (Kafka class: KStreamPeek)."""

    def __init__(self, action: ForeachAction) -> None:
        """Take the action on key and value."""
        self._action = action

    def process(self, record: Record[Any, Any]) -> None:
        """Call the action, then forward the record."""
        self._action(record.key, record.value)
        self.context.forward(record)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Call the action for each row and return the rows."""
        applied = apply(self._action, (batch.keys, batch.values), failures)
        return kept_rows(batch, applied.kept), applied.kept


class StreamForeach(BatchProcessor):
    """Gives each record to an action and ends there (Kafka class: the terminal KStreamForeach)."""

    def __init__(self, action: ForeachAction) -> None:
        """Take the action on key and value."""
        self._action = action

    def process(self, record: Record[Any, Any]) -> None:
        """Call the action."""
        self._action(record.key, record.value)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Call the action for each row and return no rows."""
        apply(self._action, (batch.keys, batch.values), failures)
        return batch.slice(0, 0), np.empty(0, np.int64)


class StreamMerge(BatchProcessor):
    """Passes on what comes from any parent (Kafka class: PassThrough)."""

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record."""
        self.context.forward(record)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows."""
        return batch, None


class StreamBranch(BranchingProcessor, UsesResults):
    """Forwards each record to the child of the first predicate that matches, or to the default child, if any
    (Kafka class: KStreamBranch).
    """

    held = (PREDICATES,)

    def __init__(self, predicates: Sequence[Predicate], children: Sequence[str]) -> None:
        """Take the predicates and the names of their children, and of the default child if there is one."""
        self._predicates = tuple(predicates)
        self._children = tuple(children)

    def _place(self, key: Any, value: Any) -> int:
        """Return the place of the child for a record; that behind the last predicate is the default child's."""
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
        """Return the rows, and which of them go to which child."""
        applied = apply(self._place, (batch.keys, batch.values), failures)
        places = np.fromiter(applied.results, np.int64, len(applied.results))
        rows = {child: np.flatnonzero(places == place) for place, child in enumerate(self._children)}
        return kept_rows(batch, applied.kept), applied.kept, rows


class StreamPrint(Processor):
    """Writes a line for each record, `[label]: text`, and ends there (Kafka class: KStreamPrint).

    A file is opened for each record, so its lines are visible immediately, whichever task wrote them.
    """

    def __init__(self, label: str, mapper: Callable[[Any, Any], str] | None, path: str | None) -> None:
        """Take the label, the function that makes the text (None: key and value), and the file (None: standard
        output)."""
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
