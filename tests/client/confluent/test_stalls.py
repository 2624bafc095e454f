"""Partitions that are looked at because no records arrive."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

import pytest

from penstock.client.confluent import stalls
from penstock.client.confluent.stalls import STALLED_SECONDS, Stalls, check_stalled
from penstock.config import StreamsConfig
from penstock.record import TopicPartition
from tests.client.confluent.records import NO_BROKER

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Watch:
    """Stalls by a clock of the test's own, with all that it asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.asked: list[list[TopicPartition]] = []
        self.checked: list[tuple[TopicPartition, int]] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(stalls, "check_stalled", lambda _, partition, at, __: self.checked.append((partition, at)))
        self.stalls = Stalls(NO_BROKER, read_committed=True)

    def look(self, after: float, **ends: int) -> None:
        def known(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            self.asked.append(sorted(partitions))
            return {TopicPartition(topic, 0): end for topic, end in ends.items()}

        self.now += after
        self.stalls.look(known)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_a_partition_that_has_more_is_checked_at_its_position(watch: Watch) -> None:
    watch.stalls.begin({A: 5, B: 7})
    watch.look(STALLED_SECONDS - 1, a=9)
    assert watch.asked == []
    watch.look(1, a=5, b=8)
    assert (watch.asked, watch.checked) == ([[A, B]], [(B, 7)])
    watch.look(STALLED_SECONDS, b=8)
    assert watch.checked == [(B, 7), (B, 7)]


def test_records_begin_the_wait_again(watch: Watch) -> None:
    watch.stalls.begin({A: 5})
    watch.look(STALLED_SECONDS - 1)
    watch.stalls.moved(A, 8)
    watch.look(STALLED_SECONDS - 1, a=9)
    assert watch.checked == []
    watch.look(1, a=9)
    assert watch.checked == [(A, 8)]


@pytest.mark.parametrize("stop", [Stalls.pause, Stalls.end])
def test_no_records_are_expected_of_a_partition_that_is_not_read(
    watch: Watch, stop: Callable[[Stalls, list[TopicPartition]], None]
) -> None:
    watch.stalls.begin({A: 5})
    stop(watch.stalls, [A])
    watch.stalls.moved(A, 6)
    watch.look(STALLED_SECONDS, a=9)
    assert watch.asked == []


def test_a_partition_that_goes_on_is_expected_from_now_on(watch: Watch) -> None:
    watch.stalls.begin({A: 5})
    watch.stalls.pause([A])
    watch.now += 100
    watch.stalls.resume([A])
    watch.look(1, a=9)
    assert watch.asked == []
    watch.look(STALLED_SECONDS, a=9)
    assert watch.checked == [(A, 5)]


def test_most_looks_return_at_once(watch: Watch) -> None:
    watch.stalls.begin({A: 5})
    for _ in range(21):
        watch.look(STALLED_SECONDS / 20, a=5)
    watch.look(0.9, a=5)
    assert watch.asked == [[A]]
    watch.look(0.1, a=5)
    assert watch.asked == [[A], [A]]


@pytest.mark.parametrize("config", [NO_BROKER, StreamsConfig({"bootstrap.servers": "one:port"})])
def test_a_check_that_fails_is_only_a_line_of_the_log(config: StreamsConfig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "penstock.client.confluent.stalls"):
        check_stalled(config, A, 5, read_committed=True)
    (line,) = caplog.messages
    assert line.startswith("Nothing arrives of a-0 at offset 5, whose batch cannot be looked at: ")
