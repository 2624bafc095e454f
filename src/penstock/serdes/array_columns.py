"""Columns of single values between bytes and arrays of numpy or Arrow, without an object per row.

A function returns None where an array cannot hold exactly what the serde reads or writes row by row; then the serde
works row by row, and finds the row at fault.

Arrays have the types of `ArrayColumn`: 64-bit numbers, booleans, and strings and binaries of Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from penstock.extras import load
from penstock.record import ArrayColumn
from penstock.serdes.api import Library
from penstock.serdes.columns import Places, encoded

_MOST_BYTES = 2**31 - 1
"""Maximum size of one array of binaries."""


def read_numbers(data: Sequence[bytes | None], packed: struct.Struct, library: Library) -> ArrayColumn[Any] | None:
    """Return big-endian numbers of one size, as 64-bit numbers."""
    floating = packed.format.endswith(("d", "f"))
    return _read(data, packed.size, f">{'f' if floating else 'i'}{packed.size}", "f8" if floating else "i8", library)


def read_booleans(data: Sequence[bytes | None], library: Library) -> ArrayColumn[bool] | None:
    """Return booleans of one byte."""
    if not {b"\0", b"\1", None}.issuperset(data):
        return None
    return _read(data, 1, "u1", "?", library)


def read_binaries(data: Sequence[bytes | None], library: Library) -> ArrayColumn[bytes] | None:
    """Return bytes, unchanged, as an array of Arrow."""
    array = _binaries(data, library)
    return None if array is None else _column(array)


def read_texts(data: Sequence[bytes | None], library: Library) -> ArrayColumn[str] | None:
    """Return texts in UTF-8, as an array of Arrow."""
    array = _binaries(data, library)
    if array is None:
        return None
    try:
        return _column(array.cast("string"))
    except ValueError:  # not UTF-8
        return None


def written_numbers(column: ArrayColumn[Any], packed: struct.Struct) -> list[bytes | None] | None:
    """Return numbers big-endian, in the size of `packed`; only floats for a format of floats, and only ints else."""
    floating = packed.format.endswith(("d", "f"))
    found = _values(column)
    if found is None or found[0].dtype != ("f8" if floating else "i8"):
        return None
    values, nulls = found
    dtype = np.dtype(f">{'f' if floating else 'i'}{packed.size}")
    if packed.size < 8 and not _fits(values, dtype):
        return None
    return _with_nulls(np.frombuffer(values.astype(dtype).tobytes(), f"V{packed.size}").tolist(), nulls)


def written_booleans(column: ArrayColumn[Any]) -> list[bytes | None] | None:
    """Return booleans as one byte each."""
    found = _values(column)
    if found is None or found[0].dtype != "?":
        return None
    values, nulls = found
    return _with_nulls([b"\1" if value else b"\0" for value in values.tolist()], nulls)


def written_binaries(column: ArrayColumn[Any]) -> list[bytes | None] | None:
    """Return the bytes of an array of binaries of Arrow."""
    if isinstance(column.array, np.ndarray) or str(column.array.type) != "binary":
        return None
    listed: list[bytes | None] = column.array.to_pylist()
    return listed


def written_texts(column: ArrayColumn[Any]) -> list[bytes | None] | None:
    """Return the texts of an array of strings of Arrow, in UTF-8."""
    if not _has_texts(column):
        return None
    listed: list[bytes | None] = column.array.cast("binary").to_pylist()
    return listed


def distinct_of(column: ArrayColumn[Any]) -> tuple[list[Any], Places] | None:
    """Return the distinct texts of an array of strings, in UTF-8, and each row's index."""
    return encoded(column.array) if _has_texts(column) else None


def _has_texts(column: ArrayColumn[Any]) -> bool:
    return not isinstance(column.array, np.ndarray) and str(column.array.type) == "string"


def _column(array: Any) -> ArrayColumn[Any]:
    return ArrayColumn(array, may_have_null=array.null_count > 0)


def _read(
    data: Sequence[bytes | None], size: int, stored: str, dtype: str, library: Library
) -> ArrayColumn[Any] | None:
    nulls: npt.NDArray[np.bool_] | None = None
    items: Any = data
    if None in data:
        nulls = np.fromiter((item is None for item in data), np.bool_, len(data))
        if library == "numpy" or nulls.all():  # numbers of numpy have no nulls, and nulls alone no type
            return None
        items = [b"\0" * size if item is None else item for item in data]
    if set(map(len, items)) != {size}:
        return None
    values = np.frombuffer(b"".join(items), stored).astype(dtype)
    if library == "numpy":
        return ArrayColumn(values)
    array = load("pyarrow", "A function of arrays of Arrow").array(values, mask=nulls)
    return ArrayColumn(array, may_have_null=nulls is not None)


def _binaries(data: Sequence[bytes | None], library: Library) -> Any:
    if library == "numpy":
        return None
    pa = load("pyarrow", "A function of arrays of Arrow")
    if None in data:
        array = pa.array(data, pa.binary())
        return array if isinstance(array, pa.Array) and array.null_count < len(array) else None
    joined = b"".join(cast("Sequence[bytes]", data))
    if len(joined) > _MOST_BYTES:
        return None
    ends = np.zeros(len(data) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, cast("Sequence[bytes]", data)), np.int32, len(data)), out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(ends), pa.py_buffer(joined)])


def _values(column: ArrayColumn[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.integer[Any]]] | None:
    """Return 64-bit numbers or booleans, and the rows that are null; None for other types."""
    array = column.array
    if isinstance(array, np.ndarray):
        return array, np.empty(0, np.int64)
    if str(array.type) not in ("double", "int64", "bool"):
        return None
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False), np.empty(0, np.int64)
    nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
    return array.fill_null(False if str(array.type) == "bool" else 0).to_numpy(zero_copy_only=False), nulls


def _fits(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether the serde writes all `values` in the smaller `dtype` as numpy does."""
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        return not len(values) or bool(values.min() >= limits.min and values.max() <= limits.max)
    return bool((np.abs(values) <= np.finfo(dtype).max).all())  # not NaN and infinity either, which are rare


def _with_nulls(items: list[bytes | None], nulls: npt.NDArray[np.integer[Any]]) -> list[bytes | None]:
    for row in nulls.tolist():
        items[row] = None
    return items
