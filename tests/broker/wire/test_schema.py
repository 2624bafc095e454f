"""The schemas and the codec compared with kio, a reader and writer of Kafka's protocol that others wrote."""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import uuid
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from penstock.client.sockets.connection import SASL_AUTHENTICATE, SASL_HANDSHAKE
from penstock_broker.apis import APIS
from penstock_broker.wire.api_schemas import request_schema, response_schema
from penstock_broker.wire.codec import structure_codec
from penstock_broker.wire.primitives import Cursor, Sink
from penstock_broker.wire.schema import MessageSchema, Structure
from penstock_broker.wire.schemas import consumer_protocol_assignment, consumer_protocol_subscription
from tests.support.api_keys import (
    STREAMS_GROUP_DESCRIBE,
    STREAMS_GROUP_HEARTBEAT,
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
)

CLIENT_APIS = [SASL_HANDSHAKE, SASL_AUTHENTICATE]
"""The APIs that clients of the library call and the embedded broker does not serve."""
VERSIONS = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
VERSIONS |= {api.key: (api.oldest, api.newest) for api in CLIENT_APIS}
VERSIONS[STREAMS_GROUP_HEARTBEAT] = VERSIONS[STREAMS_GROUP_DESCRIBE] = 0, 0  # kio has no later one
del VERSIONS[STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE]  # kio does not have it
RENAMED = {
    "TxnOffsetCommitRequest": {"generation_id": "generation_id_or_member_epoch"},
    "StreamsGroupHeartbeatResponse": {"acceptable_recovery_lag": "acceptable_recovery_lag_legacy"},
}
"""Fields that have another name since the Kafka that kio follows."""
NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def value_strategy(kind: str | None, declared: type[Any], nullable: bool) -> st.SearchStrategy[Any]:
    """Values of one field in the plain form of the broker's messages."""
    match kind:
        case None:
            values: st.SearchStrategy[Any] = message_strategy(declared)
        case "string":
            values = st.text(max_size=5)
        case "bytes" | "records":
            values = st.binary(max_size=5)
        case "uuid":
            return st.uuids()
        case "bool":
            return st.booleans()
        case "error_code":
            return st.sampled_from(KioErrorCode).map(int)
        case "timedelta_i32":
            return st.integers(0, 2**31 - 1)
        case "datetime_i64":
            # kio reads -1 as null, where the field may be null.
            return st.just(-1) if nullable else st.integers(0, 2**45)
        case "uint16":
            return st.integers(0, 2**16 - 1)
        case "float64":
            return st.floats(allow_nan=False)
        case "timedelta_i64":
            return st.integers(0, 2**40)
        case _:
            return st.integers(-(2 ** NUMBERS[kind]), 2 ** NUMBERS[kind] - 1)
    return st.none() | values if nullable else values


def field_strategy(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    declared: Any = field.type
    nullable = get_origin(declared) is types.UnionType
    if nullable:
        declared = next(part for part in get_args(declared) if part is not type(None))
    # A tagged field of kio is left out where it is null.
    nullable = nullable and "tag" not in field.metadata
    kind = field.metadata.get("kafka_type")
    if get_origin(declared) is not tuple:
        return value_strategy(kind, declared, nullable)
    items = st.lists(value_strategy(kind, get_args(declared)[0], False), max_size=3)
    return st.none() | items if nullable else items


@cache
def message_strategy(entity: type[Any]) -> st.SearchStrategy[dict[str, Any]]:
    values = {field.name: field_strategy(field) for field in dataclasses.fields(entity)}
    # kio writes no tagged field that has its default.
    tagged = {
        field.name: values.pop(field.name).filter(lambda value, field=field: not matches(plain(field.default), value))
        for field in dataclasses.fields(entity)
        if "tag" in field.metadata
    }
    return st.fixed_dictionaries(values, optional=tagged)


def plain(value: Any) -> Any:
    """A message of kio in the plain form of the broker's messages."""
    match value:
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
        case tuple():
            return [plain(item) for item in value]
        case memoryview():
            return bytes(value)
        case list():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return value


def matches(found: Any, wanted: Any) -> bool:
    """Whether a message has all the values wanted; nulls of kio stand for zero ids and missing times."""
    if isinstance(wanted, dict):
        return all(matches(found[name], value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(matches, found, wanted))
    if found is None and wanted in (uuid.UUID(int=0), -1):
        return True
    return bool(found == wanted)


def cases() -> Iterator[tuple[Structure, Callable[[], type[Any]]]]:
    """Each message in each version in use, and what loads kio's class of it."""
    for key, (oldest, newest) in VERSIONS.items():
        for version in range(oldest, newest + 1):
            yield request_schema(key).at(version), partial(load_request_schema, key, version)
            yield response_schema(key).at(version), partial(load_response_schema, key, version)
    for data, name in (
        (consumer_protocol_assignment.DATA, "consumer_protocol_assignment"),
        (consumer_protocol_subscription.DATA, "consumer_protocol_subscription"),
    ):
        for version in (0, 2):
            yield data.at(version), partial(load_entity_schema, name, version, EntityType.data)


@pytest.mark.parametrize(
    ("structure", "load_entity"), [pytest.param(*case, id=f"{case[0].name}-{case[0].version}") for case in cases()]
)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_the_codec_and_kio_read_and_write_the_same(
    structure: Structure, load_entity: Callable[[], type[Any]], data: st.DataObject
) -> None:
    entity = load_entity()
    assert structure.name == entity.__name__
    drawn = data.draw(message_strategy(entity))
    new_names = RENAMED.get(structure.name, {})
    message = {new_names.get(name, name): value for name, value in drawn.items()}
    codec, sink = structure_codec(structure), Sink()
    codec.encode(sink, message)
    content = b"".join(bytes(chunk) for chunk in sink.chunks)
    assert len(content) == sink.size
    found, read = entity_reader(entity)(content, 0)
    assert read == len(content)
    assert matches(plain(found), drawn)
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, found)
    assert buffer.getvalue() == content
    cursor = Cursor(memoryview(bytearray(buffer.getvalue())))
    assert plain(codec.decode(cursor)) == message
    assert cursor.position == len(cursor.view)


def test_a_version_that_a_message_does_not_have_is_refused() -> None:
    schema = MessageSchema("Message", "1-2", "", {"Message": []})
    assert schema.at(2).fields == []
    for version in (0, 3):
        with pytest.raises(ValueError, match=f"Message has no version {version}, only 1-2"):
            schema.at(version)
