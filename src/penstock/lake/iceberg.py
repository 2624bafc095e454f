"""Tables of Apache Iceberg, by PyIceberg (the extra `lake`).

Each snapshot that this module commits has the offsets in its summary, so a table that is rolled back to an older
snapshot receives the later records again. Snapshots expire; the properties of the table repeat the offsets for the time
after that, with the parent of their snapshot: a table that has the parent and not the snapshot was rolled back. The
requirement of a commit is the snapshot that was read, so no other writer comes in between. The key of the offsets has
the id of the topic, because applications on several clusters may share a table.

An upsert deletes the rows of its keys and appends the new ones. These are several snapshots in one commit; only the
last one has the offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.table import Table, Transaction

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
        if passed.intersection(orjson.loads(kept)["parents"]):
            raise StreamsError(
                f"{self._name} was rolled back to a snapshot without offsets of {source.topic}, and older snapshots "
                "have expired: its records are unknown. Roll it forward again, or name another table."
            )
        return _parsed(kept)

    def append(self, rows: pa.Table, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Add `rows` in one snapshot with `offsets`, see `LakeTable`."""
        with self._commit(rows.schema) as transaction:
            self._add(transaction, rows, source, offsets)

    def upsert(self, changes: KeyedRows, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Replace and delete rows in one commit with `offsets`, see `LakeTable`."""
        with self._commit(changes.rows.schema) as transaction:
            keys = pa.concat_tables([changes.rows.select(list(changes.keys)), changes.deleted])
            old = _rows_with(keys)
            limit = 1 if len(changes.keys) == 1 else None  # with one column, all of the rows have keys of the commit
            found = self._table.scan(old, limit=limit).to_arrow()
            if len(found):
                transaction.delete(old)
            others = _without_keys(found, keys)
            if len(others):
                transaction.append(others)
            self._add(transaction, changes.rows, source, offsets)

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

    def _add(
        self, transaction: Transaction, rows: pa.Table, source: TopicIncarnation, offsets: Mapping[int, int]
    ) -> None:
        """Add the last snapshot, with the offsets and the ids of all snapshots that a rollback may leave."""
        known = {each.snapshot_id for each in self._table.snapshots()}
        begun = [each.snapshot_id for each in transaction.table_metadata.snapshots if each.snapshot_id not in known]
        parents = [self._table.metadata.current_snapshot_id, *begun]
        kept = {"parents": parents, "offsets": {str(partition): offset for partition, offset in offsets.items()}}
        properties = {_key_of(source): orjson.dumps(kept).decode()}
        transaction.append(rows, snapshot_properties=properties)
        transaction.set_properties(properties)


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


def _rows_with(keys: pa.Table) -> BooleanExpression:
    """Return the condition of rows with values of `keys` in each column, with ranges that exclude files."""
    conditions: list[BooleanExpression] = []
    for name in keys.column_names:
        values = keys.column(name).unique().sort().to_pylist()
        conditions.append(In(term=name, values=values))
        conditions.append(GreaterThanOrEqual(term=name, value=values[0]))
        conditions.append(LessThanOrEqual(term=name, value=values[-1]))
    return And(*conditions)


def _without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key is not one of `keys`: values of several of them may meet in another row."""
    numbered = rows.select(keys.column_names).cast(keys.schema).append_column("_row", pa.array(np.arange(len(rows))))
    others = numbered.join(keys, keys.column_names, join_type="left anti").column("_row")
    return rows.take(others.sort())


def _key_of(source: TopicIncarnation) -> str:
    return f"{_PREFIX}{source.topic}.{source.id}"


def _parsed(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in orjson.loads(text)["offsets"].items()}
