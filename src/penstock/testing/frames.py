"""The rows of a dataframe (pandas, polars, pyarrow, DuckDB) as parts of input records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.record import Headers
from penstock.state.query.arrow_frames import reader_of, times_of

Columns = str | Sequence[str] | None
"""A column, several columns for a dict, or no column."""

Row = tuple[Any, Any, int | None, Headers]
"""Key, value, timestamp (ms), headers."""


def rows_of(frame: object, key: Columns, value: Columns, timestamp: str | None, headers: str | None) -> Iterator[Row]:
    """Return the parts of each row's record, see `TestInputTopic.pipe_frame`.

    Raises an error if the frame does not have these columns.
    """
    reader = reader_of(frame, "pipe_record_list() and pipe_key_value_list() take lists")
    names = reader.schema.names
    chosen = {
        name: _chosen(name, given, names)
        for name, given in (("key", key), ("value", value), ("timestamp", timestamp), ("headers", headers))
    }
    if chosen["value"] is None:
        raise ValueError(
            f"The frame has no column 'value', it has {_listed(names)}: name that of the values with value=..., "
            "or several, which make a dict."
        )
    return (row for batch in reader for row in _rows(batch, **chosen))


def _chosen(argument: str, given: Columns, names: Sequence[str]) -> Columns:
    """Return the columns for an argument, by default the column of its name, if any."""
    if given is None:
        return argument if argument in names else None
    for name in (given,) if isinstance(given, str) else given:
        if name not in names:
            raise ValueError(f"{argument}={given!r}: the frame has no column {name!r}, it has {_listed(names)}.")
    return given


def _rows(batch: pa.RecordBatch, key: Columns, value: Columns, timestamp: Columns, headers: Columns) -> Iterator[Row]:
    times = [None] * len(batch) if timestamp is None else times_of(str(timestamp), batch.column(timestamp))
    pairs = [_headers(str(headers), each) for each in _objects(batch, headers)]
    return zip(_objects(batch, key), _objects(batch, value), times, pairs, strict=True)


def _objects(batch: pa.RecordBatch, columns: Columns) -> list[Any]:
    """Return the entries of a column, or the rows of several columns as dicts."""
    if columns is None:
        return [None] * len(batch)
    if isinstance(columns, str):
        return list(batch.column(columns).to_pylist())
    return list(batch.select(list(columns)).to_pylist())


def _headers(name: str, given: Any) -> Headers:
    """Return the headers of one row: a list of pairs, or of structs of key and value."""
    try:
        pairs = [(each["key"], each["value"]) if isinstance(each, dict) else each for each in given or ()]
        return tuple((key, value.encode() if isinstance(value, str) else value) for key, value in pairs)
    except (TypeError, KeyError, ValueError) as error:
        raise TypeError(
            f"The column {name!r} of headers has {given!r:.100}: expected a list of structs of key and value, or a map."
        ) from error


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no columns"
