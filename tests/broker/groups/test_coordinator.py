"""All groups: their number, the expiry of offsets, and the end of groups and topics."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.topics import OFFSETS_TOPIC
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.support import Client, code_of, stable_group
from tests.broker.groups.support import DAY_MS, GroupBroker


@pytest.mark.parametrize(("session_ms", "code"), [(5_999, 26), (6_000, 0), (1_800_000, 0), (1_800_001, 26)])
def test_sessions_have_bounds(broker: GroupBroker, session_ms: int, code: int) -> None:
    assert code_of(lambda: Client(broker, session_timeout_ms=session_ms).join()) == code


def test_an_empty_group_is_deleted_with_its_offsets(broker: GroupBroker) -> None:
    member = Client(broker)
    stable_group(broker, member)
    broker.groups.check_commit("g", member.member_id, None, 1, 9)
    broker.groups.offsets.commit("g", {("t", 0): broker.offset(5)})
    assert code_of(lambda: broker.groups.delete_group("g")) == ErrorCode.non_empty_group
    member.leave()
    broker.groups.delete_group("g")
    for _ in range(2):
        assert code_of(lambda: broker.groups.delete_group("g")) == ErrorCode.group_id_not_found
        assert broker.positions("g") == {}
        assert broker.groups.groups() == []
        broker.restart()
    assert broker.topics.partition(OFFSETS_TOPIC, 0).end_offset == 5


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\3" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff" + b"\0\0\0\0more"


def test_offsets_of_topics_in_use_are_neither_deleted_nor_do_they_expire(broker: GroupBroker) -> None:
    broker.create_topic("unused")
    member = Client(broker, protocols={"range": subscription("t", "x")})
    stable_group(broker, member)
    offset = broker.offset(5)
    broker.groups.offsets.commit("g", {("t", 0): offset, ("unused", 0): offset, ("unused", 1): offset})
    codes = broker.groups.delete_offsets("g", {"t": [0], "unused": [1]})
    assert codes == {("t", 0): ErrorCode.group_subscribed_to_topic, ("unused", 1): ErrorCode.none}
    broker.clock.advance(8 * 24 * 60 * 60_000)
    broker.groups.expire_offsets()
    assert broker.positions("g") == {("t", 0): 5}
    member.leave()
    broker.groups.expire_offsets()
    assert broker.positions("g") == {("t", 0): 5}  # the time counts from when the group became empty
    broker.clock.advance(8 * 24 * 60 * 60_000)
    broker.groups.expire_offsets()
    assert broker.groups.groups() == []


def test_offsets_of_other_members_can_only_be_deleted_without_members(broker: GroupBroker) -> None:
    member = Client(broker, protocol_type="connect")
    stable_group_of_one(member)
    assert code_of(lambda: broker.groups.delete_offsets("g", {"t": [0]})) == ErrorCode.non_empty_group
    member.leave()
    assert broker.groups.delete_offsets("g", {"t": [0]}) == {("t", 0): ErrorCode.none}


def stable_group_of_one(member: Client) -> None:
    member.join()
    assert member.joined is not None


def test_no_timer_is_left_of_a_group_that_is_gone(broker: GroupBroker) -> None:
    before = len(broker.timers)
    first, second = Client(broker, "a"), Client(broker, "b", needs_member_id=True)
    stable_group(broker, first)
    second.join()
    first.leave()
    broker.timers.advance(0)
    broker.groups.delete_group("g")
    assert len(broker.timers) == before


@pytest.mark.parametrize(
    ("version", "expected"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)]
)
def test_a_member_cannot_commit_to_a_missing_group(broker: GroupBroker, version: int, expected: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        broker.groups.check_commit("missing", "m", None, 1, version)
    assert caught.value.code == expected
    with pytest.raises(ApiError) as caught:
        broker.groups.check_member("missing", "m", None, 1)
    assert caught.value.code == ErrorCode.illegal_generation


def test_a_deleted_topic_takes_its_offsets_along(broker: GroupBroker) -> None:
    broker.create_topic("kept")
    broker.commit("g", "t", 0, 5)
    broker.commit("g", "kept", 0, 6)
    broker.commit_in_transaction(7, "g", "t", 1, 2)
    broker.delete_topic("t")
    broker.create_topic("t")
    broker.end_transaction(7, is_commit=True)
    for _ in range(2):
        assert broker.positions("g") == {("kept", 0): 6}
        broker.restart()


def test_a_crash_between_the_end_of_a_topic_and_that_of_its_offsets_leaves_none(broker: GroupBroker) -> None:
    broker.commit("g", "t", 0, 5)
    broker.topics.delete(broker.topics.by_name("t"))
    broker.restart()
    assert broker.positions("g") == {}
    broker.create_topic("t")
    broker.restart()
    assert broker.positions("g") == {}


def test_offsets_expire_after_the_retention_time_except_in_open_transactions(broker: GroupBroker) -> None:
    broker.commit("old", "t", 0, 5)
    broker.commit("busy", "t", 0, 5)
    broker.commit_in_transaction(7, "busy", "t", 0, 6)
    broker.timers.advance(4 * DAY_MS)
    broker.commit("new", "t", 0, 5)
    broker.timers.advance(4 * DAY_MS)
    for _ in range(2):
        assert [broker.positions(group) for group in ("old", "busy", "new")] == [{}, {("t", 0): 5}, {("t", 0): 5}]
        broker.restart()


def test_an_offset_with_its_own_retention_time_expires_then(broker: GroupBroker) -> None:
    own = {"short": broker.clock.milliseconds() + DAY_MS, "long": broker.clock.milliseconds() + 9 * DAY_MS}
    for group, expires_ms in own.items():
        broker.commit(group, "t", 0, 4)
        broker.groups.offsets.commit(group, {("t", 0): broker.offset(5)._replace(expires_ms=expires_ms)})
    for days, left in ((1, {"long"}), (7, {"long"}), (1, set())):
        broker.restart()
        broker.timers.advance(days * DAY_MS)
        assert {group for group in own if broker.positions(group) == {("t", 0): 5}} == left
        assert {group for group in own if broker.positions(group)} == left


def test_the_offsets_of_many_groups_expire_with_time(broker: GroupBroker) -> None:
    for number in range(50):
        broker.commit(f"group-{number}", "t", 0, number)
    broker.timers.advance(8 * DAY_MS)
    assert broker.groups.groups() == []
    assert len(broker.timers) == 1


def old_directory(path: Path) -> None:
    MetadataStore(path / "metadata.sqlite").close()
    with sqlite3.connect(path / "metadata.sqlite") as database:
        database.executescript(
            "pragma user_version=1; pragma application_id=0; "
            "create table committed_offset (group_id text, topic text, partition integer, offset integer not null, "
            "leader_epoch integer not null, metadata text, "
            "primary key (group_id, topic, partition)) without rowid; "
            "insert into topic values ('t', x'00000000000000000000000000000001', 2, '{}'); "
            "insert into committed_offset values ('g', 't', 0, 5, 0, 'note'), ('g', 't', 1, 6, -1, null), "
            "('h', 't', 0, 7, -1, '');"
        )


def test_offsets_of_an_older_data_directory_are_taken_over_once(tmp_path: Path) -> None:
    old_directory(tmp_path)
    broker = GroupBroker(tmp_path)
    assert broker.positions("g") == {("t", 0): 5, ("t", 1): 6}
    assert broker.groups.offsets.of_group("g")["t", 0].metadata == "note"
    broker.commit("g", "t", 0, 8)
    broker.restart()
    assert (broker.positions("g"), broker.positions("h")) == ({("t", 0): 8, ("t", 1): 6}, {("t", 0): 7})
    broker.close()
