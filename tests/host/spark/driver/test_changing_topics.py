"""Topics that change while an application on Spark runs, or between its runs, most of it played in one process."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from penstock import AutoOffsetReset, Consumed, Materialized, Produced, Serdes, StreamsBuilder, Topology, savepoints
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import IncompatibleCheckpointError, MissingSourceTopicError, StreamsError
from penstock.host.deployment.topic_watch import topic_changes
from penstock.host.deployment.topics import resolve_patterns
from penstock.host.spark.driver.preparation import internal_topics
from penstock.host.spark.planner import epoch_planner, topic_ends
from penstock.plan.partitioning import partition_for
from tests.host.spark.crashes import Crashes, KilledError
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import TIMEOUT_SECONDS, InputRecord, Listening, wait_for
from tests.support.brokers import EMBEDDED_ONLY

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
TEXT_OUT = Produced.with_(key_serde=STRING, value_serde=STRING)


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


def write_to_new_partition(spark_runner: SparkRunner, topic: str, partition: int, value: str) -> None:
    producer = ConfluentProducer(spark_runner.config("writer"))  # one that does not remember how many there were
    producer.send(topic, b"k", value.encode(), partition, 1_000)
    producer.close()


def copied(spark_runner: SparkRunner, prefix: str) -> list[str]:
    return [(record.value or b"").decode() for record in spark_runner.read(f"{prefix}-out")]


@EMBEDDED_ONLY
def test_a_topic_that_is_read_by_its_name_must_not_be_deleted(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    query = InlineQuery(copying(prefix, pattern=False), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "1")
    query.run_to_end()
    spark_runner.admin.delete_topics([f"{prefix}-in-a"])
    error = failure_of(query.run_to_end)
    assert isinstance(error, MissingSourceTopicError)
    assert f"{prefix}-in-a" in str(error)


@EMBEDDED_ONLY
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


@EMBEDDED_ONLY
def test_a_topic_of_a_pattern_may_be_deleted_before_a_planned_epoch_has_read_it(
    spark_runner: SparkRunner, application: str, prefix: str, crashes: Callable[..., Crashes]
) -> None:
    query = InlineQuery(copying(prefix), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "a1")
    write(spark_runner, f"{prefix}-in-b", "b1")
    crashes(at="source.partitions")
    with pytest.raises(KilledError):
        query.run_to_end()
    spark_runner.admin.delete_topics([f"{prefix}-in-a"])
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["b1"]


def delete_records(spark_runner: SparkRunner, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": spark_runner.bootstrap_servers})
    for future in admin.delete_records([Position(topic, 0, before)]).values():
        future.result(30)


@pytest.mark.parametrize(
    ("offset_reset", "expected"),
    [
        (AutoOffsetReset.earliest(), ["0", "1", "4", "5", "6"]),
        (AutoOffsetReset.latest(), ["0", "1", "6"]),
        (AutoOffsetReset.by_duration(1), ["0", "1", "6"]),
        (AutoOffsetReset.none(), None),
    ],
)
def test_reading_continues_as_the_offset_reset_says_where_retention_deleted_what_was_next(
    spark_runner: SparkRunner, application: str, prefix: str, offset_reset: str, expected: list[str] | None
) -> None:
    topic = f"{prefix}-in-a"
    config = spark_runner.config(application)
    earlier = InlineQuery(copying(prefix, False), config, spark_runner.admin)
    write(spark_runner, topic, "0", "1")
    earlier.run_to_end()
    query = InlineQuery(copying(prefix, False, offset_reset), config, spark_runner.admin)
    write(spark_runner, topic, "2", "3", "4", "5")
    delete_records(spark_runner, topic, before=4)
    if expected is None:
        error = failure_of(query.run_to_end)
        assert f"topic {topic}, partition 0" in str(error)
        assert "offset reset of its source is none" in str(error)
        return
    query.run_to_end()
    write(spark_runner, topic, "6")
    query.run_to_end()
    assert copied(spark_runner, prefix) == expected


def test_what_retention_deletes_of_an_epoch_that_is_planned_is_left_out(
    spark_runner: SparkRunner, application: str, prefix: str, crashes: Callable[..., Crashes]
) -> None:
    topic = f"{prefix}-in-a"
    query = InlineQuery(copying(prefix, False), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, topic, "0", "1", "2", "3")
    crashes(at="source.partitions")
    with pytest.raises(KilledError):
        query.run_to_end()
    delete_records(spark_runner, topic, before=3)
    query.restart()
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["3"]


@EMBEDDED_ONLY
def test_changes_of_the_topics_are_reported_by_name(spark_runner: SparkRunner, application: str, prefix: str) -> None:
    built = copying(prefix).build(application)
    description = InlineQuery(copying(prefix), spark_runner.config(application), spark_runner.admin).description
    topics = spark_runner.admin.topics()
    ids = spark_runner.admin.topic_ids(topics)

    def changes(topics: dict[str, int], ids: dict[str, str]) -> list[str]:
        now = resolve_patterns(built, topics, internal_topics(built, application), StreamsConfig())
        return [change.text for change in topic_changes(description, now, topics, ids)]

    assert changes(topics, ids) == []
    recreated = {**ids, f"{prefix}-in-a": "another"}
    assert changes(topics, recreated) == [f"topic {prefix}-in-a was deleted and created again"]
    changed = {**topics, f"{prefix}-in-c": 1, f"{prefix}-in-b": 4, f"{prefix}-out": 2, f"{prefix}-other": 1}
    del changed[f"{prefix}-in-a"]
    assert changes(changed, ids) == [
        f"topic {prefix}-in-c is new and matches a pattern",
        f"topic {prefix}-in-a was deleted",
        f"topic {prefix}-in-b has 4 partitions, and had 1",
        f"topic {prefix}-out has 2 partitions, and had 1",
    ]


def counting(prefix: str) -> Topology:
    """Counts the records of each key of all topics of a pattern."""
    builder = StreamsBuilder()
    counts = builder.stream(re.compile(f"{prefix}-in-.*"), TEXT).group_by_key().count(Materialized.as_("counts"))
    counts.to_stream().map_values(str).to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


@EMBEDDED_ONLY
def test_new_topics_of_a_pattern_and_new_partitions_are_read_from_the_next_start_on(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    query = InlineQuery(copying(prefix), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "a1")
    query.run_to_end()
    spark_runner.create_topics({f"{prefix}-in-c": 2})
    spark_runner.admin.create_partitions(f"{prefix}-in-a", 3)
    write(spark_runner, f"{prefix}-in-a", "a2")
    write_to_new_partition(spark_runner, f"{prefix}-in-a", 2, "a3")
    write_to_new_partition(spark_runner, f"{prefix}-in-c", 1, "c1")
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["a1", "a2"]
    query.restart()
    query.run_to_end()
    assert sorted(copied(spark_runner, prefix)) == ["a1", "a2", "a3", "c1"]


@EMBEDDED_ONLY
def test_where_a_new_topic_is_begun_is_fixed_before_an_epoch_reads_it(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    config = spark_runner.config(application, {"auto.offset.reset": "latest"})
    query = InlineQuery(copying(prefix), config, spark_runner.admin)
    query.run_to_end()
    spark_runner.create_topics({f"{prefix}-in-c": 1})
    write(spark_runner, f"{prefix}-in-c", "before the start")
    query.restart()
    write(spark_runner, f"{prefix}-in-c", "after it")
    query.restart()
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["after it"]


@EMBEDDED_ONLY
def test_a_topic_of_a_pattern_that_is_created_again_is_read_from_its_start(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    query = InlineQuery(copying(prefix), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "1", "2", "3")
    query.run_to_end()
    spark_runner.admin.delete_topics([f"{prefix}-in-a"])
    query.restart()
    query.run_to_end()
    spark_runner.create_topics({f"{prefix}-in-a": 1})
    write(spark_runner, f"{prefix}-in-a", "4")
    query.restart()
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["1", "2", "3", "4"]


def recreate(spark_runner: SparkRunner, topic: str, *values: str) -> None:
    """Delete a topic and make it again, with `values`."""
    spark_runner.admin.delete_topics([topic])
    wait_for(lambda: topic not in spark_runner.admin.topics())
    spark_runner.create_topics({topic: 1})
    write(spark_runner, topic, *values)


@EMBEDDED_ONLY
def test_a_topic_of_a_pattern_that_is_created_again_between_two_starts_is_read_from_its_start_however_long_it_is(
    spark_runner: SparkRunner, application: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    query = InlineQuery(copying(prefix), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "1", "2")
    write(spark_runner, f"{prefix}-in-b", "b1")
    query.run_to_end()
    recreate(spark_runner, f"{prefix}-in-a", "3", "4", "5")
    query.restart()
    assert f"Topics were deleted and created again, and are read from their start: {prefix}-in-a" in caplog.text
    write(spark_runner, f"{prefix}-in-b", "b2")
    query.run_to_end()
    query.restart()
    query.run_to_end()
    assert sorted(copied(spark_runner, prefix)) == ["1", "2", "3", "4", "5", "b1", "b2"]


@EMBEDDED_ONLY
def test_a_topic_of_a_pattern_that_is_created_again_meanwhile_is_left_until_the_next_start(
    spark_runner: SparkRunner, application: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ends, "_IDS_EVERY_MS", 0)
    query = InlineQuery(copying(prefix), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "1")
    query.run_to_end()
    recreate(spark_runner, f"{prefix}-in-a", "2", "3")
    write(spark_runner, f"{prefix}-in-b", "b1")
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["1", "b1"]
    query.restart()
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["1", "b1", "2", "3"]


@EMBEDDED_ONLY
@pytest.mark.parametrize("runs", [False, True])
def test_a_topic_that_is_read_by_its_name_must_not_be_created_again_however_long_it_is(
    spark_runner: SparkRunner, application: str, prefix: str, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(topic_ends, "_IDS_EVERY_MS", 0)
    config = spark_runner.config(application)
    query = InlineQuery(copying(prefix, pattern=False), config, spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "1")
    query.run_to_end()
    recreate(spark_runner, f"{prefix}-in-a", "2", "3")
    recreated = f"deleted and created again since the application read them: {prefix}-in-a"
    if runs:
        assert recreated in str(failure_of(query.run_to_end))
    with pytest.raises(StreamsError, match=recreated):
        query.restart()
    assert copied(spark_runner, prefix) == ["1"]


@pytest.mark.parametrize("until_end", [False, True])
def test_nothing_is_read_of_a_topic_that_was_created_again_a_moment_ago(
    spark_runner: SparkRunner, application: str, prefix: str, until_end: bool
) -> None:
    """Its id was compared before, and is compared now and then only where there is nothing to read."""
    topic = f"{prefix}-in-a"
    query = InlineQuery(copying(prefix, pattern=False), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, topic, "1")
    query.run_to_end()
    if until_end:
        write(spark_runner, topic, "2")
        query.restart(until_end=True)
    recreate(spark_runner, topic, "3", "4", "5")
    assert f"deleted and created again since the application read them: {topic}" in str(failure_of(query.run_to_end))
    assert copied(spark_runner, prefix) == ["1"]
    query.close()


@pytest.mark.parametrize("pattern", [False, True])
def test_nothing_is_written_of_a_topic_that_was_created_again_after_an_epoch_was_planned(
    spark_runner: SparkRunner, application: str, prefix: str, pattern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{prefix}-in-a"
    query = InlineQuery(copying(prefix, pattern), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, topic, "1")
    query.run_to_end()
    write(spark_runner, topic, "2", "3")

    def recreate_once(point: str, epoch: int) -> None:
        if point == "source.partitions":
            monkeypatch.undo()
            recreate(spark_runner, topic, "4", "5", "6", "7")

    monkeypatch.setattr(epoch_planner, "crash_point", recreate_once)
    assert f"deleted and created again since the application read them: {topic}" in str(failure_of(query.run_to_end))
    assert copied(spark_runner, prefix) == ["1"]
    query.close()


@EMBEDDED_ONLY
def test_a_savepoint_continues_with_a_copy_of_its_topics(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path
) -> None:
    query = InlineQuery(copying(prefix, pattern=False), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "1")
    query.run_to_end()
    savepoints.take(spark_runner.config(application), str(tmp_path / "saved"))
    recreate(spark_runner, f"{prefix}-in-a", "1", "2")
    again = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "again")})
    savepoints.restore(str(tmp_path / "saved"), again)
    InlineQuery(copying(prefix, pattern=False), again, spark_runner.admin).run_to_end()
    assert copied(spark_runner, prefix) == ["1", "2"]


@EMBEDDED_ONLY
def test_state_prevents_more_tasks_but_not_more_topics(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    values = {"default.key.serde": STRING, "default.value.serde": STRING}
    query = InlineQuery(counting(prefix), spark_runner.config(application, values), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "x")
    query.run_to_end()
    spark_runner.create_topics({f"{prefix}-in-c": 1})
    write(spark_runner, f"{prefix}-in-c", "x")
    query.restart()
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["1", "2"]
    spark_runner.admin.create_partitions(f"{prefix}-in-c", 2)
    with pytest.raises(IncompatibleCheckpointError, match=r"counts .* in 1 .* 2 .*--rescale"):
        query.restart()


@EMBEDDED_ONLY
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_running_application_takes_up_new_topics_and_partitions(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    config = spark_runner.config(application, {"metadata.max.age.ms": 200})

    def has_copied(*values: str) -> None:
        wait_for(lambda: sorted(copied(spark_runner, prefix)) == sorted(values))

    with spark_runner.running(copying(prefix), config):
        write(spark_runner, f"{prefix}-in-a", "a1")
        has_copied("a1")
        spark_runner.create_topics({f"{prefix}-in-c": 1})
        spark_runner.admin.create_partitions(f"{prefix}-in-b", 2)
        write(spark_runner, f"{prefix}-in-c", "c1")
        write_to_new_partition(spark_runner, f"{prefix}-in-b", 1, "b1")
        has_copied("a1", "b1", "c1")


@EMBEDDED_ONLY
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_running_application_ends_when_a_topic_that_it_names_is_deleted(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    config = spark_runner.config(application, {"metadata.max.age.ms": 200})
    host = spark_runner.host(copying(prefix, pattern=False), config)
    listening = Listening()
    host.start(listening)
    try:
        spark_runner.admin.delete_topics([f"{prefix}-in-a"])
        assert listening.ended.wait(TIMEOUT_SECONDS)
    finally:
        host.close(30_000)
    assert isinstance(listening.error, MissingSourceTopicError)


def to_topics_by_value(prefix: str) -> Topology:
    """Copies each record to the topic that its value names."""
    builder = StreamsBuilder()
    builder.stream(f"{prefix}-in-a", TEXT).to(lambda key, value, context: f"{prefix}-{value}", TEXT_OUT)
    return builder.build()


@EMBEDDED_ONLY
def test_a_topic_that_is_made_after_the_start_can_be_written_to_by_its_name(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    query = InlineQuery(to_topics_by_value(prefix), spark_runner.config(application), spark_runner.admin)
    write(spark_runner, f"{prefix}-in-a", "out")
    query.run_to_end()
    spark_runner.create_topics({f"{prefix}-later": 3})
    write(spark_runner, f"{prefix}-in-a", "later", "out", "later")
    query.run_to_end()
    assert copied(spark_runner, prefix) == ["out", "out"]
    (partition,) = {record.partition for record in spark_runner.read(f"{prefix}-later")}
    assert partition == partition_for(b"k", 3)
    write(spark_runner, f"{prefix}-in-a", "nowhere")
    assert f"topic {prefix}-nowhere" in str(failure_of(query.run_to_end))
    query.close()
