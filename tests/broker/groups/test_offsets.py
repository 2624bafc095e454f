"""Committed offsets: kept in `__consumer_offsets`, through restarts, transactions, expiry and the end of topics."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.groups.schemas import decode_record
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.records import LogRecord, encode_records, read_records
from penstock_broker.topics import OFFSETS_TOPIC
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import MalformedMessageError
from tests.broker.groups.support import DAY_MS, GroupBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    opened = GroupBroker(tmp_path)
    opened.create_topic("t")
    yield opened
    opened.close()


def test_offsets_outlive_a_restart(broker: GroupBroker) -> None:
    broker.commit("g", "t", 0, 5)
    broker.commit("g", "t", 0, 7)
    broker.commit("g", "t", 1, 3)
    broker.commit("other", "t", 1, 1)
    broker.restart()
    assert broker.positions("g") == {("t", 0): 7, ("t", 1): 3}
    assert broker.positions("other") == {("t", 1): 1}
    broker.groups.offsets.delete("g", [("t", 0), ("t", 9)])
    broker.restart()
    assert broker.positions("g") == {("t", 1): 3}


def test_the_topic_appears_with_the_first_commit_and_has_kafkas_records(broker: GroupBroker) -> None:
    assert [topic.name for topic in broker.topics.all()] == ["t"]
    broker.commit("g", "t", 1, 5)
    topic = broker.topics.by_name(OFFSETS_TOPIC)
    assert (topic.is_internal, topic.configs["cleanup.policy"], len(topic.partitions)) == (True, "compact", 1)
    [record] = read_records(memoryview(topic.partitions[0].read(0, 1000)))
    assert record.key == b"\0\1\0\1g\0\1t\0\0\0\1"
    committed_ms = broker.clock.milliseconds().to_bytes(8, "big")
    assert record.value == b"\0\3" + (5).to_bytes(8, "big") + b"\xff\xff\xff\xff\0\0" + committed_ms


def test_offsets_of_a_transaction_count_when_it_is_committed(broker: GroupBroker) -> None:
    broker.commit("g", "t", 0, 1)
    broker.commit_in_transaction(7, "g", "t", 0, 2)
    for _ in range(2):
        assert broker.positions("g") == {("t", 0): 1}
        assert broker.groups.offsets.has_pending("g", "t", 0)
        assert not broker.groups.offsets.has_pending("g", "t", 1)
        broker.restart()
    broker.end_transaction(7, is_commit=True)
    for _ in range(2):
        assert broker.positions("g") == {("t", 0): 2}
        assert not broker.groups.offsets.has_pending("g", "t", 0)
        broker.restart()


def test_offsets_of_an_aborted_transaction_are_dropped(broker: GroupBroker) -> None:
    broker.commit_in_transaction(7, "g", "t", 0, 2)
    broker.end_transaction(7, is_commit=False)
    for _ in range(2):
        assert broker.positions("g") == {}
        assert not broker.groups.offsets.has_pending("g", "t", 0)
        broker.restart()


def test_a_commit_that_came_after_that_of_the_transaction_stands(broker: GroupBroker) -> None:
    broker.commit_in_transaction(7, "g", "t", 0, 2)
    broker.commit("g", "t", 0, 9)
    broker.end_transaction(7, is_commit=True)
    for _ in range(2):
        assert broker.positions("g") == {("t", 0): 9}
        broker.restart()


def test_offsets_outlive_a_compaction_that_leaves_nothing_of_a_marker(broker: GroupBroker) -> None:
    broker.commit_in_transaction(7, "g", "t", 0, 2)
    broker.end_transaction(7, is_commit=True)
    topic = broker.topics.by_name(OFFSETS_TOPIC)
    broker.topics.set_configs(topic, {**topic.configs, "segment.bytes": "200", "delete.retention.ms": "0"})
    [partition] = topic.partitions
    for _ in range(3):
        for position in range(10):
            broker.commit("g", "t", 0, position)
        for _ in partition.clean(1 << 20, broker.clock.milliseconds()):
            pass
    assert [header.record_count for header, _ in partition.batches() if header.is_control] == [0]
    broker.commit_in_transaction(7, "g", "t", 1, 4)
    for _ in range(2):
        assert broker.positions("g") == {("t", 0): 9}
        broker.restart()
    broker.end_transaction(7, is_commit=True)
    assert broker.positions("g") == {("t", 0): 9, ("t", 1): 4}


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


def test_records_that_cannot_be_read_stop_the_start(broker: GroupBroker) -> None:
    broker.commit("g", "t", 0, 5)
    partition = broker.topics.partition(OFFSETS_TOPIC, 0)
    partition.append_own(memoryview(encode_records([LogRecord(0, 0, b"\0\1\0\1g\0\1t\0\0\0\2", b"\0\x63")])))
    with pytest.raises(BrokerError, match=r"__consumer_offsets-0: the record at offset 1 cannot be read: .*version 99"):
        broker.restart()


def test_records_of_kinds_that_this_broker_does_not_know_have_no_effect(broker: GroupBroker) -> None:
    broker.commit("g", "t", 0, 5)
    partition = broker.topics.partition(OFFSETS_TOPIC, 0)
    partition.append_own(memoryview(encode_records([LogRecord(0, 0, b"\0\x63", b"\0\x63")])))
    broker.restart()
    assert broker.positions("g") == {("t", 0): 5}


def test_a_commit_that_cannot_be_written_changes_nothing(broker: GroupBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.commit("g", "t", 0, 5)

    def fail(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", fail)
        with pytest.raises(ApiError, match="cannot write"):
            broker.commit("g", "t", 0, 6)
    for _ in range(2):
        assert broker.positions("g") == {("t", 0): 5}
        broker.restart()


def test_compaction_bounds_the_topic_and_keeps_what_counts(broker: GroupBroker) -> None:
    broker.commit("gone", "t", 0, 1)
    broker.groups.offsets.delete("gone", [("t", 0)])
    broker.commit_in_transaction(6, "g", "t", 1, 1)
    broker.end_transaction(6, is_commit=False)
    broker.commit_in_transaction(8, "ended", "t", 1, 8)
    broker.end_transaction(8, is_commit=True)
    for number in range(20_000):
        broker.commit("g", "t", 0, number)
        if number == 15_000:
            broker.commit_in_transaction(7, "open", "t", 1, 7)
    partition = broker.topics.partition(OFFSETS_TOPIC, 0)
    before = partition.log.segments.size
    for _ in partition.clean(1 << 20, broker.clock.milliseconds()):
        pass
    assert partition.log.segments.size < before / 2
    for _ in range(2):
        broker.restart()
        assert broker.positions("g") == {("t", 0): 19_999}
        assert (broker.positions("gone"), broker.positions("ended")) == ({}, {("t", 1): 8})
        assert broker.groups.offsets.has_pending("open", "t", 1)
    broker.end_transaction(7, is_commit=True)
    assert broker.positions("open") == {("t", 1): 7}


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "pending", "end", "abort", "delete", "restart"]),
        st.integers(0, 1),  # producer
        st.sampled_from(["g", "h"]),
        st.integers(0, 1),  # partition
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_a_restart_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str, int]]
) -> None:
    broker = GroupBroker(tmp_path_factory.mktemp("offsets"))
    broker.create_topic("t")

    def view() -> list[object]:
        offsets = broker.groups.offsets
        pending = [offsets.has_pending(group, "t", index) for group in ("g", "h") for index in (0, 1)]
        return [offsets.of_group("g"), offsets.of_group("h"), pending]

    broker.commit("x", "t", 0, 1)  # markers need the topic
    for number, (step, producer_id, group, partition) in enumerate(steps):
        match step:
            case "commit":
                broker.commit(group, "t", partition, number)
            case "pending":
                broker.commit_in_transaction(producer_id, group, "t", partition, number)
            case "end" | "abort":
                broker.end_transaction(producer_id, step == "end")
            case "delete":
                broker.groups.offsets.delete(group, [("t", partition)])
            case _:
                before = view()
                broker.restart()
                assert view() == before
    before = view()
    broker.restart()
    assert view() == before
    broker.close()


@given(st.binary(max_size=40), st.none() | st.binary(max_size=80), st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 99]))
def test_a_record_of_garbage_is_read_or_refused(key: bytes, value: bytes | None, kind: int) -> None:
    with suppress(MalformedMessageError):
        found = decode_record(kind.to_bytes(2, "big") + key, value)
        assert found is None or found.kind == kind
