"""Tables of Apache Iceberg, by PyIceberg (the extra `lake`).

Each snapshot that this module commits has the offsets in its summary, so a table that is rolled back to an older
snapshot receives the later records again. Snapshots expire; the properties of the table repeat the offsets for the time
after that, with the parent of their snapshot: a table that has the parent and not the snapshot was rolled back. The
requirement of a commit is the snapshot that was read, so no other writer comes in between. The key of the offsets has
the id of the topic, because applications on several clusters may share a table.

An upsert replaces the files with rows of its keys by files without them, and adds one with the new rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import _OverwriteFiles

from penstock.errors import StreamsError
from penstock.lake.columns import check_columns
from penstock.lake.tables import Iceberg, KeyedRows, LakeConflictError, TopicIncarnation

_PREFIX: Final = "penstock.offsets."
_RETRIES: Final = "commit.retry.num-retries"
"""A retry of PyIceberg would append the rows to a snapshot that may already contain them."""

_FIRST_SEQUENCE_NUMBER: Final = 1
"""Of the first snapshot of a table. An older one than the oldest with another number has expired."""


class IcebergTable:
    """An open table of Iceberg (`LakeTable`).

    Args:
        table: the table.
        schema: the schema of a new table.
    """

    def __init__(self, table: Iceberg, schema: pa.Schema) -> None:
        self._name = str(table)
        self._table = _opened(table, schema)

    def refresh(self) -> None:
        """Read the newest snapshot."""
        self._table.refresh()

    def offsets(self, source: TopicIncarnation) -> Mapping[int, int]:
        """Return the offsets of the newest snapshot that has some of `source`."""
        key = _key_of(source)
        known = {each.snapshot_id: each for each in self._table.snapshots()}
        snapshot, passed, is_first = self._table.current_snapshot(), set(), True
        while snapshot is not None:
            found = None if snapshot.summary is None else snapshot.summary.additional_properties.get(key)
            if found is not None:
                return _parsed(found)
            passed.add(snapshot.snapshot_id)
            is_first = snapshot.sequence_number == _FIRST_SEQUENCE_NUMBER
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else known.get(parent)
        kept = self._table.properties.get(key)
        if is_first or kept is None:
            return {}
        if orjson.loads(kept)["parent"] in passed:
            raise StreamsError(
                f"{self._name} was rolled back to a snapshot without offsets of {source.topic}, and older snapshots "
                "have expired: its records are unknown. Roll it forward again, or name another table."
            )
        return _parsed(kept)

    def append(self, rows: pa.Table, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Add `rows` in one snapshot with `offsets`, see `LakeTable`."""
        properties = self._properties(source, offsets)
        with self._commit(rows.schema) as transaction:
            transaction.append(rows, snapshot_properties=properties)
            transaction.set_properties(properties)

    def upsert(self, changes: KeyedRows, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Replace and delete rows in one snapshot with `offsets`, see `LakeTable`.

        PyIceberg's own deletion takes a condition, whose cost grows with the keys far faster than that of a join.
        """
        properties = self._properties(source, offsets)
        keys = pa.concat_tables([changes.rows.select(list(changes.keys)), changes.deleted])
        with self._commit(changes.rows.schema) as transaction:
            with transaction.update_snapshot(properties).overwrite() as snapshot:
                files = _NewFiles(snapshot, transaction.table_metadata, self._table.io)
                for task in self._table.scan(_range_of(keys)).plan_files():
                    stored = files.rows_of(task)
                    kept = _without_keys(stored, keys)
                    if len(kept) < len(stored):
                        snapshot.delete_data_file(task.file)
                        files.add(kept)
                files.add(changes.rows)
            transaction.set_properties(properties)

    @contextmanager
    def _commit(self, schema: pa.Schema) -> Iterator[Transaction]:
        """Commit what the block adds to the transaction, on top of the snapshot that was read."""
        check_columns(self._name, self._table.schema().as_arrow(), schema)
        self._table.metadata.properties[_RETRIES] = "0"
        try:
            with self._table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(schema)
                yield transaction
        except CommitFailedException as error:
            raise LakeConflictError(f"Another program has changed {self._name}: {error}") from error

    def _properties(self, source: TopicIncarnation, offsets: Mapping[int, int]) -> dict[str, str]:
        known = {str(partition): offset for partition, offset in offsets.items()}
        parent = self._table.metadata.current_snapshot_id
        return {_key_of(source): orjson.dumps({"parent": parent, "offsets": known}).decode()}


class _NewFiles:
    """The data files that a snapshot adds.

    Args:
        snapshot: the snapshot.
        metadata: of the table, with its new columns.
        io: the file system of the table.
    """

    def __init__(self, snapshot: _OverwriteFiles, metadata: TableMetadata, io: FileIO) -> None:
        self._snapshot = snapshot
        self._metadata = metadata
        self._io = io
        self._numbers = itertools.count()

    def rows_of(self, task: FileScanTask) -> pa.Table:
        """Return the rows of a file of the table."""
        return ArrowScan(self._metadata, self._io, self._metadata.schema(), AlwaysTrue()).to_table([task])

    def add(self, rows: pa.Table) -> None:
        """Write `rows` to files, by the partitions of the table."""
        if len(rows):
            id = self._snapshot.commit_uuid
            for file in _dataframe_to_data_files(self._metadata, rows, self._io, id, self._numbers):
                self._snapshot.append_data_file(file)


def _opened(table: Iceberg, schema: pa.Schema) -> Table:
    catalog = load_catalog(table.catalog, **table.properties)
    namespace = table.name.rpartition(".")[0]
    if not namespace:
        raise StreamsError(f"An Iceberg table has a namespace, as in shop.orders; got {table.name!r}.")
    if not catalog.table_exists(table.name):
        catalog.create_namespace_if_not_exists(namespace)
        with suppress(TableAlreadyExistsError):  # another instance has created it meanwhile
            created = catalog.create_table(table.name, schema)
            keys = [field.name for field in schema if not field.nullable]
            if keys:
                with suppress(CommitFailedException), created.update_schema() as update:
                    update.set_identifier_fields(*keys)
    return catalog.load_table(table.name)


def _range_of(keys: pa.Table) -> BooleanExpression:
    """Return a condition of all rows with one of `keys`, which excludes files without such rows."""
    conditions: list[BooleanExpression] = []
    for name in keys.column_names:
        values = keys.column(name).unique().sort()
        conditions.append(GreaterThanOrEqual(term=name, value=values[0].as_py()))
        conditions.append(LessThanOrEqual(term=name, value=values[-1].as_py()))
    return And(*conditions)


def _without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key is not one of `keys`."""
    numbered = rows.select(keys.column_names).append_column("_row", pa.array(np.arange(len(rows))))
    wanted = keys.cast(pa.schema([numbered.field(name) for name in keys.column_names]))
    others = numbered.join(wanted, keys.column_names, join_type="left anti").column("_row")
    return rows.take(others.sort())


def _key_of(source: TopicIncarnation) -> str:
    return f"{_PREFIX}{source.topic}.{source.id}"


def _parsed(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in orjson.loads(text)["offsets"].items()}
