"""Columns of stores and records."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from penstock import Serdes, Stores, ValueAndTimestamp
from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError
from penstock.state.build import build_store
from penstock.state.memory import MemoryBase
from penstock.state.query.columns import StateColumns
from penstock.state.record_cache import RecordCache
from penstock.task.standby_task import empty_store


def columns(key_serde: Any, value_serde: Any, entries: dict[Any, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return the schema of a timestamped store and its rows."""
    builder = Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store("store"), key_serde, value_serde
    )
    config = StreamsConfig({"application.id": "app"})
    view = MemoryBase().view("store")
    store: Any = build_store(builder, config, view, RecordCache(0), lambda: None, {})  # type: ignore[arg-type, return-value]  # nobody asks
    for key, value in entries.items():
        store.put(key, ValueAndTimestamp(value, 5_000))
    found = StateColumns(empty_store(builder, config))
    return found.ddl, [row for batch in found.batches(3, store) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("serde", "value", "type", "shown"),
    [
        (Serdes.string(), "x", "string", "x"),
        (Serdes.long(), -7, "bigint", -7),
        (Serdes.integer(), 7, "int", 7),
        (Serdes.short(), 7, "smallint", 7),
        (Serdes.double(), 0.5, "double", 0.5),
        (Serdes.float(), 0.5, "float", 0.5),
        (Serdes.boolean(), True, "boolean", True),
        (Serdes.bytes(), b"x", "binary", b"x"),
        (Serdes.uuid(), uuid.UUID(int=1), "string", "00000000-0000-0000-0000-000000000001"),
        (Serdes.json(), {"a": [1]}, "string", '{"a":[1]}'),
        (Serdes.list(Serdes.long()), [1], "binary", Serdes.list(Serdes.long()).serialize("", [1])),
    ],
)
def test_columns_have_the_types_of_the_serdes(serde: Any, value: Any, type: str, shown: Any) -> None:
    ddl, rows = columns(Serdes.string(), serde, {"k": value})
    assert ddl == f"partition int, key string, value {type}, timestamp timestamp"
    (row,) = rows
    assert (row["partition"], row["key"], row["value"]) == (3, "k", shown)
    assert row["timestamp"].timestamp() == 5


def test_a_store_that_is_no_table_is_refused() -> None:
    with pytest.raises(InvalidStateStoreError, match="object cannot be read as a table"):
        StateColumns(object())
