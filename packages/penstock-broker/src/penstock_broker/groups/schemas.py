"""The records of `__consumer_offsets`, in Kafka's formats.

Contains the schemas of their keys and values, which the message codec reads and writes, and the numbers of the kinds of
records. Source: the JSON schemas in Kafka's group coordinator, in the versions that Kafka 4 writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from penstock_broker.record_schema import (
    BYTES,
    INT8,
    INT16,
    INT16S,
    INT32,
    INT32S,
    INT64,
    NULLABLE_STRING,
    STRING,
    STRINGS,
    UINT16,
    UUID,
    VERSION,
    array_of,
    encode_versioned,
    nullable,
    record_schema,
)
from penstock_broker.wire.codec import Codec, Message, structure_codec
from penstock_broker.wire.primitives import Cursor, MalformedMessageError


class RecordKind(IntEnum):
    """The kinds of records, with the number at the start of their keys."""

    OFFSET_COMMIT = 1
    GROUP = 2
    CONSUMER_GROUP = 3
    CONSUMER_GROUP_MEMBER = 5
    CONSUMER_GROUP_TARGET = 6
    CONSUMER_GROUP_TARGET_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER = 8
    STREAMS_GROUP = 17
    STREAMS_GROUP_MEMBER = 19
    STREAMS_GROUP_TARGET = 20
    STREAMS_GROUP_TARGET_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER = 22
    STREAMS_GROUP_TOPOLOGY = 23


class GroupRecord(NamedTuple):
    """A record of `__consumer_offsets`.

    Args:
        kind: its kind.
        key: the fields of its key.
        value: the fields of its value; None to remove the key.
    """

    kind: RecordKind
    key: Message
    value: Message | None


_GROUP_MEMBER: Final = record_schema(
    "MemberMetadata",
    {
        "member_id": STRING,
        "group_instance_id": NULLABLE_STRING,
        "client_id": STRING,
        "client_host": STRING,
        "rebalance_timeout": INT32,
        "session_timeout": INT32,
        "subscription": BYTES,
        "assignment": BYTES,
    },
)
_PARTITIONS: Final = array_of(record_schema("TopicPartitions", {"topic_id": UUID, "partitions": INT32S}, True))
_PARTITIONS_SINCE: Final = array_of(
    record_schema(
        "TopicPartitions",
        {"topic_id": UUID, "partitions": INT32S, "assignment_epochs": INT32S},
        True,
        {"assignment_epochs": 0},
    )
)
_TASKS: Final = array_of(record_schema("TaskIds", {"subtopology_id": STRING, "partitions": INT32S}, True))
_TASKS_SINCE: Final = array_of(
    record_schema(
        "TaskIds",
        {"subtopology_id": STRING, "partitions": INT32S, "assignment_epochs": INT32S._replace(nullable="0+")},
        True,
        {"assignment_epochs": 0},
    )
)
_KEY_VALUES: Final = array_of(record_schema("KeyValue", {"key": STRING, "value": STRING}, True))
_TOPIC_INFOS: Final = array_of(
    record_schema(
        "TopicInfo",
        {"name": STRING, "partitions": INT32, "replication_factor": INT16, "topic_configs": _KEY_VALUES},
        True,
    )
)
_COPARTITION_GROUPS: Final = array_of(
    record_schema(
        "CopartitionGroup",
        {"source_topics": INT16S, "source_topic_regex": INT16S, "repartition_source_topics": INT16S},
        True,
    )
)
_SUBTOPOLOGIES: Final = array_of(
    record_schema(
        "Subtopology",
        {
            "subtopology_id": STRING,
            "source_topics": STRINGS,
            "source_topic_regex": STRINGS,
            "state_changelog_topics": _TOPIC_INFOS,
            "repartition_sink_topics": STRINGS,
            "repartition_source_topics": _TOPIC_INFOS,
            "copartition_groups": _COPARTITION_GROUPS,
        },
        True,
    )
)
_GROUP_KEY: Final = structure_codec(record_schema("GroupKey", {"group": STRING}))
_MEMBER_KEY: Final = structure_codec(record_schema("MemberKey", {"group": STRING, "member_id": STRING}))


# The only version of a committed offset with an expiry time; it has no epoch.
_EXPIRING_OFFSET_VERSION: Final = 1


class _Format(NamedTuple):
    key: Codec
    value_version: int
    value: Codec
    other_values: Mapping[int, Codec] = {}


_FORMATS: Final[Mapping[RecordKind, _Format]] = {
    RecordKind.OFFSET_COMMIT: _Format(
        structure_codec(record_schema("OffsetCommitKey", {"group": STRING, "topic": STRING, "partition": INT32})),
        3,
        structure_codec(
            record_schema(
                "OffsetCommitValue",
                {"offset": INT64, "leader_epoch": INT32, "metadata": STRING, "commit_timestamp": INT64},
            )
        ),
        {
            _EXPIRING_OFFSET_VERSION: structure_codec(
                record_schema(
                    "OffsetCommitValue",
                    {"offset": INT64, "metadata": STRING, "commit_timestamp": INT64, "expire_timestamp": INT64},
                )
            )
        },
    ),
    RecordKind.GROUP: _Format(
        _GROUP_KEY,
        3,
        structure_codec(
            record_schema(
                "GroupMetadataValue",
                {
                    "protocol_type": STRING,
                    "generation": INT32,
                    "protocol": NULLABLE_STRING,
                    "leader": NULLABLE_STRING,
                    "current_state_timestamp": INT64,
                    "members": array_of(_GROUP_MEMBER),
                },
            )
        ),
    ),
    RecordKind.CONSUMER_GROUP: _Format(
        _GROUP_KEY,
        0,
        structure_codec(
            record_schema(
                "ConsumerGroupMetadataValue", {"epoch": INT32, "metadata_hash": INT64}, True, {"metadata_hash": 0}
            )
        ),
    ),
    RecordKind.CONSUMER_GROUP_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        structure_codec(
            record_schema(
                "ConsumerGroupMemberMetadataValue",
                {
                    "instance_id": NULLABLE_STRING,
                    "rack_id": NULLABLE_STRING,
                    "client_id": STRING,
                    "client_host": STRING,
                    "subscribed_topic_names": STRINGS,
                    "subscribed_topic_regex": NULLABLE_STRING,
                    "rebalance_timeout": INT32,
                    "server_assignor": NULLABLE_STRING,
                },
                True,
            )
        ),
    ),
    RecordKind.CONSUMER_GROUP_TARGET: _Format(
        _GROUP_KEY,
        0,
        structure_codec(record_schema("ConsumerGroupTargetAssignmentMetadataValue", {"assignment_epoch": INT32}, True)),
    ),
    RecordKind.CONSUMER_GROUP_TARGET_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        structure_codec(
            record_schema("ConsumerGroupTargetAssignmentMemberValue", {"topic_partitions": _PARTITIONS}, True)
        ),
    ),
    RecordKind.CONSUMER_GROUP_CURRENT_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        structure_codec(
            record_schema(
                "ConsumerGroupCurrentMemberAssignmentValue",
                {
                    "member_epoch": INT32,
                    "previous_member_epoch": INT32,
                    "state": INT8,
                    "assigned_partitions": _PARTITIONS_SINCE,
                    "partitions_pending_revocation": _PARTITIONS_SINCE,
                },
                True,
            )
        ),
    ),
    RecordKind.STREAMS_GROUP: _Format(
        _GROUP_KEY,
        0,
        structure_codec(
            record_schema(
                "StreamsGroupMetadataValue",
                {"epoch": INT32, "metadata_hash": INT64, "validated_topology_epoch": INT32},
                True,
                {"validated_topology_epoch": 0},
            )
        ),
    ),
    RecordKind.STREAMS_GROUP_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        structure_codec(
            record_schema(
                "StreamsGroupMemberMetadataValue",
                {
                    "instance_id": NULLABLE_STRING,
                    "rack_id": NULLABLE_STRING,
                    "client_id": STRING,
                    "client_host": STRING,
                    "rebalance_timeout": INT32,
                    "topology_epoch": INT32,
                    "process_id": STRING,
                    "user_endpoint": nullable(record_schema("Endpoint", {"host": STRING, "port": UINT16}, True)),
                    "client_tags": _KEY_VALUES,
                },
                True,
            )
        ),
    ),
    RecordKind.STREAMS_GROUP_TARGET: _Format(
        _GROUP_KEY,
        0,
        structure_codec(record_schema("StreamsGroupTargetAssignmentMetadataValue", {"assignment_epoch": INT32}, True)),
    ),
    RecordKind.STREAMS_GROUP_TARGET_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        structure_codec(
            record_schema(
                "StreamsGroupTargetAssignmentMemberValue",
                {"active_tasks": _TASKS, "standby_tasks": _TASKS, "warmup_tasks": _TASKS},
                True,
            )
        ),
    ),
    RecordKind.STREAMS_GROUP_CURRENT_MEMBER: _Format(
        _MEMBER_KEY,
        0,
        structure_codec(
            record_schema(
                "StreamsGroupCurrentMemberAssignmentValue",
                {
                    "member_epoch": INT32,
                    "previous_member_epoch": INT32,
                    "state": INT8,
                    "active_tasks": _TASKS_SINCE,
                    "standby_tasks": _TASKS_SINCE,
                    "warmup_tasks": _TASKS_SINCE,
                    "active_tasks_pending_revocation": _TASKS_SINCE,
                    "standby_tasks_pending_revocation": _TASKS_SINCE,
                    "warmup_tasks_pending_revocation": _TASKS_SINCE,
                },
                True,
            )
        ),
    ),
    RecordKind.STREAMS_GROUP_TOPOLOGY: _Format(
        _GROUP_KEY,
        0,
        structure_codec(
            record_schema("StreamsGroupTopologyValue", {"epoch": INT32, "subtopologies": _SUBTOPOLOGIES}, True)
        ),
    ),
}


def encode_key(kind: RecordKind, key: Message) -> bytes:
    """Return the bytes of a record's key."""
    return encode_versioned(kind, _FORMATS[kind].key, key)


def encode_value(kind: RecordKind, value: Message) -> bytes:
    """Return the bytes of a record's value."""
    layout = _FORMATS[kind]
    if "expire_timestamp" in value:
        return encode_versioned(_EXPIRING_OFFSET_VERSION, layout.other_values[_EXPIRING_OFFSET_VERSION], value)
    return encode_versioned(layout.value_version, layout.value, value)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Return a decoded record, or None for an unknown kind.

    Args:
        key: its key.
        value: its value; None for the removal of the key.

    Raises:
        MalformedMessageError: the bytes match no schema.
    """
    cursor = Cursor(memoryview(key))
    number: int = cursor.number(VERSION)
    try:
        kind = RecordKind(number)
    except ValueError:
        return None
    layout = _FORMATS[kind]
    decoded_key: Message = layout.key.decode(cursor)
    if value is None:
        return GroupRecord(kind, decoded_key, None)
    cursor = Cursor(memoryview(value))
    version: int = cursor.number(VERSION)
    codec = layout.value if version == layout.value_version else layout.other_values.get(version)
    if codec is None:
        raise MalformedMessageError(f"a record of kind {kind.name} has version {version}, not {layout.value_version}")
    decoded_value: Message = codec.decode(cursor)
    return GroupRecord(kind, decoded_key, decoded_value)
