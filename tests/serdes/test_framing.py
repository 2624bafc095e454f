"""Framings of Confluent, Apicurio and AWS Glue: golden bytes, round trips, damaged data."""

from __future__ import annotations

import pickle
import zlib
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import dual_schema_id_deserializer
from confluent_kafka.schema_registry.serde import SchemaId as ConfluentSchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Headers
from penstock.serdes import framing
from penstock.serdes.framing import (
    APICURIO,
    APICURIO_GLOBAL_ID,
    APICURIO_GLOBAL_ID_HEADERS,
    APICURIO_HEADERS,
    CONFLUENT,
    CONFLUENT_GUID,
    CONFLUENT_HEADERS,
    GLUE,
    GLUE_ZLIB,
    Framing,
    Part,
    SchemaId,
    SchemaIdKind,
)

GUID = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
ALL: list[Framing] = [
    CONFLUENT,
    CONFLUENT_GUID,
    CONFLUENT_HEADERS,
    GLUE,
    GLUE_ZLIB,
    APICURIO,
    APICURIO_GLOBAL_ID,
    APICURIO_HEADERS,
    APICURIO_GLOBAL_ID_HEADERS,
]
OF_UUIDS = (SchemaIdKind.GUID, SchemaIdKind.VERSION_ID)
parts: st.SearchStrategy[Part] = st.sampled_from(["key", "value"])


def id_of(framing: Framing, number: int = 258) -> SchemaId:
    return SchemaId(framing.kind, GUID if framing.kind in OF_UUIDS else number)


@pytest.mark.parametrize(
    ("framing", "data", "headers"),
    [
        (CONFLUENT, b"\0\0\0\1\2payload", ()),
        (CONFLUENT_GUID, b"\1" + GUID.bytes + b"payload", ()),
        (CONFLUENT_HEADERS, b"payload", (("__value_schema_id", b"\1" + GUID.bytes),)),
        (GLUE, b"\3\0" + GUID.bytes + b"payload", ()),
        (GLUE_ZLIB, b"\3\5" + GUID.bytes + zlib.compress(b"payload"), ()),
        (APICURIO, b"\0\0\0\1\2payload", ()),
        (APICURIO_GLOBAL_ID, b"\0\0\0\0\0\0\0\1\2payload", ()),
        (APICURIO_HEADERS, b"payload", (("apicurio.value.contentId", b"\0\0\0\0\0\0\1\2"),)),
        (APICURIO_GLOBAL_ID_HEADERS, b"payload", (("apicurio.value.globalId", b"\0\0\0\0\0\0\1\2"),)),
    ],
)
def test_each_framing_has_the_bytes_of_its_registry(framing: Framing, data: bytes, headers: Headers) -> None:
    assert framing.write("value", id_of(framing), b"payload") == (data, headers)
    assert framing.read("value", data, (*headers, ("x", None))) == (id_of(framing), b"payload")


@given(st.sampled_from(ALL), parts, st.binary(max_size=20), st.integers(0, 2**31 - 1))
def test_id_and_payload_come_back(framing: Framing, part: Part, payload: bytes, number: int) -> None:
    id = id_of(framing, number)
    assert framing.read(part, *framing.write(part, id, payload)) == (id, payload)


@pytest.mark.parametrize("framing", [CONFLUENT, CONFLUENT_GUID, CONFLUENT_HEADERS])
@pytest.mark.parametrize("part", ["key", "value"])
def test_confluents_own_client_reads_its_framings(framing: Framing, part: Part) -> None:
    data, headers = framing.write(part, id_of(framing), b"payload")
    found = ConfluentSchemaId("AVRO")
    field = MessageField.KEY if part == "key" else MessageField.VALUE
    context: Any = SerializationContext("t", field, list(headers))
    assert dual_schema_id_deserializer(data, context, found).read() == b"payload"
    assert (found.guid or found.id) == id_of(framing).value


@pytest.mark.parametrize("framing", ALL)
@pytest.mark.parametrize("data", [b"", b"\0", b"\2" + 30 * b"x", b"\1\2\3", b"\3\0short"])
def test_data_of_another_framing_is_left_to_others(framing: Framing, data: bytes) -> None:
    others = (("__key_schema_id", b"\1" + GUID.bytes), ("__value_schema_id", b"?"), ("apicurio.value.contentId", b"1"))
    assert framing.read("value", data, others) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\3\7" + GUID.bytes + b"payload", "not 7"),
        (b"\3\5" + GUID.bytes + b"payload", "not of zlib"),
        (b"\3\5" + GUID.bytes + zlib.compress(b"payload")[:-2], "cut off"),
    ],
)
def test_damaged_data_of_glue_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GLUE.read("value", data, ())


def test_data_that_decompresses_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "_LARGEST", 2**20)
    data, _ = GLUE_ZLIB.write("value", id_of(GLUE), bytes(2**20 + 1))
    with pytest.raises(ValueError, match="more than 1 MiB"):
        GLUE.read("value", data, ())


@pytest.mark.parametrize(("framing", "id"), [(CONFLUENT, GUID), (GLUE, 7), (APICURIO_HEADERS, GUID)])
def test_an_id_of_another_type_is_refused(framing: Framing, id: UUID | int) -> None:
    with pytest.raises(ValueError, match="the registry gave"):
        framing.write("value", SchemaId(framing.kind, id), b"")


@pytest.mark.parametrize("framing", ALL)
def test_a_framing_can_be_sent_to_workers(framing: Framing) -> None:
    assert pickle.loads(pickle.dumps(framing)) == framing
