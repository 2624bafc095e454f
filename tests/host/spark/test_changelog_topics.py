"""Changelog topics that Spark writes (`penstock.changelog.topics`): they have the records of any other host, agree with
the committed offsets of the group, and so another host goes on at any time."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from penstock import StreamsConfig, savepoints
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import committed_offsets
from penstock.errors import IncompatibleCheckpointError, TaskMigratedError
from penstock.host.spark.driver.resetting import reset_application
from penstock.plan.topology import built_topology
from penstock.record import Headers, TopicPartition
from penstock.testing import TopologyTestDriver
from tests.host.spark.checkpoints.test_kafka_state import held_counts, run_threads
from tests.host.spark.crashes import Crashes, KilledError, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_loops import changes, expected_join, living, orders_of_customers, records
from tests.host.support import InputRecord, OutputRecord
from tests.host.threads.takeover import twin
from tests.host.threads.takeover.running import SEED, make_inputs, split, write
from tests.support.brokers import EMBEDDED_ONLY
from tests.support.waiting import until

TEXTS = ["a b", "b", "c a", "d", "a", "b c a", "a d", "b"]
WRITTEN = {"penstock.changelog.topics": True}
"""The key that these tests are about."""

SOON = {"commit.interval.ms": 50}

Entry = tuple[bytes | None, int, Headers]


class Held:
    """The application of `held_counts`, in parts of its input."""

    def __init__(self, runner: SparkRunner, name: str, topics: tuple[str, str, str]) -> None:
        self.runner, self.name = runner, name
        self.source, self.names, self.target = topics
        self.topology = held_counts(*topics)
        runner.create_topics(dict.fromkeys(topics, 1))
        self.known = InputRecord(b"k0", b"zero", 1)
        runner.write(self.names, [self.known])
        self.records = [InputRecord(b"k%d" % (at % 2), text.encode(), 1_000 + at * 4) for at, text in enumerate(TEXTS)]

    def config(self, guarantee: str) -> StreamsConfig:
        settings = twin.settings(guarantee, "default")
        return self.runner.config(self.name, {**settings, **WRITTEN})

    def write(self, first: int, last: int) -> None:
        self.runner.write(self.source, self.records[first:last])

    def driven(self) -> dict[str, list[OutputRecord]]:
        """Return what the test driver writes to each topic."""
        found: dict[str, list[OutputRecord]] = {}
        with TopologyTestDriver(self.topology, self.config("at_least_once")) as driver:
            driver.pipe_bytes(self.names, self.known.key, self.known.value, self.known.timestamp)
            for record in self.records:
                driver.pipe_bytes(self.source, record.key, record.value, record.timestamp)
            for each in driver.read_all_bytes():
                row = OutputRecord(0, each.key, each.value, each.timestamp, each.headers)
                found.setdefault(each.topic, []).append(row)
        return found


@pytest.fixture
def held(spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]) -> Held:
    return Held(spark_runner, application, (unique_name("in"), unique_name("names"), unique_name("out")))


def last_of_each_key(rows: list[OutputRecord]) -> dict[bytes | None, Entry]:
    found = {row.key: (row.value, row.timestamp, row.headers) for row in rows}
    return {key: entry for key, entry in found.items() if entry[0] is not None}


def run_epochs(held: Held, config: StreamsConfig, *ends: int) -> None:
    query = InlineQuery(held.topology, config, held.runner.admin)
    for first, last in zip((0, *ends), ends, strict=False):
        held.write(first, last)
        query.run_to_end()
    query.close()


def committed(held: Held) -> int:
    """Return the offset that the group has committed of the input."""
    partition = TopicPartition(held.source, 0)
    with Cluster(held.runner.config(held.name)) as cluster:
        return committed_offsets(cluster, held.name, [partition])[partition].offset


def take_over(held: Held, config: StreamsConfig, directory: Path) -> None:
    """Write the last records, and have the threads host process them."""
    held.write(6, len(TEXTS))
    expected = held.driven()[held.target]
    elsewhere = config.overridden({"penstock.checkpoint.dir": str(directory), **SOON})
    run_threads(held.topology, elsewhere, lambda: len(held.runner.read(held.target)) >= len(expected))
    found = held.runner.read(held.target)
    assert sorted(row[1:4] for row in found) == sorted(row[1:4] for row in expected)


@EMBEDDED_ONLY
def test_changelogs_have_the_records_of_any_other_host(held: Held) -> None:
    run_epochs(held, held.config("exactly_once_v2"), 3, 6, 8)
    driven = held.driven()
    changelogs = [topic for topic in driven if topic.endswith("-changelog")]
    assert len(changelogs) == 3
    for topic in changelogs:
        expected, found = last_of_each_key(driven[topic]), last_of_each_key(held.runner.read(topic))
        if "held" in topic:  # a buffer says nothing of the time of its records
            expected, found = ({key: (row[0], 0, row[2]) for key, row in each.items()} for each in (expected, found))
        assert found == expected, topic
    assert committed(held) == len(TEXTS)


@EMBEDDED_ONLY
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_another_host_goes_on_where_spark_has_stopped(held: Held, guarantee: str, tmp_path: Path) -> None:
    config = held.config(guarantee)
    run_epochs(held, config, 3, 6)
    take_over(held, config, tmp_path / "no-checkpoint")
    with pytest.raises(IncompatibleCheckpointError, match="savepoint import --from-kafka"):
        InlineQuery(held.topology, config, held.runner.admin)


def test_another_host_goes_on_where_spark_was_killed(
    held: Held, crashes: Callable[..., Crashes], tmp_path: Path
) -> None:
    config = held.config("exactly_once_v2")
    crashes(at="manifest.before_write")
    with pytest.raises(KilledError):
        run_epochs(held, config, 6)
    assert committed(held) == 6
    take_over(held, config, tmp_path / "no-checkpoint")


@EMBEDDED_ONLY
@pytest.mark.parametrize("point", ["transaction.before", "transaction.open", "manifest.before_write"])
def test_changelogs_stay_in_step_over_kills(held: Held, crashes: Callable[..., Crashes], point: str) -> None:
    config = held.config("exactly_once_v2")
    query = InlineQuery(held.topology, config, held.runner.admin)
    held.write(0, 6)
    crashes(at=point)
    run_to_end_over_kills(query)
    held.write(6, len(TEXTS))
    query.run_to_end()
    query.close()
    driven = held.driven()
    counts = f"{held.name}-counts-changelog"
    assert last_of_each_key(held.runner.read(counts)) == last_of_each_key(driven[counts])
    assert sorted(row[1:4] for row in held.runner.read(held.target)) == sorted(row[1:4] for row in driven[held.target])


@EMBEDDED_ONLY
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_an_application_whose_group_has_members_is_not_run_on_spark_too(held: Held, guarantee: str) -> None:
    query = InlineQuery(held.topology, held.config(guarantee), held.runner.admin)
    held.write(0, 3)
    consumer = Consumer({"bootstrap.servers": held.runner.bootstrap_servers, "group.id": held.name})
    consumer.subscribe([held.source])
    try:
        assert until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        error = failure_of(query.run_to_end)
    finally:
        consumer.close()
        query.close()
    assert isinstance(error, TaskMigratedError)
    assert f"The group {held.name} has members" in str(error)


@EMBEDDED_ONLY
def test_a_checkpoint_with_state_needs_its_export_first(held: Held, tmp_path: Path) -> None:
    config = held.config("exactly_once_v2")
    run_epochs(held, config.overridden({"penstock.changelog.topics": False}), 3)
    with pytest.raises(IncompatibleCheckpointError, match="savepoint export --to-kafka"):
        InlineQuery(held.topology, config, held.runner.admin)
    saved = str(tmp_path / "saved")
    savepoints.take(config, saved)
    savepoints.export_to_kafka(saved, held.topology, config)
    held.write(3, 6)
    query = InlineQuery(held.topology, config, held.runner.admin)
    query.run_to_end()
    query.close()
    take_over(held, config, tmp_path / "no-checkpoint")


@EMBEDDED_ONLY
def test_a_changelog_that_was_deleted_is_refused_until_the_state_is_exported(held: Held, tmp_path: Path) -> None:
    config = held.config("exactly_once_v2")
    run_epochs(held, config, 3)
    changelog = f"{held.name}-counts-changelog"
    held.runner.admin.delete_topics([changelog])
    with pytest.raises(IncompatibleCheckpointError, match=rf"the topics {changelog} were deleted.*export --to-kafka"):
        InlineQuery(held.topology, config, held.runner.admin)
    saved = str(tmp_path / "saved")
    savepoints.take(config, saved)
    savepoints.export_to_kafka(saved, held.topology, config)
    held.write(3, 6)
    query = InlineQuery(held.topology, config, held.runner.admin)
    query.run_to_end()
    query.close()
    take_over(held, config, tmp_path / "no-checkpoint")


@EMBEDDED_ONLY
def test_a_reset_deletes_the_topics_too(held: Held) -> None:
    config = held.config("at_least_once")
    run_epochs(held, config, 3)
    plan = reset_application(built_topology(held.topology, held.name), config, held.runner.admin)
    assert f"{held.name}-counts-changelog" in plan.topics
    assert f"{held.name}-words-repartition" in plan.topics
    query = InlineQuery(held.topology, config, held.runner.admin)
    query.run_to_end()
    query.close()
    assert committed(held) == 3


@EMBEDDED_ONLY
def test_records_between_tasks_are_taken_over(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    topics = unique_name("orders"), unique_name("customers"), unique_name("joined")
    spark_runner.create_topics(dict.fromkeys(topics, 2))
    topology, config = orders_of_customers(*topics), spark_runner.config(application, WRITTEN)
    orders: dict[str, str] = {}
    customers: dict[str, str] = {}
    left, right = changes(random.Random(7), orders, customers, 120)
    query = InlineQuery(topology, config, spark_runner.admin)
    spark_runner.write(topics[1], records(right, 2, 1))
    query.run_to_end()
    spark_runner.write(topics[0], records(left, 2, 1_000))
    assert query.epoch()
    carried = [entry.carried for entry in spark_runner.manifest(config).tasks.values()]
    assert any(each is not None and each["sends"] for each in carried)
    query.close()
    elsewhere = config.overridden({"penstock.checkpoint.dir": str(tmp_path / "no-checkpoint"), **SOON})
    run_threads(topology, elsewhere, lambda: living(spark_runner.read(topics[2])) == expected_join(orders, customers))


@EMBEDDED_ONLY
@pytest.mark.slow
@pytest.mark.parametrize("store_format", ["default", "headers"])
def test_every_kind_of_store_is_taken_over(
    spark_runner: SparkRunner, store_format: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name, inputs = unique_name("app"), unique_name("in") + "-"
    settings = twin.settings("exactly_once_v2", store_format)
    config = spark_runner.config(name, {**settings, **WRITTEN})
    topology = twin.topology(inputs, name)
    make_inputs(spark_runner.bootstrap_servers, inputs)
    spark_runner.create_topics({f"{name}-out-{output}": 1 for output in twin.OUTPUTS})
    parts = split(twin.records(SEED, 1_700_000_000_000), 2)
    rows = [row for part in twin.expected(parts, settings) for row in part]
    expected = twin.outputs(rows)
    write(spark_runner.bootstrap_servers, inputs, parts[0])
    query = InlineQuery(topology, config, spark_runner.admin)
    query.run_to_end()
    query.close()

    def found() -> twin.Outputs:
        return twin.outputs(
            (output, row.key or b"", twin.Output(row.value, row.timestamp, row.headers))
            for output in twin.OUTPUTS
            for row in spark_runner.read(f"{name}-out-{output}")
        )

    write(spark_runner.bootstrap_servers, inputs, parts[1])
    elsewhere = config.overridden({"penstock.checkpoint.dir": str(tmp_path / "no-checkpoint"), **SOON})
    run_threads(topology, elsewhere, lambda: differing(expected, found()) == [])


def differing(expected: twin.Outputs, found: twin.Outputs) -> list[str]:
    """Return the outputs that are not as expected; what an order of records leaves out another one may write again."""
    return [
        name
        for name in twin.OUTPUTS
        if ({key: found[name][key] for key in expected[name]} if name in twin.REORDERED else found[name])
        != expected[name]
    ]
