"""A history and then its topic give the results of a topic that still has all records."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError, TaskCorruptedError
from penstock.host import crashpoints
from penstock.host.spark.checkpoints import savepoint
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.stored_history import histories_of
from penstock.host.spark.driver.replaying import EpochReplay
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.histories import store_history
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, OutputRecord
from tests.support.brokers import first_on_kafka

TEXT = Serdes.string()
TEXTS = Consumed.with_(key_serde=TEXT, value_serde=TEXT).with_name("in")
PARTITIONS = 3
SMALL = {"penstock.batch.max.bytes": 1024, "penstock.row.max.bytes": 1024}


def records_of(seed: int, count: int) -> list[InputRecord]:
    """Return records of a few keys, in the order of time."""
    chosen, found, time = random.Random(seed), [], 1_000
    for number in range(count):
        key = chosen.randrange(9)
        time += chosen.choice((0, 1, 1, 7))
        found.append(
            InputRecord(b"k%d" % key, b"v%d " % number + b"." * 60, time, key % PARTITIONS, (("n", b"%d" % number),))
        )
    return found


def said(records: Sequence[OutputRecord]) -> dict[bytes | None, list[tuple[Any, ...]]]:
    """Return what the records of each key say, in order."""
    return {key: [each[1:] for each in records if each.key == key] for key in {each.key for each in records}}


def numbered(source: str, target: str, history: bool) -> Topology:
    """Number the records of each key."""
    builder = StreamsBuilder()
    stream = builder.stream_from_history(["/past"], source, 0, TEXTS) if history else builder.stream(source, TEXTS)
    counted = stream.group_by_key().count(materialized=Materialized.as_("counts")).to_stream()
    counted.map_values(str).to(target, produced=Produced.with_(key_serde=TEXT, value_serde=TEXT))
    return builder.build()


class Split:
    """The records of a topic; the first ones are also a history for another topic, which has the others."""

    def __init__(self, runner: SparkRunner, name: Callable[[str], str], seed: int, before: int = 0) -> None:
        """before: how many records of the history the other topic still has."""
        self.runner = runner
        self.whole, self.live, self.expected, self.target = (name(each) for each in ("whole", "live", "expected", "to"))
        runner.create_topics(dict.fromkeys((self.whole, self.live, self.expected, self.target), PARTITIONS))
        records = records_of(seed, 120)
        self.past, self.present = records[:80], records[80:]
        runner.write(self.whole, records)
        kept = self.past[len(self.past) - before :]
        runner.write(self.live, [*kept, *self.present])
        self.end = [sum(each.partition == number for each in kept) for number in range(PARTITIONS)]

    def store(self, config: StreamsConfig, seed: int = 0) -> None:
        """Copy the history. Its times are in no order; rows of one time keep theirs, as those of a DataFrame do."""
        times = sorted({each.timestamp for each in self.past})
        random.Random(seed).shuffle(times)
        rows = [each for time in times for each in self.past if each.timestamp == time]
        store_history(config, self.live, rows, self.end)


@pytest.mark.parametrize(("seed", "execution"), first_on_kafka([(0, "auto"), (1, "record"), (2, "auto")]))
def test_a_history_and_its_topic_are_read_like_one_topic_whatever_fails_when(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    crashes: Callable[..., Crashes],
    seed: int,
    execution: str,
) -> None:
    split = Split(spark_runner, unique_name, seed, before=seed * 7)
    whole = spark_runner.config(f"{application}-whole", SMALL)
    InlineQuery(numbered(split.whole, split.expected, history=False), whole, spark_runner.admin).run_to_end()

    config = spark_runner.config(application, {**SMALL, "penstock.execution": execution})
    split.store(config, seed)
    query = InlineQuery(numbered(split.live, split.target, history=True), config, spark_runner.admin)
    installed = crashes(seed, 0.05, 20)
    run_to_end_over_kills(query)
    assert sum(installed.struck.values()) >= 2
    assert query.epochs > 3, "history and topic did not take several epochs"
    written = said(spark_runner.read(split.target))
    assert written == said(spark_runner.read(split.expected))
    assert sum(map(len, written.values())) == 120
    by_key = (spark_runner.store(each, "counts") for each in (config, whole))
    assert next(by_key) == next(by_key)


@pytest.mark.one_broker
@pytest.mark.parametrize("point", crashpoints.POINTS)
def test_a_kill_in_the_epoch_of_the_change_over_loses_and_repeats_nothing(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    crashes: Callable[..., Crashes],
    point: str,
) -> None:
    split = Split(spark_runner, unique_name, seed=5, before=10)
    config = spark_runner.config(application)
    split.store(config)
    query = InlineQuery(numbered(split.live, split.target, history=True), config, spark_runner.admin)
    first = query.description.histories[split.live].first
    assert query.description.begin[split.live] == list(first)
    assert min(first) < 0, "the history has more records than the topic had before it"
    crashes(at=point)  # everything fits into one epoch, which reads both sides of the change-over
    run_to_end_over_kills(query)
    written = said(spark_runner.read(split.target))
    counts = {key: sum(each.key == key for each in [*split.past, *split.present]) for key in {b"k1", b"k4"}}
    for key, count in counts.items():
        values = [int(value) for _, value, *_ in written[key]]
        assert values == list(range(1, count + 1))
    committed = spark_runner.manifest(config).offsets[split.live]
    assert committed == [
        spark_runner.admin.end_offsets(query.description.inputs)[tp] for tp in query.description.inputs
    ]


@pytest.mark.one_broker
def test_a_topic_that_grows_after_the_history_is_read_on(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    split = Split(spark_runner, unique_name, seed=6)
    config = spark_runner.config(application, SMALL)
    split.store(config)
    topology = numbered(split.live, split.target, history=True)
    query = InlineQuery(topology, config, spark_runner.admin)
    query.run_to_end()
    spark_runner.write(split.live, [InputRecord(b"k1", b"new", 9_999, 1)])
    query.restart()  # with the history still in the program
    query.run_to_end()
    without = numbered(split.live, split.target, history=False)
    query.change(without)
    spark_runner.write(split.live, [InputRecord(b"k1", b"newer", 10_000, 1)])
    query.run_to_end()
    count = sum(each.key == b"k1" for each in [*split.past, *split.present]) + 2
    values = [int(each.value or b"") for each in spark_runner.read(split.target) if each.key == b"k1"]
    assert values == list(range(1, count + 1))


@pytest.mark.one_broker
def test_a_program_without_its_history_reads_the_begun_one_to_its_end(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    split = Split(spark_runner, unique_name, seed=7)
    config = spark_runner.config(application, SMALL)
    split.store(config)
    query = InlineQuery(numbered(split.live, split.target, history=True), config, spark_runner.admin)
    assert query.epoch()
    read = len(spark_runner.read(split.target))
    assert 0 < read < 80
    query.change(numbered(split.live, split.target, history=False))
    query.run_to_end()
    assert len(spark_runner.read(split.target)) == 120


@pytest.mark.one_broker
def test_a_history_is_read_in_the_order_of_time_over_its_partitions(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    live, target = unique_name("live"), unique_name("to")
    spark_runner.create_topics({live: 2, target: 2})
    # one partition has as many records of one day as the other has of a hundred
    quick = [InputRecord(b"a", b"x" * 50, 1_000 + number, 0) for number in range(100)]
    slow = [InputRecord(b"b", b"x" * 50, 1_000 + 100 * number, 1) for number in range(100)]
    config = spark_runner.config(application, SMALL)
    store_history(config, live, [*slow, *quick], [0, 0])
    query = InlineQuery(numbered(live, target, history=True), config, spark_runner.admin)
    reached: list[tuple[int, int]] = []
    while query.epoch():
        written = spark_runner.read(target)
        times = [max((each.timestamp for each in written if each.key == key), default=0) for key in (b"a", b"b")]
        reached.append((times[0], times[1]))
    behind = [slow_ms for quick_ms, slow_ms in reached if quick_ms < 1_099]
    assert len(behind) > 2
    assert max(behind[1:]) <= 1_400, "one partition was read far ahead of the other"


@pytest.mark.one_broker
def test_a_joined_topic_is_read_with_the_history_in_the_order_of_time(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    live, prices, target = unique_name("live"), unique_name("prices"), unique_name("to")
    spark_runner.create_topics({live: 1, prices: 1, target: 1})
    orders = [InputRecord(b"k", b"o%d" % number, 1_000 + 10 * number) for number in range(100)]
    spark_runner.write(prices, [InputRecord(b"k", b"p%d" % number, 995 + 10 * number) for number in range(100)])
    spark_runner.write(live, orders[60:])
    config = spark_runner.config(application, SMALL)
    store_history(config, live, orders[:60], [0])
    builder = StreamsBuilder()
    table = builder.table(prices, Consumed.with_(key_serde=TEXT, value_serde=TEXT))
    stream = builder.stream_from_history(["/past"], live, {0: 0}, TEXTS)
    stream.join(table, lambda order, price: f"{order} {price}").to(
        target, produced=Produced.with_(key_serde=TEXT, value_serde=TEXT)
    )
    query = InlineQuery(builder.build(), config, spark_runner.admin)
    query.run_to_end()
    assert query.epochs > 2
    assert [each.value for each in spark_runner.read(target)] == [b"o%d p%d" % (n, n) for n in range(100)]


@pytest.mark.one_broker
def test_rows_are_deleted_when_no_kept_manifest_is_inside_the_history(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    split = Split(spark_runner, unique_name, seed=8)
    config = spark_runner.config(application, {"penstock.manifests.retained": 2})
    split.store(config)
    files = histories_of(config.checkpoint_directory()).below(split.live)
    query = InlineQuery(numbered(split.live, split.target, history=True), config, spark_runner.admin)
    query.run_to_end()
    assert any(each.is_directory for each in files.find(""))
    for number in range(4):
        spark_runner.write(split.live, [InputRecord(b"k1", b"new", 20_000 + number, 1)])
        query.run_to_end()
    assert [each.name for each in files.find("")] == ["index"]
    query.restart()
    spark_runner.write(split.live, [InputRecord(b"k1", b"new", 30_000, 1)])
    query.run_to_end()
    assert len(spark_runner.read(split.target)) == 125


@pytest.mark.one_broker
def test_a_missing_chunk_ends_the_query_and_names_the_file(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    split = Split(spark_runner, unique_name, seed=9)
    config = spark_runner.config(application)
    split.store(config)
    lost = next(Path(config.checkpoint_directory(), "histories", split.live, "1").iterdir())
    lost.unlink()
    query = InlineQuery(numbered(split.live, split.target, history=True), config, spark_runner.admin)
    error = failure_of(query.run_to_end)
    assert isinstance(error, TaskCorruptedError)
    assert f"{lost.name} cannot be used: it is missing, and the history of topic {split.live} names it" in str(error)


@pytest.mark.one_broker
def test_a_history_comes_before_everything_that_was_read(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    split = Split(spark_runner, unique_name, seed=10)
    config = spark_runner.config(application)
    query = InlineQuery(numbered(split.live, split.target, history=False), config, spark_runner.admin)
    query.run_to_end()
    with pytest.raises(StreamsError, match=rf"source in, created at .*test_histories.py:\d+.*stream\('{split.live}'\)"):
        query.change(numbered(split.live, split.target, history=True))


@pytest.mark.one_broker
def test_a_history_of_a_failed_start_is_not_read_once_its_topic_is(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    split = Split(spark_runner, unique_name, seed=14, before=30)
    config = spark_runner.config(application, SMALL)
    split.store(config)  # a sink topic was missing, say, and then the user took the history out
    query = InlineQuery(numbered(split.live, split.target, history=False), config, spark_runner.admin)
    assert query.epoch()
    query.restart()
    query.run_to_end()
    assert len(spark_runner.read(split.target)) == 70
    with pytest.raises(StreamsError, match="a history comes first"):
        query.change(numbered(split.live, split.target, history=True))


@pytest.mark.one_broker
def test_changelog_topics_and_savepoints_wait_for_the_end_of_a_history(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    split = Split(spark_runner, unique_name, seed=11)
    topology = numbered(split.live, split.target, history=True)
    with_changelogs = spark_runner.config(application, {**SMALL, "penstock.changelog.topics": True})
    split.store(with_changelogs)
    with pytest.raises(ConfigError, match=f"The history of topic {split.live} is not read yet"):
        InlineQuery(topology, with_changelogs, spark_runner.admin)
    query = InlineQuery(topology, spark_runner.config(application, SMALL), spark_runner.admin)
    assert query.epoch()
    checkpoint, target = Checkpoint(with_changelogs.checkpoint_directory()), Checkpoint(str(tmp_path / "savepoint"))
    with pytest.raises(StreamsError, match=f"The history of topic {split.live} is not read to its end yet"):
        savepoint.take(checkpoint, target)
    query.run_to_end()
    assert savepoint.take(checkpoint, target).epoch == query.epochs


@pytest.mark.one_broker
def test_tools_see_the_change_over_as_the_position_inside_a_history(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    split = Split(spark_runner, unique_name, seed=12, before=20)
    config = spark_runner.config(application, SMALL)
    split.store(config)
    query = InlineQuery(numbered(split.live, split.target, history=True), config, spark_runner.admin)
    assert query.epoch()
    assert query.epoch()
    query.close()  # which commits the positions that wait
    inputs = list(query.description.inputs)
    told = spark_runner.admin.committed_offsets(application, inputs)
    assert {tp: each.offset for tp, each in told.items()} == dict(zip(inputs, split.end, strict=True))


@pytest.mark.one_broker
def test_epochs_inside_a_history_are_replayed(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    split = Split(spark_runner, unique_name, seed=13, before=10)
    config = spark_runner.config(application, SMALL)
    split.store(config)
    topology = numbered(split.live, split.target, history=True)
    query = InlineQuery(topology, config, spark_runner.admin)
    query.run_to_end()
    query.stop()
    built = topology.build(application)
    for epoch in range(1, query.epochs + 1):
        replay = EpochReplay(built, config, tmp_path / str(epoch), epoch).run()
        assert (replay.is_same, replay.differences) == (True, ())
