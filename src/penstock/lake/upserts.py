"""The rows of a table with one row for each key: the columns of records, and the last record of each key.

The columns of the key are never null, because rows are found by them. A key that is an object has a column for each of
its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.errors import StreamsError
from penstock.lake.columns import LakeColumns
from penstock.lake.tables import KeyedRows
from penstock.record import RecordBatch, TopicPartition

_DELETED: Final = "_deleted"
"""The last column of rows before they are in the table: whether the record has no value."""

_ROW: Final = "_row"
_EXACT: Final = (
    *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_date),
    *(pa.types.is_decimal, pa.types.is_time, pa.types.is_timestamp),
)


class UpsertColumns:
    """The columns of records that replace the rows of their keys.

    Args:
        columns: the columns of the records.

    Raises:
        StreamsError: keys cannot be compared, or a field has the name of a column of the key.
    """

    def __init__(self, columns: LakeColumns) -> None:
        self._columns = columns
        keys = [each for name in columns.keys for each in _flat(columns.schema.field(name))]
        for key in keys:
            if not any(is_exact(key.type) for is_exact in _EXACT):
                raise StreamsError(
                    f"Rows cannot be replaced by the column {key.name} of the type {key.type}. A table is written to a "
                    "lake by keys of text, bytes, whole numbers, decimals, booleans, times and UUIDs, and of classes "
                    "with such fields; group_by() gives a table another key."
                )
        self.keys = tuple(key.name for key in keys)
        values = [columns.schema.field(name) for name in columns.schema.names if name not in columns.keys]
        taken = sorted({field.name for field in values}.intersection(self.keys))
        if taken:
            raise StreamsError(f"{', '.join(taken)}: columns of the key have these names. Rename the fields of values.")
        self.schema = pa.schema([*keys, *values])

    def rows(self, partition: TopicPartition, batch: RecordBatch) -> pa.Table:
        """Return the records of a partition as rows, with a last column for those without a value.

        Raises StreamsError with the offset of a record that cannot be read, does not fit, or has no complete key.
        """
        read = self._columns.rows(partition, batch)
        arrays = [part for name in self._columns.keys for part in _flattened(read.column(name).combine_chunks())]
        for name, array in zip(self.keys, arrays, strict=True):
            if array.null_count:
                offset = batch.offsets[array.is_null().to_pylist().index(True)]
                raise StreamsError(
                    f"The record at offset {offset} of {partition} has no value for the column {name}, by which the "
                    "rows of its table are replaced. Give each part of the key a value."
                )
        values = [read.column(name) for name in self.schema.names[len(self.keys) :]]
        deleted = pa.array([value is None for value in batch.values], pa.bool_())
        return pa.Table.from_arrays(
            [*arrays, *values, deleted], schema=self.schema.append(pa.field(_DELETED, pa.bool_()))
        )

    def changes(self, tables: Sequence[pa.Table]) -> KeyedRows:
        """Return the last record of each key in `tables`, the results of `rows` in the order of offsets."""
        records = pa.concat_tables(tables).combine_chunks()
        numbered = records.select(list(self.keys)).append_column(_ROW, pa.array(np.arange(len(records))))
        last = numbered.group_by(list(self.keys)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
        latest = records.take(last.sort())
        is_deleted, rows = latest.column(latest.num_columns - 1), latest.remove_column(latest.num_columns - 1)
        kept = np.logical_not(is_deleted.to_numpy())
        return KeyedRows(rows.filter(pa.array(kept)), rows.filter(is_deleted).select(list(self.keys)), self.keys)


def _flat(key: pa.Field) -> list[pa.Field]:
    """Return the columns of `key`: one for each field of an object."""
    parts = [(f"{key.name}_{part.name}", part.type) for part in key.type] if pa.types.is_struct(key.type) else []
    return [pa.field(name, kind, nullable=False) for name, kind in parts or [(key.name, key.type)]]


def _flattened(key: pa.Array) -> list[pa.Array]:
    return key.flatten() if pa.types.is_struct(key.type) else [key]
