"""Rows with one row for each key: the columns of keys, the last record of each key, and keys that are refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock import Serde, Serdes
from penstock.errors import StreamsError
from penstock.lake.columns import LakeColumns
from penstock.lake.tables import KeyedRows
from penstock.lake.upserts import UpsertColumns
from penstock.record import RecordBatch, TopicPartition
from penstock.serdes.windowed import WindowedSerdes
from penstock.windows import SessionWindow, TimeWindow, Windowed

TEXT, NUMBER = Serdes.string(), Serdes.integer()
PLACE = TopicPartition("app-orders-lake", 1)


@dataclass
class Shop:
    city: str
    number: int | None


@dataclass
class Sales:
    total: int


def second(number: int) -> datetime:
    return datetime.fromtimestamp(number, UTC)


def changes(key_serde: Serde, value_serde: Serde, *records: tuple[Any, Any], commits: int = 1) -> KeyedRows:
    """Return the changes of records, which arrive in several fetches."""
    columns = UpsertColumns(LakeColumns(key_serde, value_serde))
    written = [
        (key_serde.serialize("t", key), None if value is None else value_serde.serialize("t", value), 1_000, offset, ())
        for offset, (key, value) in enumerate(records)
    ]
    made = columns.changes([columns.rows(PLACE, RecordBatch.of(written[part::commits])) for part in range(commits)])
    assert made.rows.schema == columns.schema
    return made


def test_the_last_record_of_each_key_counts() -> None:
    made = changes(TEXT, NUMBER, ("a", 1), ("b", 2), ("a", None), ("b", 3), ("c", None), ("c", 4))
    assert made.rows.select(["_key", "value"]).to_pylist() == [{"_key": "b", "value": 3}, {"_key": "c", "value": 4}]
    assert made.deleted.to_pylist() == [{"_key": "a"}]


def test_later_fetches_count_more_than_earlier_ones() -> None:
    made = changes(TEXT, NUMBER, ("a", 1), ("a", 2), commits=2)
    assert made.rows.column("value").to_pylist() == [2]


def test_the_fields_of_a_key_are_columns_that_are_never_null() -> None:
    made = changes(Serdes.json(Shop), Serdes.json(Sales), (Shop("Bern", 1), Sales(5)), (Shop("Bern", 2), None))
    assert made.keys == ("_key_city", "_key_number")
    assert [field.name for field in made.rows.schema if not field.nullable] == list(made.keys)
    assert made.rows.to_pylist() == [{"_key_city": "Bern", "_key_number": 1, "total": 5, "_timestamp": second(1)}]
    assert made.deleted.to_pylist() == [{"_key_city": "Bern", "_key_number": 2}]


@pytest.mark.parametrize(
    ("serde", "window"),
    [
        (WindowedSerdes.time_windowed(TEXT, 5_000), TimeWindow(10_000, 15_000)),
        (WindowedSerdes.session_windowed(TEXT), SessionWindow(10_000, 12_000)),
    ],
)
def test_a_windowed_key_is_the_key_and_its_window(serde: Serde, window: Any) -> None:
    later = type(window)(20_000, 25_000)
    made = changes(serde, NUMBER, (Windowed("a", window), 1), (Windowed("a", later), 2), (Windowed("a", window), 3))
    assert made.keys == ("_key", "_window_start", "_window_end")
    assert [tuple(row.values())[:4] for row in made.rows.to_pylist()] == [
        ("a", second(20), second(25), 2),
        ("a", second(10), second(window.end // 1000), 3),
    ]


def test_a_part_of_a_key_without_a_value_is_named_by_its_offset() -> None:
    key = Serdes.json(Shop)
    with pytest.raises(StreamsError, match=r"offset 1 of app-orders-lake-1 has no value for the column _key_number"):
        changes(key, NUMBER, (Shop("Bern", 1), 1), (Shop("Bern", None), 1))


@pytest.mark.parametrize("serde", [Serdes.double(), Serdes.json(list[int])])
def test_keys_that_cannot_be_compared_are_refused(serde: Serde) -> None:
    with pytest.raises(StreamsError, match=r"Rows cannot be replaced by the column _key of the type (double|list)"):
        UpsertColumns(LakeColumns(serde, NUMBER))


def test_a_field_of_values_with_the_name_of_a_column_of_the_key_is_refused() -> None:
    @dataclass
    class Value:
        _key_city: str

    with pytest.raises(StreamsError, match="_key_city: columns of the key have these names"):
        UpsertColumns(LakeColumns(Serdes.json(Shop), Serdes.json(Value)))


def test_the_schema_of_values_is_that_of_appended_rows() -> None:
    columns = LakeColumns(TEXT, Serdes.json(Sales))
    assert UpsertColumns(columns).schema.remove(0) == columns.schema.remove(0)
    assert UpsertColumns(columns).schema.field(0) == pa.field("_key", pa.string(), nullable=False)
