"""Tables of Delta Lake, by the package deltalake (the extra `lake`).

Each commit has an application transaction for each partition of the topic, whose version is the offset. A commit is the
next version of the table or fails, so no other writer comes in between. Transactions outlive all versions, unless the
table limits their time. A merge that changes no row makes no version, so the transactions get one of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.errors import StreamsError
from penstock.lake.columns import TIMESTAMP, check_columns
from penstock.lake.tables import Delta, KeyedRows, LakeConflictError, TopicIncarnation

_RETENTION: Final = "delta.setTransactionRetentionDuration"


class DeltaLakeTable:
    """An open table of Delta Lake (`LakeTable`).

    Args:
        table: the table.
        schema: the schema of a new table.
    """

    def __init__(self, table: Delta, schema: pa.Schema) -> None:
        self._name = str(table)
        self._uri, self._options = table.uri, dict(table.storage_options)
        try:
            DeltaTable.create(self._uri, schema=schema, mode="ignore", storage_options=self._options)
        except DeltaError:
            if not DeltaTable.is_deltatable(self._uri, self._options):
                raise  # else another instance has created it meanwhile
        self._table = DeltaTable(self._uri, storage_options=self._options)

    def refresh(self) -> None:
        """Read the newest version."""
        self._table = DeltaTable(self._uri, storage_options=self._options)

    def offsets(self, source: TopicIncarnation) -> Mapping[int, int]:
        """Return the versions of the application transactions of `source`.

        Raises StreamsError if the table deletes them after a time.
        """
        retention = self._table.metadata().configuration.get(_RETENTION)
        if retention is not None:
            raise StreamsError(
                f"{self._name} has the property {_RETENTION} = {retention}, which deletes the offsets of the records "
                "that it has, and they would be appended again. Remove the property, by ALTER TABLE ... UNSET "
                "TBLPROPERTIES."
            )
        versions = {n: self._table.transaction_version(_writer_of(source, n)) for n in range(source.partitions)}
        return {partition: version for partition, version in versions.items() if version is not None}

    def append(self, rows: pa.Table, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Add `rows` in one version with `offsets`, see `LakeTable`."""
        with self._commit(rows.schema):
            self._add(rows, _properties(source, offsets))

    def upsert(self, changes: KeyedRows, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Replace and delete rows in one version with `offsets`, see `LakeTable`.

        The merge has two kinds of rows: those without a timestamp delete all rows of their keys, and the others are
        added.
        """
        rows, keys, properties = changes.rows, list(changes.keys), _properties(source, offsets)
        with self._commit(rows.schema):
            version = self._table.version()
            old = pa.concat_tables([rows.select(keys), changes.deleted])
            merge = self._table.merge(
                pa.concat_tables([rows, old], promote_options="default").cast(rows.schema),
                " AND ".join([f"new.`{TIMESTAMP}` IS NULL", *(f"old.`{key}` = new.`{key}`" for key in keys)]),
                source_alias="new",
                target_alias="old",
                merge_schema=True,
                streamed_exec=False,  # the ranges of the keys exclude files
                commit_properties=properties,
            )
            merge.when_matched_delete().when_not_matched_insert_all(f"new.`{TIMESTAMP}` IS NOT NULL").execute()
            if self._table.version() == version:
                self._add(rows.schema.empty_table(), properties)

    @contextmanager
    def _commit(self, schema: pa.Schema) -> Iterator[None]:
        """Commit in the block, on top of the version that was read."""
        check_columns(self._name, pa.schema(self._table.schema().to_arrow()), schema)
        try:
            yield
        except CommitFailedError as error:
            raise LakeConflictError(f"Another program has changed {self._name}: {error}") from error

    def _add(self, rows: pa.Table, properties: CommitProperties) -> None:
        write_deltalake(self._table, rows, mode="append", schema_mode="merge", commit_properties=properties)


def _properties(source: TopicIncarnation, offsets: Mapping[int, int]) -> CommitProperties:
    transactions = [Transaction(_writer_of(source, partition), offset) for partition, offset in offsets.items()]
    return CommitProperties(max_commit_retries=0, app_transactions=transactions)


def _writer_of(source: TopicIncarnation, partition: int) -> str:
    """Return the application id of the transactions of one partition."""
    return f"penstock-{source.topic}-{source.id}-{partition}"
