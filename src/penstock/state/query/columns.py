"""The entries of a store as columns of a table: names, types of Arrow and of Spark, and a row an entry. Knows no Spark.

Columns: `partition` of the store; `key`; `window_start` and `window_end` of windows and sessions; `value`; `timestamp`,
where the store keeps one. Keys and values have the types of their serdes: numbers, texts, booleans and bytes as such,
UUIDs and JSON as text, everything else as the bytes that the serde writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import InvalidStateStoreError
from penstock.record import NO_TIMESTAMP
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
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.query.values import plain_of
from penstock.state.session_store import TypedSessionStore
from penstock.state.typed_store import TypedStore
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from penstock.state.window_store import TypedWindowStore
from penstock.windows import LONG_MAX, Windowed

_ROWS = 10_000
"""Rows of one Arrow batch."""

_US = 1_000
_TIMESTAMP = ("timestamp", pa.timestamp("us", tz="UTC"))
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
_JSON = (JsonSerde, TypedJsonSerde, PydanticSerde)


class Column(NamedTuple):
    """One column: its name, its type in the words of Spark's DDL and of Arrow, and what it has of an entry."""

    name: str
    ddl: str
    type: pa.DataType
    of: Callable[[Any, Any], Any]


class StateColumns:
    """The columns of one kind of store, over all partitions."""

    def __init__(self, store: Any) -> None:
        """Take any partition of the store; raises InvalidStateStoreError for a kind that is no table."""
        if not isinstance(
            store, TypedKeyValueStore | TypedWindowStore | TypedSessionStore | TypedVersionedKeyValueStore
        ):
            raise InvalidStateStoreError(
                f"{type(store).__name__} cannot be read as a table: expected a key-value, window, session or versioned "
                "store."
            )
        windowed = isinstance(store, TypedWindowStore | TypedSessionStore)
        self._columns = [
            _of_serde("key", store.key_serde, _windowed_key if windowed else _key),
            *(_WINDOW if windowed else ()),
            _of_serde("value", store.value_serde, _value_of(store)),
            *((Column("timestamp", *_TIMESTAMP, _timestamp),) if _has_timestamps(store) else ()),
        ]

    @property
    def ddl(self) -> str:
        """The schema in the words of Spark's DDL."""
        return ", ".join(["partition int", *(f"{column.name} {column.ddl}" for column in self._columns)])

    @property
    def schema(self) -> pa.Schema:
        """The schema in the words of Arrow."""
        return pa.schema([("partition", pa.int32()), *((column.name, column.type) for column in self._columns)])

    def batches(self, partition: int, store: Any) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one partition of the store."""
        names = ["partition", *(column.name for column in self._columns)]
        entries = _entries(store)
        while rows := list(islice(entries, _ROWS)):
            arrays = [pa.array([partition] * len(rows), pa.int32())]
            arrays += [
                pa.array([column.of(key, value) for key, value in rows], column.type) for column in self._columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _entries(store: Any) -> Iterator[tuple[Any, Any]]:
    match store:
        case TypedSessionStore():
            return iter(store.fetch_range(None, None))
        case _:
            return iter(store.all())


def _of_serde(name: str, serde: Serde, part: Callable[[Any, Any], Any]) -> Column:
    plain = _PLAIN.get(type(serde))
    if plain is not None:
        return Column(name, *plain, part)
    if isinstance(serde, UUIDSerde):
        return Column(name, "string", pa.string(), _unless_none(part, str))
    if isinstance(serde, _JSON):
        return Column(
            name, "string", pa.string(), _unless_none(part, lambda each: serde.serialize(name, each).decode())
        )
    return Column(name, *_BINARY, _unless_none(part, lambda each: serde.serialize(name, each)))


def _unless_none(part: Callable[[Any, Any], Any], convert: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
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


def _windowed_key(key: Windowed[Any], _: Any) -> Any:
    return key.key


def _timestamp(_: Any, value: Any) -> int | None:
    return None if value.timestamp == NO_TIMESTAMP else value.timestamp * _US


def _window_end(key: Windowed[Any], _: Any) -> int | None:
    return None if key.window.end == LONG_MAX else key.window.end * _US


_WINDOW = (
    Column("window_start", *_TIMESTAMP, lambda key, _: key.window.start * _US),
    Column("window_end", *_TIMESTAMP, _window_end),
)
