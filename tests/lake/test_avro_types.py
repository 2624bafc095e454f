"""The types of columns for Avro schemas."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import StreamsError
from penstock.lake.avro_types import type_of_avro


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": type_} for number, type_ in enumerate(types)]
    return {"type": "record", "name": "shop.Order", "fields": fields}


LINE = {"type": "record", "name": "shop.Line", "fields": [{"name": "product", "type": "string"}]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("int", pa.int32()),
        (["null", "long"], pa.int64()),
        ({"type": "string"}, pa.string()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2)),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", tz="UTC")),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "long", "logicalType": "unknown"}, pa.int64()),
        ({"type": "enum", "name": "Color", "symbols": ["RED"]}, pa.string()),
        ({"type": "fixed", "name": "Hash", "size": 8}, pa.binary()),
        ({"type": "map", "values": "double"}, pa.map_(pa.string(), pa.float64())),
        ({"type": "array", "items": ["null", "boolean"]}, pa.list_(pa.bool_())),
        (
            record(LINE, {"type": "array", "items": "Line"}),
            pa.struct(
                [
                    ("f0", pa.struct([("product", pa.string())])),
                    ("f1", pa.list_(pa.struct([("product", pa.string())]))),
                ]
            ),
        ),
    ],
)
def test_each_schema_has_a_type(schema: Any, expected: pa.DataType) -> None:
    assert type_of_avro(json.dumps(schema)) == expected


def test_types_of_one_name_in_several_namespaces_differ() -> None:
    def line(field: str, *more: Any, **names: str) -> dict[str, Any]:
        return {"type": "record", **names, "fields": [{"name": field, "type": "int"}, *more]}

    inner = {"name": "of", "type": "Color"}
    color = {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED"]}}
    ours, theirs = line("n", name="Line", namespace="ours"), line("s", color, inner, name="theirs.Line")
    kinds = [field.type for field in type_of_avro(json.dumps(record(ours, theirs, "ours.Line", "theirs.Line")))]
    assert kinds[0] == kinds[2] == pa.struct([("n", pa.int32())])
    assert kinds[1] == kinds[3] == pa.struct([("s", pa.int32()), ("color", pa.string()), ("of", pa.string())])


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        (record(["int", "string"]), r"the value.f0 has no type of a column: \[\"int\", \"string\"\]"),
        (record({"type": "array", "items": "shop.Order"}), r"the value.f0\[\] has no type .*shop.Order"),
        ("null", "the value has no type of a column"),
    ],
)
def test_other_schemas_are_refused_by_their_place(schema: Any, where: str) -> None:
    with pytest.raises(StreamsError, match=where):
        type_of_avro(json.dumps(schema))
