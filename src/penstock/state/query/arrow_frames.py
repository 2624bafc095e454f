"""Frames of users (pandas, polars, pyarrow, DuckDB) as batches of Arrow, and times in their columns."""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa
from pyarrow.interchange import from_dataframe

_PER_MS: Final = {"us": 1_000, "ns": 1_000_000}


@runtime_checkable
class ArrowStream(Protocol):
    """A source of rows as an Arrow stream (the Arrow PyCapsule interface)."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object: ...


@runtime_checkable
class InterchangeFrame(Protocol):
    """A source of columns by the DataFrame interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any: ...


def reader_of(frame: object, for_lists: str) -> pa.RecordBatchReader:
    """Return a reader of the rows of `frame`; raises TypeError if it is no frame.

    for_lists: the sentence of the error for users with lists.
    """
    if isinstance(frame, ArrowStream):
        return pa.RecordBatchReader.from_stream(frame)
    if isinstance(frame, InterchangeFrame):
        return from_dataframe(frame).to_reader()
    raise TypeError(
        "Expected a frame of pandas, polars, pyarrow or DuckDB (with __arrow_c_stream__ or __dataframe__), got "
        f"{type(frame).__name__}. Call collect() on a lazy frame; {for_lists}."
    )


def times_of(name: str, column: pa.Array) -> list[int | None]:
    """Return the times of a column in ms; times between two ms are those of the earlier one.

    Raises:
        TypeError: the column has another type than numbers and timestamps.
        ValueError: a number is not whole.
    """
    type = column.type
    if pa.types.is_timestamp(type):
        per_ms = _PER_MS.get(type.unit, 1)
        whole = column.cast(pa.timestamp("ms", type.tz)) if per_ms == 1 else column
        return [None if time is None else time // per_ms for time in whole.cast(pa.int64()).to_pylist()]
    if not (pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_null(type)):
        raise TypeError(f"The column {name!r} of timestamps has the type {type}: expected ms, or a timestamp.")
    try:
        return list(column.cast(pa.int64()).to_pylist())  # pandas stores integers with nulls as floating-point numbers
    except pa.ArrowInvalid as error:
        raise ValueError(f"The column {name!r} of timestamps: expected whole ms. {error}") from error
