"""Columns of JSON objects as arrays of structs of Arrow, without an object for each row.

Arrow's reader accepts other JSON than msgspec, so a column is read by it only if both give the same: flat objects of
one class with all of its fields, without escapes of code points, NaN, infinities, -0, and line breaks. Then Arrow
refuses what msgspec refuses, and a few other rows, such as those that name a field twice.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.extras import load
from penstock.record import ArrayColumn, take_from

_NEEDED_FOR = "A function of arrays of Arrow"

_MOST_BYTES: Final = 2**31 - 2

_TYPES: Final[Sequence[tuple[msgspec.inspect.Type, str]]] = (
    (msgspec.inspect.IntType(), "int64"),
    (msgspec.inspect.FloatType(), "double"),
    (msgspec.inspect.StrType(), "string"),
    (msgspec.inspect.BoolType(), "bool"),
)
"""The types of fields that both read alike, without limits of their values."""

_READ_IN_OTHER_WAYS: Final = (b"\\u", b"NaN", b"Inf", b"[", b"\r")


class ObjectColumn(ArrayColumn[Any]):
    """An array of structs whose rows are objects of a class.

    Args:
        array: the structs.
        data: the bytes of each row.
        read: deserialises bytes.
    """

    __slots__ = ("_data", "_read")

    def __init__(self, array: Any, data: list[bytes], read: Callable[[list[bytes]], list[Any]]) -> None:
        super().__init__(array)
        self._data = data
        self._read = read

    def rows(self) -> list[Any]:
        """Return the rows as objects."""
        if self._rows is None:
            self._rows = self._read(self._data)
        return self._rows

    def take(self, rows: npt.NDArray[np.integer[Any]] | slice) -> ObjectColumn:
        """Return the selected rows."""
        data = self._data[rows] if isinstance(rows, slice) else take_from(self._data, rows)
        return ObjectColumn(super().take(rows).array, data, self._read)


def struct_fields(kind: Any) -> dict[str, str] | None:
    """Return the fields of a dataclass with their types of Arrow; None for a class that Arrow may read in another way.

    Its fields are numbers, booleans and texts, and it has no code that runs when an object is made.
    """
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind) or "__post_init__" in dir(kind):
        return None
    info = msgspec.inspect.type_info(kind)
    if not isinstance(info, msgspec.inspect.DataclassType):
        return None
    fields = {
        field.encode_name: of_arrow
        for field in info.fields
        for of_msgspec, of_arrow in _TYPES
        if of_msgspec == field.type
    }
    return fields if list(fields) == [field.name for field in dataclasses.fields(kind)] else None


def read_structs(data: Sequence[bytes | None], fields: Mapping[str, str]) -> Any:
    """Return JSON objects as an array of structs; None if Arrow may read one in another way than msgspec, or cannot.

    Args:
        data: the bytes of each row.
        fields: the type of Arrow of each field.
    """
    if None in data:
        return None
    items = cast("Sequence[bytes]", data)
    joined = b"\n".join(items)
    if not _is_plain(items, joined):
        return None
    pa, json = load("pyarrow", _NEEDED_FOR), load("pyarrow.json", _NEEDED_FOR)
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in fields.items()])
    try:
        table = json.read_json(
            io.BytesIO(joined),
            json.ReadOptions(use_threads=False, block_size=len(joined) + 1),
            json.ParseOptions(explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:  # the serde says what is wrong, if anything is
        return None
    columns = [column.combine_chunks() for column in table.columns]
    if table.num_rows != len(items) or any(column.null_count or _has_other_floats(column) for column in columns):
        return None
    return pa.StructArray.from_arrays(columns, names=list(fields))


def _has_other_floats(column: Any) -> bool:
    """Return whether a float is infinite, for a number that msgspec refuses, or -0.0, which may be 0 for msgspec."""
    if str(column.type) != "double":
        return False
    values = column.to_numpy(zero_copy_only=False)
    return bool((np.isinf(values) | (np.signbit(values) & (values == 0))).any())


def _is_plain(items: Sequence[bytes], joined: bytes) -> bool:
    """Return whether each item is one flat object, with nothing that Arrow reads in another way."""
    if joined.count(b"\n") != len(items) - 1 or not 0 < len(joined) <= _MOST_BYTES:
        return False
    if joined.count(b"{") != len(items) or joined.count(b"}") != len(items):
        return False
    if any(each in joined for each in _READ_IN_OTHER_WAYS):
        return False
    if not all(item[:1] == b"{" and item[-1:] == b"}" for item in items):
        return False
    try:
        return joined.isascii() or bool(joined.decode())
    except UnicodeDecodeError:
        return False
