"""The offsets with which Kafka's tools show the lag of an application: nothing waits for them, and the last ones are
committed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder
from penstock.client.api import Admin, OffsetAndMetadata
from penstock.errors import BrokerNotFoundError
from penstock.host.spark.planner.group_offsets import GroupOffsets
from penstock.record import TopicPartition
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import lines, wait_for

HERE = TopicPartition("t", 0)
SECONDS = 120.0


class Coordinator:
    """An admin client whose commits wait until they are released, and fail as often as requested."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.asked = threading.Event()
        self.failures = 0

    def open(self) -> Admin:
        return cast(Admin, self)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.asked.set()
        assert self.may_go_on.wait(SECONDS)
        if self.failures:
            self.failures -= 1
            raise BrokerNotFoundError("the coordinator is away")
        self.told.append(offsets[HERE].offset)

    def close(self) -> None: ...


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator()
    yield made
    made.may_go_on.set()


def test_nobody_waits_for_a_coordinator_and_only_the_newest_positions_are_kept(coordinator: Coordinator) -> None:
    offsets = GroupOffsets("group", coordinator.open, interval_ms=1)
    coordinator.may_go_on.clear()
    offsets.tell({HERE: 1})
    assert coordinator.asked.wait(SECONDS)
    for position in range(2, 1_000):
        offsets.tell({HERE: position})
    assert not offsets.finish(timeout_ms=10)
    coordinator.may_go_on.set()
    assert offsets.finish(timeout_ms=120_000)
    assert coordinator.told == [1, 999]


def test_the_last_positions_are_reported_though_nothing_more_comes(coordinator: Coordinator) -> None:
    coordinator.failures = 3
    offsets = GroupOffsets("group", coordinator.open, interval_ms=1)
    offsets.tell({HERE: 7})
    wait_for(lambda: coordinator.told == [7])
    assert offsets.finish(timeout_ms=120_000)
    offsets.tell({HERE: 8})  # by another thread
    assert offsets.finish(timeout_ms=120_000)
    assert coordinator.told == [7, 8]


def test_positions_that_brokers_do_not_take_are_given_up_at_the_end(coordinator: Coordinator) -> None:
    coordinator.failures = 1_000
    offsets = GroupOffsets("group", coordinator.open, interval_ms=1)
    offsets.tell({HERE: 7})
    assert offsets.finish(timeout_ms=120_000)
    assert coordinator.told == []


def test_an_application_that_idles_shows_no_lag(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    text = Serdes.string()
    builder = StreamsBuilder()
    lines_of_text = builder.stream(topics[0], consumed=Consumed.with_(key_serde=text, value_serde=text))
    lines_of_text.to(topics[1], Produced.with_(key_serde=text, value_serde=text))
    query = InlineQuery(builder.build(), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], lines(["a", "b", "c"], partitions=3))
    while query.epochs == 0:
        query.epoch()
    spark_runner.write(topics[0], lines(["d"]))
    query.run_to_end()  # and Spark tells of no commit until there is another epoch
    partitions = [TopicPartition(topics[0], number) for number in range(3)]
    expected = spark_runner.admin.end_offsets(partitions, read_committed=True)

    def committed() -> dict[TopicPartition, int]:
        found = spark_runner.admin.committed_offsets(application, partitions)
        return {partition: each.offset for partition, each in found.items()}

    wait_for(lambda: committed() == expected)
    query.close()
