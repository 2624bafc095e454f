"""Protobuf messages of a generated class, over the schema registry in memory that confluent-kafka has for tests."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.errors import SerializationError
from penstock.serdes.protobuf import ProtobufSerde
from penstock.serdes.schema_registry import registry_client


def point_class() -> Any:
    """Return the class that protoc makes of `message Point { int64 x = 1; string name = 2; }`."""
    file = descriptor_pb2.FileDescriptorProto(name="tests/point.proto", package="tests", syntax="proto3")
    message = file.message_type.add(name="Point")
    message.field.add(name="x", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    message.field.add(name="name", number=2, type="TYPE_STRING", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    return message_factory.GetMessageClass(
        pool.AddSerializedFile(file.SerializeToString()).message_types_by_name["Point"]
    )


Point = point_class()


def test_a_message_follows_its_schema_id_and_its_index() -> None:
    message = Point(x=3, name="three")
    data = ProtobufSerde("mock://framing", Point).serialize("t", message)
    assert data == b"\0\0\0\0\1" + b"\0" + message.SerializeToString()


def test_bytes_that_are_no_message_are_refused() -> None:
    serde = ProtobufSerde("mock://broken", Point)
    framing = serde.serialize("t", Point())
    with pytest.raises(SerializationError, match=r"^Cannot read .* from 't'"):
        serde.deserialize("t", framing + b"\xff")


def test_keys_of_the_configuration_reach_the_serializer() -> None:
    serde = ProtobufSerde("mock://manual", Point, is_key=True, config={"auto.register.schemas": False})
    with pytest.raises(SerializationError, match="Cannot write"):
        serde.serialize("t", Point())
    ProtobufSerde("mock://manual", Point, is_key=True).serialize("t", Point())
    assert registry_client({"url": "mock://manual"}).get_subjects() == ["t-key"]
    assert serde.deserialize("t", serde.serialize("t", Point(x=1))) == Point(x=1)
