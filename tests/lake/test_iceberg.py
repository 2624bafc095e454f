"""The offsets in snapshots of Iceberg: snapshots that expire or are rolled back; partitions, and wrong names."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType

from penstock.errors import StreamsError
from penstock.lake import Iceberg
from penstock.lake.iceberg import IcebergTable
from tests.lake.formats import IcebergFormat, rows_of
from tests.lake.test_tables import KEYED, SCHEMA, SOURCE, keyed, some


def test_a_table_that_is_rolled_back_has_the_offsets_of_its_snapshot(tmp_path: Path) -> None:
    lake = IcebergFormat(tmp_path)
    table = lake.open(SCHEMA)
    for number in (1, 2):
        table.refresh()
        table.append(some(number), SOURCE, {0: number})
    stored = lake.catalog().load_table("shop.orders")
    stored.manage_snapshots().rollback_to_snapshot(stored.history()[0].snapshot_id).commit()
    assert lake.open(SCHEMA).offsets(SOURCE) == {0: 1}


def test_offsets_outlive_the_snapshot_that_has_them(tmp_path: Path) -> None:
    lake = IcebergFormat(tmp_path)
    lake.open(SCHEMA).append(some(1), SOURCE, {0: 5})
    lake.append_elsewhere(some(2))
    lake.append_elsewhere(some(3))
    stored = lake.catalog().load_table("shop.orders")
    stored.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in stored.history()[:2]]).commit()
    table = lake.open(SCHEMA)
    assert table.offsets(SOURCE) == {0: 5}


def test_a_table_that_is_rolled_back_to_before_its_first_offsets_has_none(tmp_path: Path) -> None:
    lake = IcebergFormat(tmp_path)
    lake.open(SCHEMA)
    lake.append_elsewhere(some(1))
    lake.open(SCHEMA).append(some(2), SOURCE, {0: 5})
    stored = lake.catalog().load_table("shop.orders")
    stored.manage_snapshots().rollback_to_snapshot(stored.history()[0].snapshot_id).commit()
    assert lake.open(SCHEMA).offsets(SOURCE) == {}


def test_a_table_that_is_rolled_back_to_before_its_offsets_after_an_expiry_is_an_error(tmp_path: Path) -> None:
    lake = IcebergFormat(tmp_path)
    lake.open(SCHEMA)
    lake.append_elsewhere(some(1))
    lake.append_elsewhere(some(2))
    lake.open(SCHEMA).append(some(3), SOURCE, {0: 5})
    stored = lake.catalog().load_table("shop.orders")
    first, second, _ = (each.snapshot_id for each in stored.history())
    stored.maintenance.expire_snapshots().by_ids([first]).commit()
    stored.manage_snapshots().rollback_to_snapshot(second).commit()
    with pytest.raises(StreamsError, match="was rolled back to a snapshot without offsets of app-orders-lake"):
        lake.open(SCHEMA).offsets(SOURCE)


def test_an_upsert_is_one_snapshot_that_leaves_other_files_alone(tmp_path: Path) -> None:
    lake = IcebergFormat(tmp_path)
    table = lake.open(KEYED)
    for offset, change in enumerate([keyed(a=1, b=2), keyed(x=3, y=4)]):
        table.refresh()
        table.upsert(change, SOURCE, {0: offset})
    before = set(lake.files())
    table.refresh()
    table.upsert(keyed(y=5, deleted=["z"]), SOURCE, {0: 2})
    assert len(lake.catalog().load_table("shop.orders").history()) == 3
    assert len(before & set(lake.files())) == 1
    assert rows_of(lake, "_key, n") == [("a", 1), ("b", 2), ("x", 3), ("y", 5)]


def test_an_upsert_replaces_rows_in_other_partitions(tmp_path: Path) -> None:
    """The table is partitioned by a column of the value."""
    lake = IcebergFormat(tmp_path)
    lake.open(KEYED)
    stored = lake.catalog().load_table("shop.orders")
    with stored.update_spec() as spec:
        spec.add_identity("n")
    table = lake.open(KEYED)
    for offset, change in enumerate([keyed(a=1, b=1, c=2), keyed(a=2, b=3, deleted=["c"])]):
        table.refresh()
        table.upsert(change, SOURCE, {0: offset})
    assert rows_of(lake, "_key, n") == [("a", 2), ("b", 3)]


def test_the_columns_of_the_key_identify_rows(tmp_path: Path) -> None:
    lake = IcebergFormat(tmp_path)
    lake.open(KEYED)
    schema = lake.catalog().load_table("shop.orders").schema()
    assert schema.identifier_field_names() == {"_key"}
    assert schema.find_field("_key").required


def test_a_table_may_be_partitioned_by_days(tmp_path: Path) -> None:
    lake = IcebergFormat(tmp_path)
    lake.prepare()
    columns = NestedField(1, "_key", StringType()), NestedField(2, "_timestamp", TimestamptzType())
    days = PartitionSpec(PartitionField(2, 1000, DayTransform(), "day"))
    lake.catalog().create_table("shop.orders", Schema(*columns), partition_spec=days)
    schema = pa.schema([("_key", pa.string()), ("_timestamp", pa.timestamp("us", tz="UTC"))])
    rows = [{"_key": str(day), "_timestamp": datetime(2026, 1, day, tzinfo=UTC)} for day in (1, 2)]
    lake.open(schema).append(pa.Table.from_pylist(rows, schema=schema), SOURCE, {0: 2})
    assert len(lake.files()) == 2
    assert rows_of(lake, "_key") == [("1",), ("2",)]


def test_a_name_without_a_namespace_is_refused(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    with pytest.raises(StreamsError, match=r"has a namespace, as in shop\.orders; got 'orders'"):
        IcebergTable(Iceberg("orders", "local", properties), SCHEMA)
