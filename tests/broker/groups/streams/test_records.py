"""The records of a streams group: a group is read as it was written."""

from __future__ import annotations

from dataclasses import replace

from penstock_broker.groups.modern.member import MemberState
from penstock_broker.groups.schemas import GroupRecord, RecordKind, decode_record, encode_key, encode_value
from penstock_broker.groups.streams.records import StreamsGroupRecords
from penstock_broker.groups.streams.target import NOT_READY, StreamsTargetAssignment
from penstock_broker.groups.streams.topology import StreamsTopology
from tests.broker.groups.streams.test_group import COUNTS, tasks
from tests.broker.groups.streams.test_member import MEMBER

RECORDS = StreamsGroupRecords("g")
NEW = StreamsTargetAssignment()
REVOKING = replace(
    MEMBER,
    epoch=4,
    previous_epoch=3,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned=tasks(0),
    revoking=tasks(1),
    since={("0", 0): 2, ("0", 1): 4},
)
TARGET = StreamsTargetAssignment(5, 77, 5, {"m": tasks(0), "n": tasks(1, 2)}, topology_epoch=0)


def stored(record: GroupRecord) -> GroupRecord:
    """Return a record after the way through its bytes."""
    assert record.value is not None
    found = decode_record(encode_key(record.kind, record.key), encode_value(record.kind, record.value))
    assert found is not None
    return found


def test_a_group_is_read_as_written() -> None:
    records = [
        RECORDS.current(REVOKING),  # in any order
        RECORDS.topology(StreamsTopology(COUNTS)),
        RECORDS.member(REVOKING),
        *RECORDS.target_changes(StreamsTargetAssignment(), TARGET),
    ]
    found = list(map(stored, records))
    assert RECORDS.read(found, NEW) == (TARGET, [REVOKING])
    assert RECORDS.read_topology(found) == StreamsTopology(COUNTS)


def test_a_member_without_an_endpoint_is_read_as_written() -> None:
    bare = replace(MEMBER, endpoint=None, client_tags=(), rack_id=None, instance_id="a")
    assert RECORDS.read([stored(RECORDS.member(bare))], NEW)[1] == [bare]


def test_a_group_whose_topics_are_missing_is_not_ready() -> None:
    unready = replace(TARGET, topology_epoch=NOT_READY)
    records = RECORDS.target_changes(StreamsTargetAssignment(), unready)
    assert RECORDS.read(map(stored, records), NEW)[0] == unready


def test_states_have_the_numbers_of_kafka() -> None:
    states = [RECORDS.current(replace(REVOKING, state=state)).value for state in MemberState]
    assert [value["state"] for value in states if value is not None] == [1, 2, 3]


def test_the_topology_is_removed_with_the_group() -> None:
    removals = RECORDS.removals(["m"])
    assert all(record.value is None for record in removals)
    assert {record.kind for record in removals} == {*RECORDS.kinds, RecordKind.STREAMS_GROUP_TOPOLOGY}
