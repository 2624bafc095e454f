"""The records of a group with assignment by the broker: only changes are written, and all is removed."""

from __future__ import annotations

from dataclasses import replace

from penstock_broker.groups.schemas import GroupRecord, RecordKind
from tests.broker.groups.consumer.test_member import partitions
from tests.broker.groups.consumer.test_records import RECORDS, TARGET


def kinds(records: list[GroupRecord]) -> list[tuple[RecordKind, str | None]]:
    return [(record.kind, record.key.get("member_id")) for record in records]


def test_only_changes_of_the_target_are_written() -> None:
    assert RECORDS.target_changes(TARGET, TARGET) == []
    assert kinds(RECORDS.target_changes(TARGET, replace(TARGET, epoch=6))) == [(RecordKind.CONSUMER_GROUP, None)]
    moved = replace(TARGET, epoch=6, assignment_epoch=6, assignments={"m": partitions(0), "n": partitions(1)})
    assert kinds(RECORDS.target_changes(TARGET, moved)) == [
        (RecordKind.CONSUMER_GROUP, None),
        (RecordKind.CONSUMER_GROUP_TARGET_MEMBER, "n"),
        (RecordKind.CONSUMER_GROUP_TARGET, None),
    ]


def test_removals_have_no_value_and_come_before_the_group() -> None:
    removals = RECORDS.removals(["m"])
    assert all(record.value is None for record in removals)
    assert kinds(removals) == [
        (RecordKind.CONSUMER_GROUP_CURRENT_MEMBER, "m"),
        (RecordKind.CONSUMER_GROUP_TARGET_MEMBER, "m"),
        (RecordKind.CONSUMER_GROUP_MEMBER, "m"),
        (RecordKind.CONSUMER_GROUP_TARGET, None),
        (RecordKind.CONSUMER_GROUP, None),
    ]
    assert {record.key["group"] for record in removals} == {"g"}
