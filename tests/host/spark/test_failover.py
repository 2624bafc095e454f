"""Planning while leaders change and brokers do not answer, played in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError as Code

from penstock import Consumed, Produced, Serdes, StreamsBuilder, Topology
from penstock.client.api import EpochPosition
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.connection import ClientConnection
from penstock.errors import LogTruncationError, RetriableError
from penstock.host.spark.planner import epoch_planner, topic_ends
from penstock.record import TopicPartition
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
        def end_positions(self, *arguments: Any, **named: Any) -> Any:
            if codes:
                ClientConnection({"bootstrap.servers": "localhost:1"}, 0).fail(Code(codes.pop(0)), "asking for ends")
            return super().end_positions(*arguments, **named)

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


class Leaders:
    """The leader of all partitions, and what is left of the logs of those before."""

    def __init__(self) -> None:
        self.epoch = 3
        self.left: EpochPosition | None = None
        self.asked: list[dict[TopicPartition, EpochPosition]] = []


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch) -> Leaders:
    """Leaders of the planner's topics that change as a test says."""
    found = Leaders()

    class Led(ConfluentAdmin):
        def end_positions(self, *arguments: Any, **named: Any) -> dict[TopicPartition, EpochPosition]:
            ends = super().end_positions(*arguments, **named)
            return {tp: end._replace(leader_epoch=found.epoch) for tp, end in ends.items()}

        def truncated(self, positions: Mapping[TopicPartition, EpochPosition]) -> dict[TopicPartition, EpochPosition]:
            found.asked.append(dict(positions))
            return {} if found.left is None else dict.fromkeys(positions, found.left)

    monkeypatch.setattr(epoch_planner, "ConfluentAdmin", Led)
    return found


@EMBEDDED_ONLY
@pytest.mark.parametrize("in_between", [False, True], ids=["while it runs", "while it is stopped"])
def test_a_log_that_lost_records_and_grew_again_is_found_by_the_epochs_of_its_leaders(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], leaders: Leaders, in_between: bool
) -> None:
    query = InlineQuery(copying(*topics), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], lines(["a", "b"]))
    query.run_to_end()
    assert leaders.asked == []
    leaders.epoch = 4  # another leader, and nothing is lost
    query.run_to_end()
    query.run_to_end()
    place = TopicPartition(topics[0], 0)
    assert leaders.asked == [{place: EpochPosition(2, 3)}]
    spark_runner.write(topics[0], lines(["c"]))
    query.run_to_end()
    leaders.epoch, leaders.left = 7, EpochPosition(1, 3)
    spark_runner.write(topics[0], lines(["d"]))
    if in_between:
        query.restart()
    error = failure_of(query.run_to_end)
    assert isinstance(error, LogTruncationError)
    assert leaders.asked[1:] == [{place: EpochPosition(3, 4)}]
    assert f"The log of topic {place.topic}, partition 0, was truncated: records up to offset 3 of leader" in str(error)
    assert "what is left ends at offset 1 (epoch 3)" in str(error)
    query.close()
