"""The rows of records: their columns, from the types that the serdes read, and their values as Arrow.

The fields of a value are columns; any other value is the column `value`. `_key` and `_timestamp` are the key and the
timestamp of the record, `_window_start` and `_window_end` the window of a windowed key. All columns may be null,
because a table gets new columns after its first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.errors import SerializationError, StreamsError
from penstock.lake.avro_types import type_of_avro
from penstock.lake.class_types import omits_fields, type_of_class, with_all_fields
from penstock.record import RecordBatch, TopicPartition
from penstock.serdes import Serde
from penstock.serdes.annotated import AnnotatedSerde
from penstock.serdes.fields import avro_schema_of
from penstock.serdes.json import PydanticSerde, TypedJsonSerde
from penstock.serdes.message_pack import MessagePackSerde, PydanticMessagePackSerde
from penstock.serdes.objects import is_model
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
from penstock.serdes.windowed import TimeWindowedSerde, WindowedSerde
from penstock.windows import LONG_MAX

KEY: Final = "_key"
WINDOW_START: Final = "_window_start"
WINDOW_END: Final = "_window_end"
TIMESTAMP: Final = "_timestamp"
VALUE: Final = "value"
_OWN: Final = frozenset((KEY, WINDOW_START, WINDOW_END, TIMESTAMP))
_TIME: Final = pa.timestamp("us", tz="UTC")
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")

_PRIMITIVES: Final[Mapping[type[Serde], pa.DataType]] = {
    BooleanSerde: pa.bool_(),
    BytesSerde: pa.binary(),
    DoubleSerde: pa.float64(),
    FloatSerde: pa.float32(),
    IntegerSerde: pa.int32(),
    LongSerde: pa.int64(),
    ShortSerde: pa.int32(),  # Iceberg has no smaller integers
    StringSerde: pa.string(),
    UUIDSerde: pa.string(),
}
_ALIKE: Final = ({pa.string(), pa.large_string()}, {pa.binary(), pa.large_binary()})
_WIDER: Final = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
_OF_CLASSES: Final = (TypedJsonSerde, PydanticSerde, MessagePackSerde, PydanticMessagePackSerde)
_ARROW_TAKES: Final = (bytes, datetime, date, time, Decimal)
"""Types of values that become Arrow without a conversion."""


class LakeColumns:
    """The columns of the records of one topic.

    Args:
        key_serde: the serde of the keys.
        value_serde: the serde of the values.

    Attributes:
        schema: the columns.
        keys: the names of the columns of the key.

    Raises:
        StreamsError: the objects of a serde have no type in Arrow, windows of the keys have no end, or a field has the
            name of another column.
    """

    def __init__(self, key_serde: Serde, value_serde: Serde) -> None:
        self._key_serde, self._value_serde = key_serde, value_serde
        self._keys: _KeyColumns = _WindowedKey(key_serde) if isinstance(key_serde, WindowedSerde) else _Key(key_serde)
        self._value, self._plain_values = _type_of(value_serde), _plain_of(value_serde)
        fields = list(self._value) if pa.types.is_struct(self._value) else [pa.field(VALUE, self._value)]
        taken = sorted(_OWN.intersection(field.name for field in fields))
        if taken:
            raise StreamsError(
                f"{', '.join(taken)}: tables of a lake have columns of this name for the key, its window and the "
                "timestamp. Rename the field of the values."
            )
        self.keys = tuple(field.name for field in self._keys.fields)
        self.schema = pa.schema([*self._keys.fields, *fields, pa.field(TIMESTAMP, _TIME)])

    def rows(self, partition: TopicPartition, batch: RecordBatch) -> pa.Table:
        """Return the records of a partition as rows.

        Raises StreamsError with the offset of a record that cannot be read, or does not fit the columns.
        """
        try:
            return self._rows(partition.topic, batch)
        except (SerializationError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            if len(batch) > 1:  # look for the record
                for index in range(len(batch)):
                    self.rows(partition, batch.slice(index, index + 1))
            raise StreamsError(
                f"The record at offset {batch.offsets[0]} of {partition} does not fit the columns of its table: "
                f"{error}. Give the stream the serde of its values, or change the values before to_lake()."
            ) from error

    def _rows(self, topic: str, batch: RecordBatch) -> pa.Table:
        keys = self._key_serde.deserialize_column(topic, batch.keys, batch.headers)
        values = self._value_serde.deserialize_column(topic, batch.values, batch.headers)
        read = pa.array(self._plain_values(values), self._value)
        columns = read.flatten() if pa.types.is_struct(self._value) else [read]
        times = pa.array(batch.timestamps * 1000, pa.int64()).cast(_TIME)
        return pa.Table.from_arrays([*self._keys.arrays(keys), *columns, times], schema=self.schema)


class _Key:
    """The column of keys without windows."""

    def __init__(self, serde: Serde) -> None:
        self._type, self._plain = _type_of(serde), _plain_of(serde)
        self.fields = [pa.field(KEY, self._type)]

    def arrays(self, keys: Sequence[Any]) -> list[pa.Array]:
        return [pa.array(self._plain(keys), self._type)]


class _WindowedKey:
    """The columns of windowed keys: the key, and the start and the end of its window."""

    def __init__(self, serde: WindowedSerde) -> None:
        if isinstance(serde, TimeWindowedSerde) and serde.window_size_ms == LONG_MAX:
            raise StreamsError(
                "The windows of the keys have no end, so there is no value for the column _window_end. Give to_lake() "
                "a serde with their size, WindowedSerdes.time_windowed(serde, size_ms); if they are UnlimitedWindows, "
                "give the rows the key of the window, by to_stream(lambda key, value: key.key).to_table()."
            )
        self._key = _Key(serde.inner)
        self.fields = [*self._key.fields, pa.field(WINDOW_START, _TIME), pa.field(WINDOW_END, _TIME)]

    def arrays(self, keys: Sequence[Any]) -> list[pa.Array]:
        windows = [None if each is None else each.window for each in keys]
        starts = pa.array([None if each is None else each.start for each in windows], _MILLISECONDS)
        ends = pa.array([None if each is None else each.end for each in windows], _MILLISECONDS)
        inner = self._key.arrays([None if each is None else each.key for each in keys])
        return [*inner, starts.cast(_TIME), ends.cast(_TIME)]


_KeyColumns = _Key | _WindowedKey


def check_columns(table: str, stored: pa.Schema, new: pa.Schema) -> None:
    """Check that a table with the columns `stored` takes rows with the columns `new`.

    A table may have columns of wider numbers, and lack columns that may be null. Raises StreamsError for a column of
    another type.
    """
    for field in new:
        index = stored.get_field_index(field.name)
        if index < 0 and not field.nullable:
            raise StreamsError(
                f"{table} has no column {field.name}, by which its rows are replaced. Add that column, of the type "
                f"{field.type}, or name another table."
            )
        if index >= 0 and field.nullable and not stored.field(index).nullable:
            raise StreamsError(
                f"{table} requires a value of the column {field.name}, which the records may lack. Make the column "
                "optional, or name another table."
            )
        if index >= 0 and not _fits(stored.field(index).type, field.type):
            raise StreamsError(
                f"{table} has the column {field.name} of the type {stored.field(index).type}, and the records have "
                f"{field.type}. Change the type of the values back, change the column in the table, or name another "
                "table."
            )


def _fits(stored: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_struct(stored) and pa.types.is_struct(new):
        known = {field.name: field.type for field in stored}
        return all(field.name not in known or _fits(known[field.name], field.type) for field in new)
    if _is_list(stored) and _is_list(new):
        return _fits(stored.value_type, new.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(new):
        return _fits(stored.key_type, new.key_type) and _fits(stored.item_type, new.item_type)
    return bool(stored == new or any({stored, new} <= alike for alike in _ALIKE) or (new, stored) in _WIDER)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _type_of(serde: Serde) -> pa.DataType:
    serde = _chosen(serde)
    schema = avro_schema_of(serde)
    if schema is not None:
        return type_of_avro(schema)
    if isinstance(serde, _OF_CLASSES):
        return type_of_class(serde.type)
    if type(serde) in _PRIMITIVES:
        return _PRIMITIVES[type(serde)]
    raise StreamsError(
        f"The objects of {type(serde).__name__} have no columns. to_lake() takes numbers, strings, booleans, bytes and "
        "UUIDs, classes as JSON (Serdes.json(Order)) or MessagePack, and Avro with a schema; map other keys and values "
        "to one of them."
    )


def _chosen(serde: Serde) -> Serde:
    return serde.with_defaults(None, None) if isinstance(serde, AnnotatedSerde) else serde


def _plain_of(serde: Serde) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return the conversion of the objects of a serde."""
    chosen = _chosen(serde)
    if avro_schema_of(chosen) is not None or (isinstance(chosen, _OF_CLASSES) and omits_fields(chosen.type)):
        return lambda objects: _plain([with_all_fields(each) for each in objects])
    return _plain


def _plain(objects: Sequence[Any]) -> Sequence[Any]:
    """Return objects with dicts in place of records and the values of enums."""
    plain: Sequence[Any] = msgspec.to_builtins(objects, builtin_types=_ARROW_TAKES, enc_hook=_fields)
    return plain


def _fields(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump(by_alias=False, round_trip=True)
    raise TypeError(f"a {type(value).__name__} is not a value of a column")
