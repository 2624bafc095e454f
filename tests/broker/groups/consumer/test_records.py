"""The records of a consumer group: a group is read as it was written."""

from __future__ import annotations

from dataclasses import replace

from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.records import ConsumerGroupRecords
from penstock_broker.groups.consumer.target import ConsumerTargetAssignment
from penstock_broker.groups.modern.member import MemberState
from tests.broker.groups.consumer.test_member import TOPIC, partitions

RECORDS = ConsumerGroupRecords("g")
NEW = ConsumerTargetAssignment()
MEMBER = ConsumerGroupMember(
    "m",
    "one",
    "rack",
    "client",
    "/127.0.0.1",
    20_000,
    ("t", "u"),
    "in-.*",
    "range",
    epoch=4,
    previous_epoch=3,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned=partitions(0),
    revoking=partitions(1),
    since={(TOPIC, 0): 2, (TOPIC, 1): 4},
)
TARGET = ConsumerTargetAssignment(5, 77, 5, {"m": partitions(0), "n": partitions(1, 2)})


def test_members_and_target_are_read_as_written() -> None:
    records = [
        RECORDS.current(MEMBER),  # in any order
        RECORDS.member(MEMBER),
        *RECORDS.target_changes(ConsumerTargetAssignment(), TARGET),
    ]
    assert RECORDS.read(records, NEW) == (TARGET, [MEMBER])


def test_a_member_without_a_current_assignment_is_new() -> None:
    _, [member] = RECORDS.read([RECORDS.member(MEMBER)], NEW)
    assert member == replace(
        MEMBER,
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        assigned=partitions(),
        revoking=partitions(),
        since={},
    )


def test_the_assignment_of_a_removed_member_is_left_out() -> None:
    assert RECORDS.read([RECORDS.current(MEMBER)], NEW) == (ConsumerTargetAssignment(), [])


def test_partitions_without_an_epoch_have_that_of_the_member() -> None:
    record = RECORDS.current(MEMBER)
    assert record.value is not None
    for topic in (*record.value["assigned_partitions"], *record.value["partitions_pending_revocation"]):
        del topic["assignment_epochs"]
    _, [member] = RECORDS.read([RECORDS.member(MEMBER), record], NEW)
    assert member.since == {(TOPIC, 0): 4, (TOPIC, 1): 4}
