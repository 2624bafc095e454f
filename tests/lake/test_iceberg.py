"""The offsets in snapshots of Iceberg: snapshots that expire or are rolled back, and names without a namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import StreamsError
from penstock.lake import Iceberg
from penstock.lake.iceberg import IcebergTable
from tests.lake.formats import IcebergFormat
from tests.lake.test_tables import SCHEMA, SOURCE, some


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


def test_a_name_without_a_namespace_is_refused(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    with pytest.raises(StreamsError, match=r"has a namespace, as in shop\.orders; got 'orders'"):
        IcebergTable(Iceberg("orders", "local", properties), SCHEMA)
