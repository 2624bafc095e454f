"""Planning while leaders change and brokers do not answer, played in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError as Code

from penstock import Consumed, Produced, Serdes, StreamsBuilder, Topology
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.connection import Connection
from penstock.errors import RetriableError
from penstock.host.spark.planner import epoch_planner, topic_ends
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import lines
from tests.support.brokers import EMBEDDED_ONLY

STRING = Serdes.string()


def copying(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, consumed=Consumed.with_(key_serde=STRING, value_serde=STRING)).to(
        target, Produced.with_(key_serde=STRING, value_serde=STRING)
    )
    return builder.build()


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codes with which brokers answer the next questions of the planner for ends."""
    codes: list[int] = []

    class Refused(ConfluentAdmin):
        def end_offsets(self, *arguments: Any, **named: Any) -> Any:
            if codes:
                Connection({"bootstrap.servers": "localhost:1"}, 0).fail(Code(codes.pop(0)), "asking for ends")
            return super().end_offsets(*arguments, **named)

    monkeypatch.setattr(epoch_planner, "ConfluentAdmin", Refused)
    return codes


@EMBEDDED_ONLY
def test_leaders_that_change_are_waited_for(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], refusals: list[int]
) -> None:
    query = InlineQuery(copying(*topics), spark_runner.config(application), spark_runner.admin)
    query.run_to_end()
    spark_runner.write(topics[0], lines(["a"]))
    refusals += [Code.FENCED_LEADER_EPOCH, Code.NOT_LEADER_FOR_PARTITION, Code._TRANSPORT]
    assert [query.epoch() for _ in range(4)] == [False, False, False, True]
    assert [record.value for record in spark_runner.read(topics[1])] == [b"a"]
    query.close()


@EMBEDDED_ONLY
def test_the_ends_at_which_to_stop_are_requested_until_a_broker_answers(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], refusals: list[int]
) -> None:
    spark_runner.write(topics[0], lines(["a"]))
    query = InlineQuery(copying(*topics), spark_runner.config(application), spark_runner.admin)
    refusals += [Code.FENCED_LEADER_EPOCH, Code.LEADER_NOT_AVAILABLE]
    query.restart(until_end=True)
    query.run_to_end()
    assert [record.value for record in spark_runner.read(topics[1])] == [b"a"]
    query.close()


@EMBEDDED_ONLY
def test_brokers_that_stay_away_end_the_query_with_their_error(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    refusals: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = InlineQuery(copying(*topics), spark_runner.config(application), spark_runner.admin)
    query.run_to_end()
    monkeypatch.setattr(topic_ends, "PATIENCE_MS", -1)
    refusals += [Code.FENCED_LEADER_EPOCH]
    failure: Callable[[], object] = query.run_to_end
    assert isinstance(failure_of(failure), RetriableError)
    query.close()


@EMBEDDED_ONLY
def test_a_leap_of_the_wall_clock_is_no_time_that_brokers_were_away(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    refusals: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = InlineQuery(copying(*topics), spark_runner.config(application), spark_runner.admin)
    query.run_to_end()
    refusals += [Code._TRANSPORT, Code._TRANSPORT]
    assert not query.epoch()
    wall_clock = time.time
    monkeypatch.setattr(time, "time", lambda: wall_clock() + 3_600)
    assert not query.epoch()
    spark_runner.write(topics[0], lines(["a"]))
    assert query.epoch()
    query.close()
