"""Records, columnar batches of records, and the small values inside them.

User code sees `Record`; tasks and hosts exchange `RecordBatch`. Neither knows topics or serdes: a batch may hold bytes
(outside a task) or objects (inside). Records and batches are immutable by convention: an operator that changes a column
makes a new batch that shares the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import is_
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from penstock.errors import StreamsError
from penstock_broker.common.durations import LATEST_MS, timestamp_ms

K = TypeVar("K")
V = TypeVar("V")
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")
N = TypeVar("N", bound=tuple[Any, ...])

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers of a record: (name, value) pairs in order; names may repeat (Kafka class: Headers)."""

Int64Array = npt.NDArray[np.int64]

NO_TIMESTAMP = -1


def checked_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return a user's headers as a tuple.

    Raises TypeError unless each is a pair of a name and bytes or None.
    """
    found = tuple(headers)
    for each in found:
        match each:
            case (str(), bytes() | None):
                pass
            case _:
                raise TypeError(
                    f"Invalid header {each!r:.100}: expected a sequence of pairs of a name (str) and a value (bytes or "
                    'None), such as [("trace", b"1")]; of a dict, give its items().'
                )
    return found


class ReadOnlyRecord(Protocol[K_co, V_co]):
    """A record that its reader does not change (KIP-1356; Kafka class: ReadOnlyRecord).

    Queries of stores with headers return such records. `Record` implements it.
    """

    @property
    def key(self) -> K_co:
        """The key, a Windowed in window and session stores."""
        ...

    @property
    def value(self) -> V_co:
        """The value."""
        ...

    @property
    def timestamp(self) -> int:
        """The timestamp (ms since the epoch)."""
        ...

    @property
    def headers(self) -> Headers:
        """The headers, (name, bytes or None) pairs."""
        ...


class Record(Generic[K, V]):
    """A key, a value, a timestamp and headers (Kafka class: org.apache.kafka.streams.processor.api.Record).

    It implements ReadOnlyRecord.

    Args:
        key: any object.
        value: any object.
        timestamp: in ms since the epoch.
        headers: (name, bytes or None) pairs.

    Raises:
        StreamsError: the timestamp is negative.
        TypeError: the timestamp is not a whole number, or the headers are not pairs.
    """

    __slots__ = ("headers", "key", "timestamp", "value")

    def __init__(self, key: K, value: V, timestamp: int, headers: Headers = ()) -> None:
        if timestamp.__class__ is not int or not 0 <= timestamp <= LATEST_MS:
            timestamp = timestamp_ms(timestamp, "the timestamp of a record")
            if timestamp < 0:
                raise StreamsError("Malformed Record") from ValueError(
                    f"Timestamp may not be negative. Got: {timestamp}"
                )
        self.key = key
        self.value = value
        self.timestamp = timestamp
        # tasks create a record for each row of a batch, and their headers already are tuples
        self.headers = headers if headers.__class__ is tuple else checked_headers(headers)

    def with_key(self, key: Any) -> Record[Any, V]:
        """Return this record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record[K, Any]:
        """Return this record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """Return this record with another timestamp (ms); raises StreamsError if it is negative."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> Record[K, V]:
        """Return this record with other headers; raises TypeError unless they are pairs."""
        return Record(self.key, self.value, self.timestamp, checked_headers(headers))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.key, self.value, self.timestamp, self.headers) == (
            other.key,
            other.value,
            other.timestamp,
            other.headers,
        )

    def __hash__(self) -> int:
        return hash((self.key, self.value, self.timestamp, self.headers))

    def __repr__(self) -> str:
        return f"Record(key={self.key!r}, value={self.value!r}, timestamp={self.timestamp}, headers={self.headers!r})"


def named_tuples(kind: type[N], *columns: Iterable[Any]) -> list[N]:
    """Return a named tuple of `kind` for each row of `columns`, one column per field.

    Like `map(kind, *columns)`, without a call for each row. All columns but one may be endless.
    """
    return list(map(partial(tuple.__new__, kind), zip(*columns, strict=False)))


class RecordMetadata(NamedTuple):
    """The origin of the current input record (Kafka class: RecordMetadata).

    In punctuators, topic is None, partition -1 and offset -1.
    """

    topic: str | None
    partition: int
    offset: int


NO_METADATA = RecordMetadata(None, -1, -1)


class TopicPartition(NamedTuple):
    """A partition of a topic (Kafka class: TopicPartition)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Change(NamedTuple):
    """An update of a table: the new value and, for children that request it, the old value (Kafka class: Change).

    Args:
        is_latest: whether no newer version of the key is known; False only for late updates of versioned tables
            (KIP-914).
    """

    new_value: Any
    old_value: Any
    is_latest: bool = True


class ValueAndTimestamp(NamedTuple):
    """A value of a table and the timestamp (ms) of its last update (Kafka class: ValueAndTimestamp)."""

    value: Any
    timestamp: int


class ValueTimestampHeaders(ValueAndTimestamp):
    """A value, its timestamp (ms) and its headers in a store (Kafka class: ValueTimestampHeaders)."""

    headers: Headers

    def __new__(cls, value: Any, timestamp: int, headers: Headers = ()) -> ValueTimestampHeaders:
        """Create a value, without headers by default."""
        made = super().__new__(cls, value, timestamp)
        made.headers = headers
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ValueTimestampHeaders):
            return NotImplemented
        return tuple(self) == tuple(other) and self.headers == other.headers

    def __ne__(self, other: object) -> bool:
        return not self == other  # otherwise tuple.__ne__ applies

    def __hash__(self) -> int:
        return hash((*self, self.headers))

    def __repr__(self) -> str:
        return f"ValueTimestampHeaders(value={self.value!r}, timestamp={self.timestamp}, headers={self.headers!r})"


class AggregationWithHeaders(NamedTuple):
    """The aggregate of a session and its headers (Kafka class: AggregationWithHeaders)."""

    aggregation: Any
    headers: Headers = ()


class FailedRecord(NamedTuple):
    """The record on which a task failed.

    Args:
        node: the name of the failed node.
        topic: of the input record; None in a punctuator.
        partition: of the input record; -1 in a punctuator.
        offset: of the input record; -1 in a punctuator.
        key: the input key of the node as a short text; None without a record, or if its row in the batch is unknown.
        value: the input value of the node as a short text; None in the same cases.
    """

    node: str
    topic: str | None
    partition: int
    offset: int
    key: str | None = None
    value: str | None = None


class ConsumerRecord(NamedTuple):
    """A record from a topic, with its timestamp in ms (Kafka class: ConsumerRecord).

    Deserialization exception handlers receive key and value as bytes, timestamp extractors as objects.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers = ()


class KeyValue(NamedTuple):
    """A key and a value (Kafka class: KeyValue)."""

    key: Any
    value: Any


def running_maximum(times: Int64Array) -> Int64Array:
    """Return the running maximum of `times`; an ascending array, the usual case, is returned unchanged."""
    descends = len(times) > 1 and bool((times[1:] < times[:-1]).any())
    return np.maximum.accumulate(times) if descends else times


class LazyColumn(Sequence[T]):
    """A column whose rows become objects when they are used."""

    __slots__ = ()

    @abstractmethod
    def rows(self) -> list[T]:
        """Return the rows as objects."""

    @abstractmethod
    def take(self, rows: npt.NDArray[np.integer[Any]] | slice) -> LazyColumn[T]:
        """Return the selected rows."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self.rows()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.rows())


class DictionaryColumn(LazyColumn[T]):
    """A column with few distinct entries: each entry once, and an index per row.

    Like Arrow's dictionary encoding. Some entries may occur in no row.

    Args:
        entries: the entries, as an array of objects.
        places: the index of each row's entry (int32).
    """

    __slots__ = ("_entries", "_rows", "places")

    def __init__(self, entries: npt.NDArray[np.object_], places: npt.NDArray[np.int32]) -> None:
        self._entries = entries
        self.places = places
        self._rows: list[T] | None = None

    @staticmethod
    def of(entries: Sequence[T], places: npt.NDArray[np.int32]) -> DictionaryColumn[T]:
        """Create the column from `entries` and the index of each row's entry."""
        return DictionaryColumn(np.fromiter(entries, object, len(entries)), places)

    @staticmethod
    def concat(columns: Sequence[Sequence[T]]) -> DictionaryColumn[T]:
        """Return the rows of all `columns`, concatenated."""
        merged: dict[T, int] = {}
        places = []
        for column in columns:
            renumbered = np.array([merged.setdefault(entry, len(merged)) for entry in entries_of(column)], np.int32)
            places.append(renumbered[column.places] if isinstance(column, DictionaryColumn) else renumbered)
        return DictionaryColumn.of(list(merged), np.concatenate(places))

    def entries(self) -> list[T]:
        """Return the entries."""
        entries: list[T] = self._entries.tolist()
        return entries

    def rows(self) -> list[T]:
        """Return the entry of each row."""
        if self._rows is None:
            self._rows = self._entries[self.places].tolist()
        return self._rows

    def take(self, rows: npt.NDArray[np.integer[Any]] | slice) -> DictionaryColumn[T]:
        """Return the selected rows."""
        return DictionaryColumn(self._entries, self.places[rows])

    def compact(self) -> tuple[list[T], npt.NDArray[np.int32]]:
        """Return the used entries by their first rows, and the index of each row's entry."""
        rows = len(self.places)
        first = np.full(len(self._entries), rows, np.int64)
        first[self.places[::-1]] = np.arange(rows - 1, -1, -1)  # the last write, the first row, wins
        used = np.argsort(first, kind="stable")[: np.count_nonzero(first < rows)]
        renumbered = np.empty(len(self._entries), np.int32)
        renumbered[used] = np.arange(len(used), dtype=np.int32)
        entries: list[T] = self._entries[used].tolist()
        return entries, renumbered[self.places]

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, entry: object) -> bool:
        return entry in self.rows()


class ArrayColumn(LazyColumn[T]):
    """A column as an array, whose rows become objects when they are used.

    Between two functions on arrays there are no objects. The array holds 64-bit numbers, booleans, or an array of Arrow
    with such numbers, booleans, strings, binaries or lists of them: each row is what `tolist` gives.

    Args:
        array: a one-dimensional array of numpy or Arrow, which does not change.
        may_have_null: whether a row may be None.
    """

    __slots__ = ("_rows", "array", "may_have_null")

    def __init__(self, array: Any, may_have_null: bool = False) -> None:
        self.array = array
        self.may_have_null = may_have_null
        self._rows: list[T] | None = None

    def rows(self) -> list[T]:
        """Return the rows as objects."""
        if self._rows is None:
            self._rows = self.array.tolist()
        return self._rows

    def take(self, rows: npt.NDArray[np.integer[Any]] | slice) -> ArrayColumn[T]:
        """Return the selected rows."""
        array = self.array[rows] if isinstance(rows, slice) else self.array.take(rows)
        return ArrayColumn(array, self.may_have_null)

    def __len__(self) -> int:
        return len(self.array)

    def __contains__(self, entry: object) -> bool:
        return (entry is not None or self.may_have_null) and entry in self.rows()


def column_of(entries: list[T], places: npt.NDArray[np.int32]) -> Sequence[T]:
    """Return the column of the distinct `entries` at `places`: a DictionaryColumn if entries repeat enough."""
    return DictionaryColumn.of(entries, places) if 2 * len(entries) <= len(places) else take_from(entries, places)


def rows_of(column: Sequence[T]) -> list[T]:
    """Return a column as a list, one entry per row."""
    if isinstance(column, LazyColumn):
        return column.rows()
    return column if isinstance(column, list) else list(column)


def are_same(column: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether the rows of both are the same objects; False for two columns whose rows need not be objects."""
    if column is other:
        return True
    if _may_lack_objects(column) or _may_lack_objects(other):
        return False
    return all(map(is_, column, other))


def _may_lack_objects(column: Sequence[Any]) -> bool:
    return isinstance(column, LazyColumn) and not isinstance(column, DictionaryColumn)


def entries_of(column: Sequence[T]) -> list[T]:
    """Return the entries of a column, each at least once. A property of all entries holds for all rows."""
    return column.entries() if isinstance(column, DictionaryColumn) else rows_of(column)


def take_from(column: Sequence[T], indices: npt.NDArray[np.integer[Any]]) -> list[T]:
    """Return the entries of `column` at `indices` (any order, repeats allowed)."""
    if len(indices) * 4 < len(column):  # an array of the whole column would cost more than it saves
        return [column[index] for index in indices.tolist()]
    taken: list[T] = np.fromiter(column, object, len(column))[indices].tolist()
    return taken


def _taken(column: Sequence[T], rows: npt.NDArray[np.integer[Any]]) -> Sequence[T]:
    return column.take(rows) if isinstance(column, LazyColumn) else take_from(column, rows)


def sliced(column: Sequence[T], start: int, stop: int) -> Sequence[T]:
    """Return the entries of `column` from `start` up to, but not including, `stop`."""
    if isinstance(column, LazyColumn):
        return column.take(slice(start, stop))
    return column[start:stop]


def _concatenated(columns: Sequence[Sequence[T]]) -> Sequence[T]:
    in_dictionaries = sum(len(column) for column in columns if isinstance(column, DictionaryColumn))
    if 2 * in_dictionaries > sum(map(len, columns)):
        return DictionaryColumn.concat(columns)
    return list(chain.from_iterable(columns))


@dataclass(slots=True)
class RecordBatch:
    """Records of a topic partition or a topology edge, as columns of equal length.

    Args:
        keys: bytes or None outside a task, objects inside: a list, a DictionaryColumn between tasks if few bytes
            repeat, an ArrayColumn between functions on arrays, or keys that nothing has read (`UnreadColumn`).
        values: as for the keys. If both are the same object (such as after a group_by of the value), it is processed
            once.
        timestamps: an int64 array (ms).
        offsets: an int64 array: the offset of each row's input record.
        headers: a list, or None if no record has headers.
    """

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Int64Array
    offsets: Int64Array
    headers: list[Headers] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def of(rows: Sequence[tuple[Any, Any, int, int, Headers]]) -> RecordBatch:
        """Create a batch from rows of (key, value, timestamp in ms, offset, headers)."""
        headers = [row[4] for row in rows]
        return RecordBatch(
            keys=[row[0] for row in rows],
            values=[row[1] for row in rows],
            timestamps=np.fromiter((row[2] for row in rows), np.int64, len(rows)),
            offsets=np.fromiter((row[3] for row in rows), np.int64, len(rows)),
            headers=headers if any(headers) else None,
        )

    def header_column(self) -> Sequence[Headers]:
        """Return the headers of all rows."""
        return [()] * len(self) if self.headers is None else self.headers

    def headers_at(self, index: int) -> Headers:
        """Return the headers of the row `index`."""
        return () if self.headers is None else self.headers[index]

    def slice(self, start: int, stop: int) -> RecordBatch:
        """Return the rows from `start` up to, but not including, `stop`."""
        keys = sliced(self.keys, start, stop)
        return RecordBatch(
            keys,
            keys if self.values is self.keys else sliced(self.values, start, stop),
            self.timestamps[start:stop],
            self.offsets[start:stop],
            None if self.headers is None else self.headers[start:stop],
        )

    def take(self, indices: Int64Array) -> RecordBatch:
        """Return the rows at `indices` (int64, any order, repeats allowed)."""
        keys = _taken(self.keys, indices)
        return RecordBatch(
            keys,
            keys if self.values is self.keys else _taken(self.values, indices),
            self.timestamps[indices],
            self.offsets[indices],
            None if self.headers is None else take_from(self.headers, indices),
        )

    @staticmethod
    def concat(batches: Sequence[RecordBatch]) -> RecordBatch:
        """Return the rows of all `batches`, concatenated."""
        if len(batches) == 1:
            return batches[0]
        if not batches:
            return RecordBatch([], [], np.empty(0, np.int64), np.empty(0, np.int64))
        headers: list[Headers] | None = None
        if any(batch.headers is not None for batch in batches):
            headers = [each for batch in batches for each in batch.header_column()]
        keys = _concatenated([batch.keys for batch in batches])
        return RecordBatch(
            keys,
            keys
            if all(batch.values is batch.keys for batch in batches)
            else _concatenated([batch.values for batch in batches]),
            np.concatenate([batch.timestamps for batch in batches]),
            np.concatenate([batch.offsets for batch in batches]),
            headers,
        )


def listed(batch: RecordBatch) -> RecordBatch:
    """Return `batch` with lists in place of arrays and unread columns."""
    if not _may_lack_objects(batch.keys) and not _may_lack_objects(batch.values):
        return batch
    keys = rows_of(batch.keys)
    values = keys if batch.values is batch.keys else rows_of(batch.values)
    return RecordBatch(keys, values, batch.timestamps, batch.offsets, batch.headers)


def size_of(batch: RecordBatch) -> int:
    """Return the size of the keys and values of `batch` in bytes."""
    return _bytes_of(batch.keys) + _bytes_of(batch.values)


def _bytes_of(column: Sequence[bytes | None]) -> int:
    if type(column) is not list and isinstance(column, DictionaryColumn):
        sizes = np.array([0 if entry is None else len(entry) for entry in column.entries()], np.int64)
        return int(sizes[column.places].sum())
    try:
        return sum(map(len, cast("Sequence[bytes]", column)))
    except TypeError:  # an entry is None
        return sum(map(len, filter(None, column)))


class PartitionBatch(NamedTuple):
    """Serialised records of one topic partition: input and output of tasks, and input of the sink.

    Args:
        lane: in repartition topics, the sending task, out of those that write to the partition; each lane has its own
            offsets. 0 elsewhere.
    """

    topic: str
    partition: int
    batch: RecordBatch
    lane: int = 0
