"""Stores as tables: over their partitions, and without Arrow."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from penstock.errors import ConfigError, InvalidStateStoreError
from penstock.notebook import TEXT
from penstock.state.query.queryable import StoresOfPartitions, StoreTableType
from penstock.state.table import StoreTable
from tests.support.stores import build, fill, text_store


def partitions(*keys: str) -> tuple[list[Any], StoreTable]:
    """Return a store for each key, and all as one table."""
    stores = [build(text_store()) for _ in keys]
    for store, key in zip(stores, keys, strict=True):
        fill(store, key)
    return stores, StoreTableType().create(StoresOfPartitions(lambda _: stores, None, InvalidStateStoreError), "s")


def test_the_rows_of_a_table_are_those_of_all_partitions() -> None:
    stores, table = partitions("b", "a")
    assert table.to_arrow().to_pylist() == [{"key": "b", "value": "B"}, {"key": "a", "value": "A"}]
    fill(stores[0], "c")
    assert table.to_arrow().num_rows == 3
    assert stores[1].to_arrow().to_pylist() == [{"key": "a", "value": "A"}]


def test_a_notebook_shows_the_name_and_the_number_of_entries() -> None:
    _, table = partitions("b", "a")
    title, _, *rows = table._repr_mimebundle_()[TEXT].splitlines()
    assert title == "Store s (kind: key-value store, entries: 2)"
    assert [row.split() for row in rows] == [["'b'", "'B'"], ["'a'", "'A'"]]


def test_a_table_without_arrow_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    _, table = partitions("a")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"^A table needs .*pyarrow"):
        table.to_arrow()
