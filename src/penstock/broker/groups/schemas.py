"""The records of `__consumer_offsets`, in the formats of Kafka.

Here live the schemas of their keys and values, which the codec of messages reads and writes, and the numbers that tell
the kinds of records apart. Source: the JSON schemas in Kafka's group coordinator, in the versions that Kafka 4 writes.
"""

from __future__ import annotations

import dataclasses
import struct
import types
import uuid
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from penstock.broker.codec import Codec, Message, entity_codec
from penstock.broker.errors import MalformedRequestError
from penstock.broker.wire import Cursor, Sink


class RecordKind(IntEnum):
    """The kinds of records, by the number at the start of their keys."""

    OFFSET_COMMIT = 1
    GROUP = 2
    CONSUMER_GROUP = 3
    CONSUMER_GROUP_MEMBER = 5
    CONSUMER_GROUP_TARGET = 6
    CONSUMER_GROUP_TARGET_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER = 8


class GroupRecord(NamedTuple):
    """A record of `__consumer_offsets`.

    Args:
        kind: what it is about.
        key: the fields of its key.
        value: the fields of its value; None removes what earlier records of the key said.
    """

    kind: RecordKind
    key: Message
    value: Message | None


_Field = tuple[Any, str | None]
_STRING: Final[_Field] = (str, "string")
_NULLABLE_STRING: Final[_Field] = (str | None, "string")
_STRINGS: Final[_Field] = (tuple[str, ...], "string")
_BYTES: Final[_Field] = (bytes, "bytes")
_INT8: Final[_Field] = (int, "int8")
_INT32: Final[_Field] = (int, "int32")
_INT32S: Final[_Field] = (tuple[int, ...], "int32")
_INT64: Final[_Field] = (int, "int64")
_UUID: Final[_Field] = (uuid.UUID, "uuid")

_VERSION: Final = struct.Struct(">h")


def _schema(
    name: str, fields: Mapping[str, _Field], is_flexible: bool = False, tags: Mapping[str, int] | None = None
) -> type[Any]:
    """Return a schema as kio generates them from Kafka's definitions."""

    def metadata(field: str, kind: str | None) -> dict[str, object]:
        found = {"kafka_type": kind, "tag": (tags or {}).get(field)}
        return {key: value for key, value in found.items() if value is not None}

    return dataclasses.make_dataclass(
        name,
        [
            (field, declared, dataclasses.field(metadata=metadata(field, kind)))
            for field, (declared, kind) in fields.items()
        ],
        namespace={"__flexible__": is_flexible},
    )


def _array_of(schema: type[Any]) -> _Field:
    return types.GenericAlias(tuple, (schema, ...)), None


_GROUP_MEMBER: Final = _schema(
    "MemberMetadata",
    {
        "member_id": _STRING,
        "group_instance_id": _NULLABLE_STRING,
        "client_id": _STRING,
        "client_host": _STRING,
        "rebalance_timeout": _INT32,
        "session_timeout": _INT32,
        "subscription": _BYTES,
        "assignment": _BYTES,
    },
)
_PARTITIONS: Final = _array_of(_schema("TopicPartitions", {"topic_id": _UUID, "partitions": _INT32S}, True))
_GROUP_KEY: Final = entity_codec(_schema("GroupKey", {"group": _STRING}))
_MEMBER_KEY: Final = entity_codec(_schema("MemberKey", {"group": _STRING, "member_id": _STRING}))


class _Format(NamedTuple):
    key: Codec
    value_version: int
    value: Codec


_FORMATS: Final[Mapping[RecordKind, _Format]] = {
    RecordKind.OFFSET_COMMIT: _Format(
        entity_codec(_schema("OffsetCommitKey", {"group": _STRING, "topic": _STRING, "partition": _INT32})),
        3,
        entity_codec(
            _schema(
                "OffsetCommitValue",
                {"offset": _INT64, "leader_epoch": _INT32, "metadata": _STRING, "commit_timestamp": _INT64},
            )
        ),
    ),
    RecordKind.GROUP: _Format(
        _GROUP_KEY,
        3,
        entity_codec(
            _schema(
                "GroupMetadataValue",
                {
                    "protocol_type": _STRING,
                    "generation": _INT32,
                    "protocol": _NULLABLE_STRING,
                    "leader": _NULLABLE_STRING,
                    "current_state_timestamp": _INT64,
                    "members": _array_of(_GROUP_MEMBER),
                },
            )
        ),
    ),
    RecordKind.CONSUMER_GROUP: _Format(
        _GROUP_KEY,
        0,
        entity_codec(
            _schema(
                "ConsumerGroupMetadataValue", {"epoch": _INT32, "metadata_hash": _INT64}, True, {"metadata_hash": 0}
            )
        ),
    ),
    RecordKind.CONSUMER_GROUP_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        entity_codec(
            _schema(
                "ConsumerGroupMemberMetadataValue",
                {
                    "instance_id": _NULLABLE_STRING,
                    "rack_id": _NULLABLE_STRING,
                    "client_id": _STRING,
                    "client_host": _STRING,
                    "subscribed_topic_names": _STRINGS,
                    "subscribed_topic_regex": _NULLABLE_STRING,
                    "rebalance_timeout": _INT32,
                    "server_assignor": _NULLABLE_STRING,
                },
                True,
            )
        ),
    ),
    RecordKind.CONSUMER_GROUP_TARGET: _Format(
        _GROUP_KEY,
        0,
        entity_codec(_schema("ConsumerGroupTargetAssignmentMetadataValue", {"assignment_epoch": _INT32}, True)),
    ),
    RecordKind.CONSUMER_GROUP_TARGET_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        entity_codec(_schema("ConsumerGroupTargetAssignmentMemberValue", {"topic_partitions": _PARTITIONS}, True)),
    ),
    RecordKind.CONSUMER_GROUP_CURRENT_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        entity_codec(
            _schema(
                "ConsumerGroupCurrentMemberAssignmentValue",
                {
                    "member_epoch": _INT32,
                    "previous_member_epoch": _INT32,
                    "state": _INT8,
                    "assigned_partitions": _PARTITIONS,
                    "partitions_pending_revocation": _PARTITIONS,
                },
                True,
            )
        ),
    ),
}


def encode_key(kind: RecordKind, key: Message) -> bytes:
    """Return the bytes of a record's key."""
    return _encoded(kind, _FORMATS[kind].key, key)


def encode_value(kind: RecordKind, value: Message) -> bytes:
    """Return the bytes of a record's value."""
    return _encoded(_FORMATS[kind].value_version, _FORMATS[kind].value, value)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Return what a record says; None for a kind that this broker does not know.

    Args:
        key: its key.
        value: its value; None for the removal of the key.

    Raises:
        MalformedRequestError: the bytes follow none of the schemas.
    """
    cursor = Cursor(memoryview(key))
    number: int = cursor.number(_VERSION)
    try:
        kind = RecordKind(number)
    except ValueError:
        return None
    layout = _FORMATS[kind]
    decoded_key: Message = layout.key.decode(cursor)
    if value is None:
        return GroupRecord(kind, decoded_key, None)
    cursor = Cursor(memoryview(value))
    version: int = cursor.number(_VERSION)
    if version != layout.value_version:
        raise MalformedRequestError(f"a record of kind {kind.name} has version {version}, not {layout.value_version}")
    decoded_value: Message = layout.value.decode(cursor)
    return GroupRecord(kind, decoded_key, decoded_value)


def _encoded(version: int, codec: Codec, fields: Message) -> bytes:
    sink = Sink()
    sink.number(_VERSION, version)
    codec.encode(sink, fields)
    return b"".join(bytes(chunk) for chunk in sink.chunks)
