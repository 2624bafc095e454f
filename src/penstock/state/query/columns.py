"""Store entries and topic records as columns of a table.

Columns have types of Arrow and of Spark; this module does not import Spark.

Columns of a store: `partition`, if all partitions are read; `key`; `window_start` and `window_end` of windows and
sessions; `value`; `timestamp`, if the store keeps one. Records also have `headers`. Keys and values have the types of
their serdes: numbers, texts, booleans and bytes natively, UUIDs and JSON as text, objects of dataclasses and pydantic
models as structs (structs.py), everything else as the serde's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from penstock.errors import InvalidStateStoreError
from penstock.notebook import TableRows, time_text, value_text
from penstock.record import NO_TIMESTAMP, Headers
from penstock.serdes import Serde
from penstock.serdes.json import JsonSerde, PydanticSerde, TypedJsonSerde
from penstock.serdes.primitive import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
)
from penstock.serdes.windowed import WindowedSerde
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.query.structs import struct_of
from penstock.state.query.values import plain_of
from penstock.state.session_store import TypedSessionStore
from penstock.state.typed_store import TypedStore
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from penstock.state.window_store import TypedWindowStore
from penstock.windows import LONG_MAX, Windowed

_ROWS = 10_000
"""Rows of one Arrow batch."""

_BINARY = ("binary", pa.binary())
_PLAIN: dict[type[Serde], tuple[str, pa.DataType]] = {
    StringSerde: ("string", pa.string()),
    BytesSerde: _BINARY,
    ShortSerde: ("smallint", pa.int16()),
    IntegerSerde: ("int", pa.int32()),
    LongSerde: ("bigint", pa.int64()),
    FloatSerde: ("float", pa.float32()),
    DoubleSerde: ("double", pa.float64()),
    BooleanSerde: ("boolean", pa.bool_()),
}
_HEADERS_DDL = "array<struct<key: string, value: binary>>"
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_JSON = (JsonSerde, TypedJsonSerde, PydanticSerde)


Part = Callable[[Any, Any], Any]
"""Returns a column's part of an entry, as a Python object; times are ms."""


class Column(NamedTuple):
    """One column of a table.

    It has a name, its types in Spark's DDL (None: Spark never sees it) and in Arrow, and two functions from an entry to
    its part: as a Python object, and in Arrow's form.
    """

    name: str
    ddl: str | None
    type: pa.DataType
    part: Part
    of: Callable[[Any, Any], Any]

    def text(self, key: Any, value: Any) -> str:
        """Return the column's part of an entry as a short text."""
        part = self.part(key, value)
        return time_text(part) if pa.types.is_timestamp(self.type) else value_text(part)


def record_batches(columns: Sequence[Column], entries: Iterator[tuple[Any, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield `entries` in batches of a limited number of rows."""
    while rows := list(islice(entries, _ROWS)):
        arrays = [pa.array([column.of(key, value) for key, value in rows], column.type) for column in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of `columns`."""
    return pa.schema([(column.name, column.type) for column in columns])


def first_rows(columns: Sequence[Column], entries: Iterator[tuple[Any, Any]], limit: int) -> TableRows:
    """Return the first entries, up to `limit`, as texts."""
    rows = [[column.text(key, value) for column in columns] for key, value in islice(entries, limit)]
    return TableRows([column.name for column in columns], rows, next(entries, None) is not None)


class StateColumns:
    """The columns of one kind of store, over all partitions.

    Args:
        store: any partition of the store.

    Raises:
        InvalidStateStoreError: this kind of store is not a table.
    """

    def __init__(self, store: Any) -> None:
        if not isinstance(
            store, TypedKeyValueStore | TypedWindowStore | TypedSessionStore | TypedVersionedKeyValueStore
        ):
            raise InvalidStateStoreError(
                f"{type(store).__name__} cannot be read as a table: expected a key-value, window, session or versioned "
                "store."
            )
        windowed = isinstance(store, TypedWindowStore | TypedSessionStore)
        self.key = _of_serde("key", store.key_serde, _windowed_key if windowed else _key)
        self.value = _of_serde("value", store.value_serde, _value_of(store))
        self._columns = [
            self.key,
            *(_WINDOW if windowed else ()),
            self.value,
            *((time_column("timestamp", _timestamp),) if _has_timestamps(store) else ()),
        ]

    @property
    def ddl(self) -> str:
        """The schema with the partition, in Spark's DDL."""
        return ", ".join(["partition int", *(f"{column.name} {column.ddl}" for column in self._columns)])

    @property
    def schema(self) -> pa.Schema:
        """The schema with the partition, for Arrow."""
        return pa.schema([("partition", pa.int32()), *self.entry_schema])

    @property
    def entry_schema(self) -> pa.Schema:
        """The schema without the partition, for Arrow."""
        return schema_of(self._columns)

    def batches(self, partition: int, store: Any) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one partition of the store, with the partition."""
        for batch in self.entry_batches(store):
            numbers = pa.array([partition] * len(batch), pa.int32())
            yield pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=self.schema)

    def entry_batches(self, store: Any) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one partition of the store."""
        with closing(_entries(store)) as entries:
            yield from record_batches(self._columns, entries)

    def facts(self, stores: Sequence[Any], first: TableRows) -> dict[str, str]:
        """Return facts about the partitions `stores` for a notebook, by name, besides their `first` rows."""
        facts = {"kind": stores[0].kind}
        if not first.more:
            facts["entries"] = str(len(first.rows))
        elif isinstance(stores[0], TypedKeyValueStore):  # their counts omit entries held back by caches
            facts["entries"] = f"about {max(sum(each.approximate_num_entries() for each in stores), len(first.rows))}"
        return facts

    def first_rows(self, stores: Sequence[Any], limit: int) -> TableRows:
        """Return the first entries of the partitions `stores`, up to `limit`, as texts."""
        with closing(entry for store in stores for entry in _entries(store)) as entries:
            return first_rows(self._columns, entries, limit)


def record_columns(key_serde: Serde, value_serde: Serde) -> list[Column]:
    """Return the columns of a topic's records with these serdes.

    Entries are pairs of a key and its record.
    """
    keys = (
        (_of_serde("key", key_serde.inner, _windowed_key), *_WINDOW)
        if isinstance(key_serde, WindowedSerde)
        else (_of_serde("key", key_serde, _key),)
    )
    return [
        *keys,
        _of_serde("value", value_serde, _record_value),
        time_column("timestamp", _timestamp),
        Column("headers", _HEADERS_DDL, _HEADERS, _record_headers, _header_pairs),
    ]


def columns_of(records: Sequence[Any], key_serde: Serde | None, value_serde: Serde | None) -> list[Column]:
    """Return the columns of records in memory.

    Their types are those that Arrow infers from keys and values, else those of the serdes (None: unknown), else texts.
    """
    entries = [(record.key, record) for record in records]
    keys = [key for key, _ in entries if key is not None]
    windowed = bool(keys) and all(isinstance(key, Windowed) for key in keys)
    serdes = [None if serde is None else serde.with_defaults(None, None) for serde in (key_serde, value_serde)]
    if windowed and isinstance(serdes[0], WindowedSerde):
        serdes[0] = serdes[0].inner
    return [
        _of_objects("key", serdes[0], _windowed_key if windowed else _key, entries),
        *(_WINDOW if windowed else ()),
        _of_objects("value", serdes[1], _record_value, entries),
        time_column("timestamp", _timestamp),
        Column("headers", _HEADERS_DDL, _HEADERS, _record_headers, _header_pairs),
    ]


def tapped_columns(records: Sequence[Any]) -> list[Column]:
    """Return the columns of a tap's records: the usual ones, and the origin of each record."""
    where = (("task", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()))
    return [*columns_of(records, None, None), *(_attribute(name, type) for name, type in where)]


def _attribute(name: str, type: pa.DataType) -> Column:
    def part(_: Any, record: Any) -> Any:
        return getattr(record, name)

    return Column(name, None, type, part, part)


def _of_objects(name: str, serde: Serde | None, part: Part, entries: Sequence[tuple[Any, Any]]) -> Column:
    try:
        found = pa.array([part(key, record) for key, record in entries]).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        found = None
    if found is not None and not pa.types.is_null(found) and not isinstance(found, pa.BaseExtensionType):
        return Column(name, None, found, part, part)
    if serde is not None:
        return _of_serde(name, serde, part)
    return Column(name, "string", pa.string(), part, _unless_none(part, str))


def _entries(store: Any) -> Any:
    """Return a closable iterator over the entries."""
    match store:
        case TypedSessionStore():
            return store.fetch_range(None, None)
        case _:
            return store.all()


def _of_serde(name: str, serde: Serde, part: Part) -> Column:
    plain = _PLAIN.get(type(serde))
    if plain is not None:
        return Column(name, *plain, part, part)
    if isinstance(serde, UUIDSerde):
        return Column(name, "string", pa.string(), part, _unless_none(part, str))
    struct = struct_of(serde.type) if isinstance(serde, TypedJsonSerde | PydanticSerde) else None
    if struct is not None:
        return Column(name, struct.ddl, struct.type, part, _unless_none(part, struct.convert))
    if isinstance(serde, _JSON):
        return Column(
            name, "string", pa.string(), part, _unless_none(part, lambda each: serde.serialize(name, each).decode())
        )
    return Column(name, *_BINARY, part, _unless_none(part, lambda each: serde.serialize(name, each)))


def object_of(serde: Serde) -> Callable[[Any], Any] | None:
    """Return a function from an entry of a serde's column to the object; None if there is no such function."""
    if type(serde) in _PLAIN:
        return lambda part: part
    if isinstance(serde, UUIDSerde):
        return UUID
    if isinstance(serde, TypedJsonSerde | PydanticSerde) and struct_of(serde.type) is not None:
        return None
    if isinstance(serde, _JSON):
        return lambda part: serde.deserialize("", part.encode())
    return lambda part: serde.deserialize("", part)


def time_column(name: str, part: Part) -> Column:
    """Return a column of times; part: the time (ms) of an entry."""
    return Column(name, "timestamp", pa.timestamp("us", tz="UTC"), part, _unless_none(part, _microseconds))


def _microseconds(ms: int) -> int:
    return ms * 1_000


def _unless_none(part: Part, convert: Callable[[Any], Any]) -> Part:
    def converted(key: Any, value: Any) -> Any:
        found = part(key, value)
        return None if found is None else convert(found)

    return converted


def _has_timestamps(store: TypedStore) -> bool:
    return store.timestamped or isinstance(store, TypedVersionedKeyValueStore)


def _value_of(store: TypedStore) -> Callable[[Any, Any], Any]:
    if isinstance(store, TypedVersionedKeyValueStore):
        return lambda _, version: version.value
    plain = plain_of(store)
    return lambda _, value: plain(value)


def _key(key: Any, _: Any) -> Any:
    return key


def _windowed_key(key: Windowed[Any] | None, _: Any) -> Any:
    return None if key is None else key.key


def _record_value(_: Any, record: Any) -> Any:
    return record.value


def _record_headers(_: Any, record: Any) -> Headers:
    headers: Headers = record.headers
    return headers


def _header_pairs(_: Any, record: Any) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in record.headers]


def _timestamp(_: Any, value: Any) -> int | None:
    return None if value.timestamp == NO_TIMESTAMP else value.timestamp


def _window_start(key: Windowed[Any] | None, _: Any) -> int | None:
    return None if key is None else key.window.start


def _window_end(key: Windowed[Any] | None, _: Any) -> int | None:
    return None if key is None or key.window.end == LONG_MAX else key.window.end


_WINDOW = (time_column("window_start", _window_start), time_column("window_end", _window_end))
