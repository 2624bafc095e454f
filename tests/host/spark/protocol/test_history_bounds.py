"""Positions inside a history, as brokers know them."""

from __future__ import annotations

from penstock.host.spark.protocol.history_bounds import HistoryBounds, live_position
from penstock.record import TopicPartition

BOUNDS = HistoryBounds("id", (-3, 4), (2, 4))


def test_brokers_know_no_position_before_the_change_over() -> None:
    histories = {"t": BOUNDS}
    assert live_position(histories, TopicPartition("t", 0), -3) == 2
    assert live_position(histories, TopicPartition("t", 0), 3) == 3
    assert live_position(histories, TopicPartition("t", 2), 0) == 0, "the topic got this partition later"
    assert live_position(histories, TopicPartition("other", 0), 1) == 1


def test_a_history_is_read_when_all_its_partitions_are() -> None:
    assert not BOUNDS.is_read([1, 4])
    assert BOUNDS.is_read([2, 4, 0])
