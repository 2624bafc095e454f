"""The driver's log says that no broker answers, and when one does again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.process import BrokerProcess
from penstock.clock import MockClock
from penstock.config import StreamsConfig
from penstock.host.spark.driver.broker_watch import BrokerWatch
from tests.host.spark.support import wait_for

LOGGER = "penstock.host.spark.driver.broker_watch"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def clock() -> MockClock:
    return MockClock(1_000_000)


@pytest.fixture
def watch(broker: BrokerProcess, clock: MockClock) -> Iterator[BrokerWatch]:
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": broker.bootstrap_servers})
    watch = BrokerWatch(config, clock.milliseconds)
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


def test_no_question_is_asked_while_epochs_are_committed(watch: BrokerWatch, clock: MockClock) -> None:
    for epoch in range(1, 10):
        clock.advance(3_000)
        watch.look(epoch)
        assert not watch.is_asking
