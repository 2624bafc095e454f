"""Programs that change between runs: what becomes of their state, also where something falls at any line of the change.

Played in one process.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Materialized, StreamsBuilder, StreamsConfig, TableJoined, TimeWindows, Topology
from penstock.errors import IncompatibleCheckpointError
from penstock.host import crashpoints
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.plan.partitioning import partition_for
from tests.host.spark.crashes import ALL_POINTS, Crashes, KilledError
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, lines
from tests.host.test_changes import PAIRS, counting, together
from tests.host.test_topologies import (
    STRING,
    TEXT,
    TEXT_OUT,
    assert_counted_one_by_one,
    final,
    number,
    random_lines,
)
from tests.support.brokers import first_on_kafka


def counts(spark_runner: SparkRunner, config: StreamsConfig, store: str) -> dict[str, int]:
    return {key.decode(): number(value[8:]) for key, value in spark_runner.store(config, store).items()}


def removed(config: StreamsConfig) -> set[str]:
    """Return the stores that are kept without being in the program."""
    metadata = Checkpoint(config.checkpoint_directory()).read_metadata()
    assert metadata is not None
    return set(metadata.removed)


@pytest.mark.one_broker
def test_a_change_is_logged_and_begins_the_next_version_of_the_checkpoint(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(counting(*topics, "counts"), config, spark_runner.admin)
    query.run_to_end()
    before = spark_runner.manifest(config)
    query.change(counting(*topics, "counts", "again", extra=2))
    assert "store counts keeps its state" in caplog.text
    assert "store again is new and starts empty" in caplog.text
    query.run_to_end()
    after = spark_runner.manifest(config)
    assert after.epoch > before.epoch
    assert after.query_id != before.query_id
    plans = Path(config.checkpoint_directory()) / "plans"
    assert len(list(plans.iterdir())) == 1


@pytest.mark.one_broker
def test_a_removed_store_is_kept_beyond_the_manifests_of_its_version(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application, {"penstock.manifests.retained": 2})
    spark_runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    query = InlineQuery(counting(*topics, "counts", "other"), config, spark_runner.admin)
    query.run_to_end()
    query.change(counting(*topics, "counts"))
    for _ in range(4):  # until nothing of the life before is retained
        spark_runner.write(topics[0], lines(["a", "d"], partitions=3))
        query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 5, "b": 2, "c": 1, "d": 4}
    assert removed(config) == {"other"}
    query.change(counting(*topics, "counts", "third"))
    query.run_to_end()
    query.change(counting(*topics, "other", "counts"))
    spark_runner.write(topics[0], lines(["a"], partitions=3))
    query.run_to_end()
    assert counts(spark_runner, config, "other") == {"a": 2, "b": 2, "c": 1}
    assert counts(spark_runner, config, "counts") == {"a": 6, "b": 2, "c": 1, "d": 4}
    assert removed(config) == {"third"}


@pytest.mark.one_broker
def test_a_task_that_comes_back_to_its_number_keeps_its_segments(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application, {"penstock.manifests.retained": 3})
    spark_runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    query = InlineQuery(counting(*topics, "counts"), config, spark_runner.admin)
    query.run_to_end()
    query.change(counting(*topics, "before", "counts"))
    query.epoch()
    query.change(counting(*topics, "counts"))
    bases = Path(config["state.dir"]) / application / "bases"
    for _ in range(5):  # until the manifest after which the task left is deleted
        spark_runner.write(topics[0], lines(["x"]))
        query.run_to_end()
    for file in bases.rglob("data.mdb"):
        file.unlink()  # so that all segments are read
    spark_runner.write(topics[0], lines(["a b c"]))
    query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 2, "b": 3, "c": 2, "x": 5}


@pytest.mark.one_broker
def test_another_layout_of_a_store_is_refused_with_what_to_do(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(counting(*topics, "counts"), config, spark_runner.admin)
    query.run_to_end()
    builder = StreamsBuilder()
    words = builder.stream(topics[0], consumed=TEXT).group_by(lambda _, word: word, grouped=PAIRS.with_name("counts"))
    words.windowed_by(_windows()).count(materialized=Materialized.as_("counts"))
    with pytest.raises(IncompatibleCheckpointError, match="penstock savepoint drop FILE counts"):
        query.change(builder.build())
    query.change(counting(*topics, "counts"))
    assert spark_runner.manifest(config).epoch == 1


def _windows() -> TimeWindows:
    return TimeWindows.of_size_with_no_grace(10)


def orders(source: str, others: str, target: str, *extra: str) -> Topology:
    """Orders joined with their customers by a foreign key, whose answers go back by the next epoch. extra: stores that
    count orders, in sub-topologies before the last."""
    builder = StreamsBuilder()
    left = builder.table(source, TEXT, Materialized.as_("orders"))
    for name in extra:
        by_value = left.to_stream().group_by(lambda _, value: value, grouped=PAIRS.with_name(name))
        by_value.count(materialized=Materialized.as_(name))
    joined = left.join(
        builder.table(others, TEXT, Materialized.as_("customers")),
        lambda order, name: f"{order}:{name}",
        foreign_key_extractor=lambda order: order,
        table_joined=TableJoined.as_("of"),
        materialized=Materialized.as_("joined").with_key_serde(STRING).with_value_serde(STRING),
    )
    joined.to_stream().to(target, produced=TEXT_OUT)
    return builder.build()


@pytest.mark.one_broker
def test_rows_on_their_way_are_handed_to_the_next_life(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
) -> None:
    topics = [unique_name(name) for name in ("orders", "customers", "out")]
    spark_runner.create_topics(dict(zip(topics, (3, 2, 1), strict=True)))
    config = spark_runner.config(application)

    def written(key: str, value: str, partitions: int, time: int) -> InputRecord:
        return InputRecord(key.encode(), value.encode(), time, partition_for(key.encode(), partitions))

    query = InlineQuery(orders(*topics), config, spark_runner.admin)
    spark_runner.write(topics[1], [written(f"c{n}", f"name{n}", 2, 1_000 + n) for n in range(5)])
    query.run_to_end()
    spark_runner.write(topics[0], [written(f"o{n}", f"c{n % 5}", 3, 2_000 + n) for n in range(30)])
    carried = 0
    for topology in (orders(*topics, "x"), orders(*topics, "y", "x"), orders(*topics)):
        query.epoch()
        carried += any(entry.carried for entry in spark_runner.manifest(config).tasks.values())
        query.change(topology)
    assert carried
    query.run_to_end()
    expected = {f"o{n}": f"c{n % 5}:name{n % 5}" for n in range(30)}
    found = spark_runner.store(config, "joined")
    assert {key.decode(): value[8:].decode() for key, value in found.items()} == expected


@pytest.mark.one_broker
def test_rows_on_their_way_to_a_topic_that_is_no_longer_read_are_reported(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics = [unique_name(name) for name in ("orders", "customers", "out")]
    spark_runner.create_topics(dict.fromkeys(topics, 1))
    config = spark_runner.config(application)
    query = InlineQuery(orders(*topics), config, spark_runner.admin)
    spark_runner.write(topics[1], [InputRecord(b"c1", b"name", 1_000)])
    query.run_to_end()
    spark_runner.write(topics[0], [InputRecord(b"o1", b"c1", 2_000)])
    assert query.epoch()
    assert any(entry.carried for entry in spark_runner.manifest(config).tasks.values())
    query.change(counting(topics[0], topics[2], "counts"))
    assert "Discarding 1 record of topic" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("point", crashpoints.TOPOLOGY_POINTS)
@pytest.mark.one_broker
def test_a_change_that_fails_at_any_line_has_happened_or_not(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    point: str,
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    query = InlineQuery(counting(*topics, "counts", "other"), config, spark_runner.admin)
    query.run_to_end()
    installed = crashes(at=point)
    changed = together(*topics, "other", "counts")
    with pytest.raises(KilledError):
        query.change(changed)
    assert installed.struck[point] == 1
    if point != "topology.after":  # the old program can still continue
        query.change(counting(*topics, "counts", "other"))
        spark_runner.write(topics[0], lines(["a"]))
        query.run_to_end()
        assert counts(spark_runner, config, "counts") == {"a": 2, "b": 2, "c": 1}
        installed.at = point
        with pytest.raises(KilledError):
            query.change(changed)
    else:
        spark_runner.write(topics[0], lines(["a"]))
    query.change(changed)
    spark_runner.write(topics[0], lines(["d"]))
    query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 2, "b": 2, "c": 1, "d": 1}
    assert counts(spark_runner, config, "other") == {"a": 2, "b": 2, "c": 1, "d": 1}


PROGRAMS = (
    lambda topics: counting(*topics, "counts"),
    lambda topics: counting(*topics, "counts", "other"),
    lambda topics: together(*topics, "counts", "third"),
    lambda topics: counting(*topics, "counts", extra=1),
    lambda topics: together(*topics, "counts"),
    lambda topics: counting(*topics, "counts", "third", "other"),
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_on_kafka(range(1)))
def test_counts_are_exact_while_the_program_changes_and_crashes(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    seed: int,
) -> None:
    config = spark_runner.config(application, {"penstock.manifests.retained": 3})
    chosen = random.Random(seed)
    query = InlineQuery(PROGRAMS[0](topics), config, spark_runner.admin)
    installed = crashes(seed, 0.03, points=ALL_POINTS)
    expected: Counter[str] = Counter()
    for part in range(8):
        texts = random_lines(seed * 100 + part, 12)
        expected.update(word for line in texts for word in line.split())
        spark_runner.write(topics[0], lines(texts, partitions=3))
        while True:
            try:
                if chosen.random() < 0.5:
                    query.change(chosen.choice(PROGRAMS)(topics))
                query.run_to_end()
                break
            except KilledError:
                restart(query, chosen.choice(PROGRAMS)(topics))
        if part == 6:
            installed.probability = 0
    assert sum(installed.struck.values()) >= 5
    assert counts(spark_runner, config, "counts") == expected
    records = spark_runner.read(topics[1])
    assert final(records) == expected
    assert_counted_one_by_one(records)


def restart(query: InlineQuery, topology: Topology) -> None:
    """Start again with another program, as often as it falls at the start."""
    while True:
        try:
            query.change(topology)
            return
        except KilledError:
            continue
