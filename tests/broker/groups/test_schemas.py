"""The records of `__consumer_offsets` in Kafka's formats."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.groups.schemas import GroupRecord, RecordKind, decode_record, encode_key, encode_value
from penstock_broker.wire.codec import Message
from penstock_broker.wire.primitives import MalformedMessageError


@given(st.binary(max_size=40), st.none() | st.binary(max_size=80), st.sampled_from([0, *RecordKind, 99]))
def test_a_record_of_garbage_is_read_or_refused(key: bytes, value: bytes | None, kind: int) -> None:
    with suppress(MalformedMessageError):
        found = decode_record(kind.to_bytes(2, "big") + key, value)
        assert found is None or found.kind == kind


PARTITIONS = [{"topic_id": uuid.UUID(int=7), "partitions": [0, 2]}]
MEMBER_KEY = {"group": "g", "member_id": "m"}
OFFSET: Message = {"offset": 5, "metadata": "note", "commit_timestamp": 8}
TASKS = [{"subtopology_id": "0", "partitions": [0, 2]}]
TASKS_SINCE = [TASKS[0] | {"assignment_epochs": [1, 2]}]
NO_WARMUPS: Message = {"warmup_tasks": []}
TOPIC = {"name": "n", "partitions": 4, "replication_factor": -1, "topic_configs": [{"key": "k", "value": "v"}]}
SUBTOPOLOGY = {
    "subtopology_id": "0",
    "source_topics": ["t"],
    "source_topic_regex": [],
    "state_changelog_topics": [TOPIC],
    "repartition_sink_topics": ["s"],
    "repartition_source_topics": [TOPIC],
    "copartition_groups": [{"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": [0]}],
}
CLIENT = {"client_id": "c", "client_host": "/h"}
RECORDS = [
    GroupRecord(RecordKind.OFFSET_COMMIT, {"group": "g", "topic": "t", "partition": 1}, OFFSET | {"leader_epoch": -1}),
    GroupRecord(
        RecordKind.OFFSET_COMMIT, {"group": "g", "topic": "t", "partition": 1}, OFFSET | {"expire_timestamp": 9}
    ),
    GroupRecord(
        RecordKind.GROUP,
        {"group": "g"},
        {
            "protocol_type": "consumer",
            "generation": 3,
            "protocol": None,
            "leader": "m",
            "current_state_timestamp": 8,
            "members": [
                {"member_id": "m", "group_instance_id": None, "rebalance_timeout": 5, "session_timeout": 6, **CLIENT}
                | {"subscription": b"s", "assignment": b""}
            ],
        },
    ),
    GroupRecord(RecordKind.CONSUMER_GROUP, {"group": "g"}, {"epoch": 3, "metadata_hash": 4}),
    GroupRecord(
        RecordKind.CONSUMER_GROUP_MEMBER,
        MEMBER_KEY,
        {"instance_id": None, "rack_id": "r", **CLIENT, "subscribed_topic_names": ["t", "u"]}
        | {"subscribed_topic_regex": None, "rebalance_timeout": 5, "server_assignor": "range"},
    ),
    GroupRecord(RecordKind.CONSUMER_GROUP_TARGET, {"group": "g"}, {"assignment_epoch": 3}),
    GroupRecord(RecordKind.CONSUMER_GROUP_TARGET_MEMBER, MEMBER_KEY, {"topic_partitions": PARTITIONS}),
    GroupRecord(
        RecordKind.CONSUMER_GROUP_CURRENT_MEMBER,
        MEMBER_KEY,
        {"member_epoch": 3, "previous_member_epoch": 2, "state": 1, "assigned_partitions": PARTITIONS}
        | {"partitions_pending_revocation": [PARTITIONS[0] | {"assignment_epochs": [1, 2]}]},
    ),
    GroupRecord(
        RecordKind.STREAMS_GROUP, {"group": "g"}, {"epoch": 3, "metadata_hash": 4, "validated_topology_epoch": -1}
    ),
    GroupRecord(
        RecordKind.STREAMS_GROUP_MEMBER,
        MEMBER_KEY,
        {"instance_id": None, "rack_id": "r", **CLIENT, "rebalance_timeout": 5, "topology_epoch": 0, "process_id": "p"}
        | {"user_endpoint": {"host": "h", "port": 65_535}, "client_tags": [{"key": "k", "value": "v"}]},
    ),
    GroupRecord(RecordKind.STREAMS_GROUP_TARGET, {"group": "g"}, {"assignment_epoch": 3}),
    GroupRecord(
        RecordKind.STREAMS_GROUP_TARGET_MEMBER,
        MEMBER_KEY,
        {"active_tasks": TASKS, "standby_tasks": TASKS, **NO_WARMUPS},
    ),
    GroupRecord(
        RecordKind.STREAMS_GROUP_CURRENT_MEMBER,
        MEMBER_KEY,
        {"member_epoch": 3, "previous_member_epoch": 2, "state": 1, "active_tasks": TASKS_SINCE, "standby_tasks": TASKS}
        | {"active_tasks_pending_revocation": TASKS_SINCE, "standby_tasks_pending_revocation": [], **NO_WARMUPS}
        | {"warmup_tasks_pending_revocation": []},
    ),
    GroupRecord(RecordKind.STREAMS_GROUP_TOPOLOGY, {"group": "g"}, {"epoch": 1, "subtopologies": [SUBTOPOLOGY]}),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind.name)
def test_a_record_of_each_kind_reads_back(record: GroupRecord) -> None:
    assert record.value is not None
    key, value = encode_key(record.kind, record.key), encode_value(record.kind, record.value)
    assert decode_record(key, value) == record
    assert decode_record(key, None) == record._replace(value=None)
    assert int.from_bytes(key[:2], "big") == record.kind


def test_each_kind_has_a_sample() -> None:
    assert {record.kind for record in RECORDS} == set(RecordKind)


def test_only_an_offset_with_an_expiry_has_the_older_version() -> None:
    first, expiring, *_ = (encode_value(record.kind, record.value or {}) for record in RECORDS)
    assert (first[:2], expiring[:2]) == (b"\0\3", b"\0\1")
    group = encode_key(RecordKind.GROUP, {"group": "g"})
    with pytest.raises(MalformedMessageError, match="a record of kind GROUP has version 1, not 3"):
        decode_record(group, expiring)
