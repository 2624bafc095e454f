"""The schemas of records in internal topics, as bytes of Kafka's formats."""

from __future__ import annotations

import uuid

import pytest

from penstock_broker.record_schema import (
    BYTES,
    INT16,
    INT32S,
    NULLABLE_STRING,
    STRING,
    UUID,
    array_of,
    encode_versioned,
    nullable_array_of,
    record_schema,
)
from penstock_broker.wire.codec import Message, structure_codec
from penstock_broker.wire.primitives import Cursor
from penstock_broker.wire.schema import Structure

PARTITIONS = record_schema("Partitions", {"topic": STRING, "numbers": INT32S}, is_flexible=True)
NESTED = {"lists": nullable_array_of(PARTITIONS), "epoch": INT16}


def decoded(structure: Structure, content: bytes) -> Message:
    cursor = Cursor(memoryview(content))
    cursor.take(2)
    message: Message = structure_codec(structure).decode(cursor)
    assert cursor.position == len(content)
    return message


@pytest.mark.parametrize(
    ("structure", "message", "content"),
    [
        (record_schema("Plain", {"a": STRING, "b": BYTES}), {"a": "x", "b": b"yz"}, "0003 0001 78 00000002 797a"),
        (record_schema("Flexible", {"a": STRING}, is_flexible=True), {"a": "x"}, "0003 02 78 00"),
        (record_schema("Null", {"a": NULLABLE_STRING}), {"a": None}, "0003 ffff"),
        (record_schema("NoList", NESTED, is_flexible=True), {"lists": None, "epoch": 5}, "0003 00 0005 00"),
        (
            record_schema("List", NESTED, is_flexible=True),
            {"lists": [{"topic": "t", "numbers": [1, 2]}], "epoch": 5},
            "0003 02 02 74 03 00000001 00000002 00 0005 00",
        ),
        (record_schema("Tagged", {"a": INT16}, is_flexible=True, tags={"a": 0}), {"a": 5}, "0003 01 00 02 0005"),
        (record_schema("Tagged", {"a": INT16}, is_flexible=True, tags={"a": 0}), {}, "0003 00"),
    ],
)
def test_a_record_has_its_version_and_its_fields_in_order(structure: Structure, message: Message, content: str) -> None:
    found = encode_versioned(3, structure_codec(structure), message)
    assert found == bytes.fromhex(content)
    assert decoded(structure, found) == message


def test_structures_inside_an_array_are_read_back() -> None:
    inner = record_schema("Inner", {"id": UUID, "name": STRING})
    outer = record_schema("Outer", {"all": array_of(inner)})
    message = {"all": [{"id": uuid.uuid4(), "name": str(number)} for number in range(3)]}
    assert decoded(outer, encode_versioned(0, structure_codec(outer), message)) == message
