"""Columns of stores and records."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from penstock import Serdes, Stores, ValueAndTimestamp
from penstock.errors import InvalidStateStoreError
from penstock.record import NO_TIMESTAMP, Record
from penstock.state.query.columns import StateColumns, columns_of, first_rows, record_batches, schema_of, tapped_columns
from penstock.task.standby_task import empty_store
from penstock.windows import TimeWindow, Windowed
from tests.support.stores import CONFIG, build
from tests.support.value_stores import timestamped


def columns(key_serde: Any, value_serde: Any, entries: dict[Any, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return the schema of a timestamped store and its rows."""
    builder = Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store("store"), key_serde, value_serde
    )
    store = build(builder)
    for key, value in entries.items():
        store.put(key, ValueAndTimestamp(value, 5_000))
    found = StateColumns(empty_store(builder, CONFIG))
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


def record(key: Any, value: Any) -> tuple[Any, Record[Any, Any]]:
    return key, Record(key, value, 5, (("h", b"1"),))


@pytest.mark.parametrize(
    ("entries", "serde", "types"),
    [
        ([record("a", 1), record(None, None)], None, ["string", "int64"]),
        ([record("a", 1), record("b", "x")], None, ["string", "string"]),
        ([record(None, None)], Serdes.long(), ["int64", "int64"]),
        ([], None, ["string", "string"]),
    ],
)
def test_columns_of_records_have_inferred_types_else_those_of_the_serdes(
    entries: list[Any], serde: Any, types: list[str]
) -> None:
    columns = columns_of([each for _, each in entries], serde, serde)
    schema = schema_of(columns)
    assert schema.names == ["key", "value", "timestamp", "headers"]
    assert [str(schema.field(name).type) for name in ("key", "value")] == types
    (batch,) = record_batches(columns, iter(entries)) if entries else ([],)
    assert len(batch) == len(entries)


def test_windowed_keys_have_columns_of_their_window() -> None:
    _, window = record(Windowed("a", TimeWindow(0, 10)), "v")
    (batch,) = record_batches(columns_of([window], None, None), iter([(window.key, window)]))
    (row,) = batch.to_pylist()
    assert (row["key"], row["window_end"].timestamp(), row["headers"]) == ("a", 0.01, [{"key": "h", "value": b"1"}])


def test_rows_are_read_in_batches_of_limited_size() -> None:
    columns = columns_of([Record("a", 1, 5)], None, None)
    assert [len(batch) for batch in record_batches(columns, (record("a", 1) for _ in range(10_001)))] == [10_000, 1]
    assert list(record_batches(columns, iter(()))) == []


@pytest.mark.parametrize(("limit", "more"), [(1, True), (2, False), (3, False)])
def test_the_first_rows_say_whether_there_are_more(limit: int, more: bool) -> None:
    entries = [record("a", 1), record("b", 2)]
    rows = first_rows(columns_of([each for _, each in entries], None, None), iter(entries), limit)
    assert rows.more == more
    assert [row[:3] for row in rows.rows] == [
        ["'a'", "1", "1970-01-01 00:00:00.005"],
        ["'b'", "2", "1970-01-01 00:00:00.005"],
    ][:limit]


def test_an_unknown_timestamp_is_no_time() -> None:
    store = timestamped("a")
    store.put("b", ValueAndTimestamp("B", NO_TIMESTAMP))
    (batch,) = StateColumns(store).entry_batches(store)
    assert [time and time.timestamp() for time in batch["timestamp"].to_pylist()] == [0.005, None]


def test_records_of_a_tap_name_their_origin() -> None:
    assert schema_of(tapped_columns([])).names[-4:] == ["task", "topic", "partition", "offset"]
