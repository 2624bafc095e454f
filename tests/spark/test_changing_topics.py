"""Topics that change while an application on Spark runs, or between its runs, most of it played in one process."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from penstock import AutoOffsetReset, Consumed, Produced, Serdes, StreamsBuilder, Topology
from penstock.errors import MissingSourceTopicError, StreamsError
from penstock.host.spark import planning
from penstock.host.spark.failures import QueryFailedError, failure_in
from tests.spark.inline import InlineQuery
from tests.spark.support import InputRecord, SparkRunner
from tests.support.brokers import ON_KAFKA

pytestmark = pytest.mark.xdist_group("spark")

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
TEXT_OUT = Produced.with_(key_serde=STRING, value_serde=STRING)
EMBEDDED = pytest.mark.parametrize("broker", ["embedded"], indirect=True)
KAFKA = pytest.mark.parametrize("broker", [pytest.param("kafka", marks=ON_KAFKA)], indirect=True)


class KilledError(BaseException):
    """What a kill is in one process."""


@pytest.fixture
def prefix(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> str:
    name = unique_name("topics")
    spark_runner.create_topics({f"{name}-in-a": 1, f"{name}-in-b": 1, f"{name}-out": 1})
    return name


def copying(prefix: str, pattern: bool = True, offset_reset: str | None = None) -> Topology:
    """Copies all topics of a pattern, or one by its name, to another topic."""
    builder = StreamsBuilder()
    source: Any = re.compile(f"{prefix}-in-.*") if pattern else f"{prefix}-in-a"
    builder.stream(source, replace(TEXT, offset_reset=offset_reset)).to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


def write(spark_runner: SparkRunner, topic: str, *values: str) -> None:
    spark_runner.write(topic, [InputRecord(b"k", value.encode(), 1_000) for value in values])


def copied(spark_runner: SparkRunner, prefix: str) -> list[str]:
    return [(record.value or b"").decode() for record in spark_runner.read(f"{prefix}-out")]


def failure_of(query: InlineQuery) -> StreamsError:
    with pytest.raises(QueryFailedError) as caught:
        query.run_to_end()
    failure = failure_in(str(caught.value))
    assert failure is not None
    return failure[0]


@EMBEDDED
def test_a_topic_that_is_read_by_its_name_must_not_be_deleted(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    query = InlineQuery(copying(prefix, pattern=False), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "1")
    query.run_to_end()
    spark_runner.admin.delete_topics([f"{prefix}-in-a"])
    error = failure_of(query)
    assert isinstance(error, MissingSourceTopicError)
    assert f"{prefix}-in-a" in str(error)


@EMBEDDED
def test_a_topic_of_a_pattern_may_be_deleted_before_an_epoch_is_planned(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    query = InlineQuery(copying(prefix), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "a1")
    write(spark_runner, f"{prefix}-in-b", "b1")
    query.run_to_end()
    spark_runner.admin.delete_topics([f"{prefix}-in-a"])
    write(spark_runner, f"{prefix}-in-b", "b2")
    query.run_to_end()
    assert sorted(copied(spark_runner, prefix)) == ["a1", "b1", "b2"]


@EMBEDDED
def test_a_topic_of_a_pattern_may_be_deleted_before_a_planned_epoch_has_read_it(
    spark_runner: SparkRunner, application: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = InlineQuery(copying(prefix), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "a1")
    write(spark_runner, f"{prefix}-in-b", "b1")

    def killed(name: str, epoch: int) -> None:
        if name == "source.partitions":
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(planning, "crash_point", killed)
        with pytest.raises(KilledError):
            query.run_to_end()
    spark_runner.admin.delete_topics([f"{prefix}-in-a"])
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["b1"]


def delete_records(spark_runner: SparkRunner, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": spark_runner.bootstrap_servers})
    for future in admin.delete_records([Position(topic, 0, before)]).values():
        future.result(30)


@KAFKA
@pytest.mark.parametrize(
    ("offset_reset", "expected"),
    [
        (AutoOffsetReset.earliest(), ["0", "1", "4", "5", "6"]),
        (AutoOffsetReset.latest(), ["0", "1", "6"]),
        (AutoOffsetReset.by_duration(1), ["0", "1", "6"]),
        (AutoOffsetReset.none(), None),
    ],
)
def test_reading_goes_on_as_the_offset_reset_says_where_retention_deleted_what_was_next(
    spark_runner: SparkRunner, application: str, prefix: str, offset_reset: str, expected: list[str] | None
) -> None:
    topic = f"{prefix}-in-a"
    config = spark_runner.config(application)
    earlier = InlineQuery(copying(prefix, False), config, spark_runner.admin)
    write(spark_runner, topic, "0", "1")
    earlier.run_to_end()
    query = InlineQuery(copying(prefix, False, offset_reset), config, spark_runner.admin)
    query._offset_log, query._committed = list(earlier._offset_log), earlier._committed
    write(spark_runner, topic, "2", "3", "4", "5")
    delete_records(spark_runner, topic, before=4)
    if expected is None:
        error = failure_of(query)
        assert f"topic {topic}, partition 0" in str(error)
        assert "offset reset none" in str(error)
        return
    query.run_to_end()
    write(spark_runner, topic, "6")
    query.run_to_end()
    assert copied(spark_runner, prefix) == expected


@KAFKA
def test_what_retention_deletes_of_an_epoch_that_is_planned_is_left_out(
    spark_runner: SparkRunner, application: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{prefix}-in-a"
    query = InlineQuery(copying(prefix, False), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, topic, "0", "1", "2", "3")

    def killed(name: str, epoch: int) -> None:
        if name == "source.partitions":
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(planning, "crash_point", killed)
        with pytest.raises(KilledError):
            query.run_to_end()
    delete_records(spark_runner, topic, before=3)
    query.restart()
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["3"]
