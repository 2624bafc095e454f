"""The driver's log says that no broker answers, or that the brokers accept no records, and when they do again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.api import PartitionInfo, TopicDescription
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.host.spark.driver.broker_watch import BrokerWatch
from penstock_broker.common.clock import MockClock
from penstock_broker.process import BrokerProcess
from tests.host.support import wait_for
from tests.support.ports import free_port

LOGGER = "penstock.host.spark.driver.broker_watch"
OUTPUT = "orders"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", port=free_port()) as running:
        yield running


@pytest.fixture
def clock() -> MockClock:
    return MockClock(1_000_000)


@pytest.fixture
def watch(broker: BrokerProcess, clock: MockClock) -> Iterator[BrokerWatch]:
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": broker.bootstrap_servers})
    watch = BrokerWatch(config, [OUTPUT], clock.milliseconds)
    yield watch
    watch.close()


def asked(watch: BrokerWatch, clock: MockClock, seconds: int) -> None:
    """Make a request after `seconds`, with an answer."""
    clock.advance(seconds * 1000)
    watch.look(1)
    assert watch.is_asking
    wait_for(lambda: watch.look(1) or not watch.is_asking)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.name == LOGGER]


@pytest.mark.slow
def test_an_absence_is_reported_now_and_then_and_its_end(
    broker: BrokerProcess, watch: BrokerWatch, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch.look(1)
    with caplog.at_level(logging.WARNING, LOGGER):
        asked(watch, clock, 3)
        assert told(caplog) == []
        broker.kill()
        asked(watch, clock, 3)
        assert told(caplog) == []  # a single question may have been unlucky
        asked(watch, clock, 3)
        (first,) = told(caplog)
        assert first.startswith(f"shop: no broker of bootstrap.servers={broker.bootstrap_servers} has answered for 3 s")
        assert "waits for at most 117 s more; then the query fails" in first
        asked(watch, clock, 3)
        asked(watch, clock, 27)
        second = told(caplog)[1]
        assert "has answered for 33 s. The application waits for at most 87 s more" in second
        broker.start()
        asked(watch, clock, 7)
        assert "answers again, after 40 s. The application continues." in told(caplog)[2]
        asked(watch, clock, 3)
    assert len(told(caplog)) == 3


@pytest.mark.slow
def test_brokers_that_come_and_go_make_few_lines(
    broker: BrokerProcess, watch: BrokerWatch, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch.look(1)
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(3):
            broker.kill()
            asked(watch, clock, 3)
            asked(watch, clock, 3)
            broker.start()
            asked(watch, clock, 3)
    assert len(told(caplog)) == 2


def test_too_few_replicas_in_sync_are_reported_and_their_return(
    watch: BrokerWatch, clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(*replicas: PartitionInfo) -> None:
        found = TopicDescription(OUTPUT, replicas, {"min.insync.replicas": "2"}, frozenset())
        monkeypatch.setattr(ConfluentAdmin, "describe_topics", lambda *_: [found])

    watch.look(1)
    with caplog.at_level(logging.WARNING, LOGGER):
        describe(PartitionInfo(0, 1, (1, 2, 3), (1, 2)), PartitionInfo(1, 1, (1, 2, 3), (1,)))
        asked(watch, clock, 3)
        asked(watch, clock, 3)
        (line,) = told(caplog)
        assert line == (
            "shop: the brokers have accepted no records for orders-1 (1 of its 3 replicas in sync, "
            "min.insync.replicas=2) for 3 s. Its output there is written again until they accept it."
        )
        describe(PartitionInfo(0, 1, (1, 2, 3), (1, 2)), PartitionInfo(1, 2, (2, 3), (2, 3)))
        asked(watch, clock, 3)
        assert told(caplog)[1:] == [
            "shop: the brokers accept records for orders-1 again, after 6 s. The application continues."
        ]
        # one replica is enough where there is no other
        describe(PartitionInfo(0, 1, (1,), (1,)), PartitionInfo(1, -1, (2,), ()))
        asked(watch, clock, 30)
        asked(watch, clock, 3)
        assert "no records for orders-1 (it has no leader) for 3 s" in told(caplog)[2]


def test_no_question_is_asked_while_epochs_are_committed(watch: BrokerWatch, clock: MockClock) -> None:
    for epoch in range(1, 10):
        clock.advance(3_000)
        watch.look(epoch)
        assert not watch.is_asking
