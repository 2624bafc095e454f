"""The rows of records: columns by serdes, values, nulls, and records that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pydantic
import pytest

from penstock import Consumed, Grouped, Serde, Serdes, StreamsBuilder, UnlimitedWindows, WindowedSerdes
from penstock.errors import StreamsError
from penstock.lake import Delta
from penstock.lake.columns import LakeColumns
from penstock.record import RecordBatch, TopicPartition
from penstock.serdes.avro import AvroSerde

TEXT = Serdes.string()
PLACE = TopicPartition("orders", 1)


@dataclass
class Line:
    product: str


@dataclass
class Order:
    id: UUID
    lines: list[Line]
    prices: dict[str, Decimal]


class Model(pydantic.BaseModel):
    name: str
    at: datetime


class Short(msgspec.Struct, omit_defaults=True, rename="camel"):
    unit_price: int = 5
    note: str | None = "none"


class Listed(msgspec.Struct, array_like=True):
    first: int
    second: str


@dataclass
class Shortened:
    shorts: list[Short]
    by_name: dict[str, Listed]
    at: datetime | None = None


def rows(key_serde: Serde, value_serde: Serde, *records: tuple[Any, Any]) -> pa.Table:
    columns = LakeColumns(key_serde, value_serde)
    written = [
        (
            None if key is None else key_serde.serialize("orders", key),
            None if value is None else value_serde.serialize("orders", value),
            1_500,
            offset,
            (),
        )
        for offset, (key, value) in enumerate(records)
    ]
    made = columns.rows(PLACE, RecordBatch.of(written))
    assert made.schema == columns.schema
    return made


def test_fields_of_objects_are_columns() -> None:
    order = Order(UUID(int=7), [Line("tea")], {"tea": Decimal("1.5")})
    assert rows(TEXT, Serdes.json(Order), ("a", order)).to_pylist() == [
        {
            "_key": "a",
            "id": str(UUID(int=7)),
            "lines": [{"product": "tea"}],
            "prices": [("tea", Decimal("1.5"))],
            "_timestamp": datetime.fromtimestamp(1.5, UTC),
        }
    ]


def test_a_record_without_a_value_has_nulls() -> None:
    made = rows(TEXT, Serdes.json(Line), (None, None), ("a", Line("tea")))
    assert made.select(["_key", "product"]).to_pylist() == [
        {"_key": None, "product": None},
        {"_key": "a", "product": "tea"},
    ]


def test_a_model_of_pydantic_is_a_row() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    made = rows(TEXT, Serdes.json(Model), ("a", Model(name="tea", at=at)))
    assert made.select(["name", "at"]).to_pylist() == [{"name": "tea", "at": at}]


@pytest.mark.parametrize("serde_of", [Serdes.json, Serdes.msgpack])
def test_fields_and_names_that_a_serde_leaves_out_are_columns(serde_of: Any) -> None:
    made = rows(TEXT, serde_of(Short), ("a", Short()), ("b", Short(5, None)), ("c", None))
    assert made.select(["unitPrice", "note"]).to_pylist() == [
        {"unitPrice": 5, "note": "none"},
        {"unitPrice": 5, "note": None},
        {"unitPrice": None, "note": None},
    ]
    nested = Shortened([Short()], {"x": Listed(1, "one")})
    assert rows(serde_of(Listed), serde_of(Shortened), (Listed(2, "two"), nested)).to_pylist() == [
        {
            "_key": {"first": 2, "second": "two"},
            "shorts": [{"unitPrice": 5, "note": "none"}],
            "by_name": [("x", {"first": 1, "second": "one"})],
            "at": None,
            "_timestamp": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        }
    ]


def test_a_record_of_avro_is_a_row() -> None:
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": ["null", "int"]}]}'
    made = rows(TEXT, AvroSerde("mock://columns", schema), ("a", {"n": 7}), ("b", {"n": None}))
    assert made.select(["n"]).to_pylist() == [{"n": 7}, {"n": None}]


def test_a_record_of_avro_with_a_class_has_the_values_that_are_defaults() -> None:
    schema = '{"type": "record", "name": "Short", "fields": [{"name": "unitPrice", "type": "int", "default": 5}]}'
    made = rows(TEXT, AvroSerde("mock://defaults", schema, Short), ("a", Short()))
    assert made.column("unitPrice").to_pylist() == [5]


@pytest.mark.parametrize(
    ("serde", "value", "kind"),
    [
        (Serdes.boolean(), True, pa.bool_()),
        (Serdes.bytes(), b"x", pa.binary()),
        (Serdes.double(), 1.5, pa.float64()),
        (Serdes.float(), 1.5, pa.float32()),
        (Serdes.integer(), 7, pa.int32()),
        (Serdes.long(), 7, pa.int64()),
        (Serdes.short(), 7, pa.int32()),
        (TEXT, "x", pa.string()),
    ],
)
def test_other_values_are_one_column(serde: Serde, value: Any, kind: pa.DataType) -> None:
    made = rows(serde, serde, (value, value), (value, None))
    assert made.schema.field("value").type == made.schema.field("_key").type == kind
    assert made.column("value").to_pylist() == [value, None]


def test_a_serde_without_a_type_is_refused() -> None:
    with pytest.raises(StreamsError, match=r"The objects of JsonSerde have no columns\. to_lake\(\) takes"):
        LakeColumns(TEXT, Serdes.json())


def test_a_field_with_the_name_of_a_column_is_refused() -> None:
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "_key", "type": "int"}]}'
    with pytest.raises(StreamsError, match="_key: tables of a lake have columns of this name"):
        LakeColumns(TEXT, AvroSerde("mock://columns", schema))


def test_windows_without_an_end_are_refused() -> None:
    """Those of a program, and those of a serde that does not know their size."""
    builder, grouped = StreamsBuilder(), Grouped.with_(TEXT, TEXT)
    stream = builder.stream("orders", Consumed.with_(TEXT, TEXT)).group_by_key(grouped)
    stream.windowed_by(UnlimitedWindows.of()).count().to_lake(Delta("/lake/orders"))
    (sink,) = builder.build().build("app").lake_sinks.values()
    for serde in (sink.key_serde, WindowedSerdes.time_windowed(TEXT)):
        assert serde is not None
        with pytest.raises(StreamsError, match=r"no end, .* column _window_end\. Give .* a serde with their size"):
            LakeColumns(serde, TEXT)


def test_an_unreadable_record_is_named_by_its_offset() -> None:
    columns = LakeColumns(TEXT, Serdes.json(Line))
    written = [(b"a", value, 0, 40 + offset, ()) for offset, value in enumerate((b'{"product": "tea"}', b"{", b"{"))]
    with pytest.raises(StreamsError, match="The record at offset 41 of orders-1 does not fit the columns"):
        columns.rows(PLACE, RecordBatch.of(written))


def test_a_number_too_large_for_its_column_is_named_by_its_offset() -> None:
    @dataclass
    class Count:
        n: int

    with pytest.raises(StreamsError, match="The record at offset 0 of orders-1"):
        rows(TEXT, Serdes.json(Count), ("a", Count(2**63)))
