"""Tables of Apache Iceberg, by PyIceberg (the extra `lake`).

Each snapshot that this module commits has the offsets in its summary, so a table that is rolled back to an older
snapshot receives the later records again. Snapshots expire; the properties of the table repeat the offsets for the time
after that, with the parent of their snapshot: a table that has the parent and not the snapshot was rolled back. The
requirement of a commit is the snapshot that was read, so no other writer comes in between. The key of the offsets has
the id of the topic, because applications on several clusters may share a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import orjson
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table import Table

from penstock.errors import StreamsError
from penstock.lake.columns import check_columns
from penstock.lake.tables import Iceberg, LakeConflictError, TopicIncarnation

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
        check_columns(self._name, self._table.schema().as_arrow(), rows.schema)
        known = {str(partition): offset for partition, offset in offsets.items()}
        parent = self._table.metadata.current_snapshot_id
        properties = {_key_of(source): orjson.dumps({"parent": parent, "offsets": known}).decode()}
        self._table.metadata.properties[_RETRIES] = "0"
        try:
            with self._table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(rows.schema)
                transaction.append(rows, snapshot_properties=properties)
                transaction.set_properties(properties)
        except CommitFailedException as error:
            raise LakeConflictError(f"Another program has changed {self._name}: {error}") from error


def _opened(table: Iceberg, schema: pa.Schema) -> Table:
    catalog = load_catalog(table.catalog, **table.properties)
    namespace = table.name.rpartition(".")[0]
    if not namespace:
        raise StreamsError(f"An Iceberg table has a namespace, as in shop.orders; got {table.name!r}.")
    if not catalog.table_exists(table.name):
        catalog.create_namespace_if_not_exists(namespace)
        with suppress(TableAlreadyExistsError):  # another instance has created it meanwhile
            return catalog.create_table(table.name, schema)
    return catalog.load_table(table.name)


def _key_of(source: TopicIncarnation) -> str:
    return f"{_PREFIX}{source.topic}.{source.id}"


def _parsed(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in orjson.loads(text)["offsets"].items()}
