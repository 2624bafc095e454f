"""The topic `__consumer_offsets`: its records, their compaction, and records that cannot be read or written."""

from __future__ import annotations

import pytest

from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.records import LogRecord, encode_records, read_records
from penstock_broker.topics import OFFSETS_TOPIC
from tests.broker.groups.support import GroupBroker


def test_the_topic_appears_with_the_first_commit_and_has_kafkas_records(broker: GroupBroker) -> None:
    assert [topic.name for topic in broker.topics.all()] == ["t"]
    broker.commit("g", "t", 1, 5)
    topic = broker.topics.by_name(OFFSETS_TOPIC)
    assert (topic.is_internal, topic.configs["cleanup.policy"], len(topic.partitions)) == (True, "compact", 1)
    [record] = read_records(memoryview(topic.partitions[0].read(0, 1000)))
    assert record.key == b"\0\1\0\1g\0\1t\0\0\0\1"
    committed_ms = broker.clock.milliseconds().to_bytes(8, "big")
    assert record.value == b"\0\3" + (5).to_bytes(8, "big") + b"\xff\xff\xff\xff\0\0" + committed_ms


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
