"""Exactly once under crashes at every named point, simulated in one process: driver and workers crash, a new driver
continues.

The tests with real processes are elsewhere; these are quick, so they try many orders of crashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.driver.resetting import reset_application
from penstock.state.segment_log import log_from_json
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, lines
from tests.host.test_topologies import TEXT, assert_counted_one_by_one, final, number, random_lines, word_count
from tests.support.brokers import first_on_kafka


def count_random_words(runner: SparkRunner, source: str, seed: int, run_to_end: Callable[[], None]) -> Counter[str]:
    """Write random lines to `source` in six parts, and run to the end after each; return the counts of all words."""
    expected: Counter[str] = Counter()
    for part in range(6):
        texts = random_lines(seed * 100 + part, 20)
        expected.update(word for line in texts for word in line.split())
        runner.write(source, lines(texts, partitions=3))
        run_to_end()
    return expected


def assert_counts(runner: SparkRunner, config: StreamsConfig, target: str, expected: Counter[str]) -> None:
    """Compare the store of a word count and the last counts in `target` with those expected; each count is there
    once."""
    store = runner.store(config, "counts")
    assert {key.decode(): number(value[8:]) for key, value in store.items()} == expected
    records = runner.read(target)
    assert final(records) == expected
    assert_counted_one_by_one(records)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "uncommitted_bytes"),
    [*first_on_kafka([(seed, None) for seed in range(3)]), pytest.param(3, 1024, marks=pytest.mark.one_broker)],
)
def test_counts_are_exact_whatever_fails_when(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    seed: int,
    uncommitted_bytes: int | None,
) -> None:
    spilling = {} if uncommitted_bytes is None else {"penstock.uncommitted.max.bytes": uncommitted_bytes}
    config = spark_runner.config(application, {"penstock.manifests.retained": 3, **spilling})
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    installed = crashes(seed, 0.04, 30)
    expected = count_random_words(spark_runner, topics[0], seed, lambda: run_to_end_over_kills(query))
    assert sum(installed.struck.values()) >= 5
    assert_counts(spark_runner, config, topics[1], expected)


def test_changes_beyond_their_bound_are_written_inside_the_epoch(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    source_topic, target = topics
    config = spark_runner.config(application, {"penstock.uncommitted.max.bytes": 1024, "penstock.execution": "record"})
    query = InlineQuery(word_count(source_topic, target), config, spark_runner.admin)
    expected: Counter[str] = Counter()
    for part in range(3):
        texts = [" ".join(f"w{(part * 1000 + line * 3 + word) % 30000}" for word in range(5)) for line in range(6000)]
        expected.update(word for line in texts for word in line.split())
        spark_runner.write(source_topic, lines(texts, partitions=3))
        query.run_to_end()
        entries = spark_runner.manifest(config).tasks.values()
        commits = [log_from_json(dict(entry.segments)).last_commit() for entry in entries]
        assert max(map(len, commits)) > 1, "no commit has more than one segment"
    assert final(spark_runner.read(target)) == expected
    store = spark_runner.store(config, "counts")
    assert {key.decode(): number(value[8:]) for key, value in store.items()} == expected
    scratch = Path(config["state.dir"]) / application / "uncommitted"
    assert not list(scratch.rglob("*.mdb"))


def test_a_lost_base_is_rebuilt_from_the_segments(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    for part in range(12):  # enough for segments to be merged
        spark_runner.write(topics[0], lines(["a b", "b c", f"d{part}"], partitions=3))
        query.run_to_end()
    bases = Path(config["state.dir"]) / application / "bases"
    for file in bases.rglob("data.mdb"):
        file.unlink()
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    counts = final(spark_runner.read(topics[1]))
    assert counts == {"a": 13, "b": 24, "c": 12, **{f"d{part}": 1 for part in range(12)}}


def test_a_base_of_an_earlier_life_is_not_believed(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    spark_runner.write(topics[0], lines(["a", "a"]))
    for life in ("first", "second"):
        values = {"penstock.checkpoint.dir": str(tmp_path / life), "processing.guarantee": "at_least_once"}
        config = spark_runner.config(application, values)
        InlineQuery(word_count(*topics), config, spark_runner.admin).run_to_end()
        assert spark_runner.store(config, "counts")[b"a"][8:] == (2).to_bytes(8, "big")


def test_an_older_driver_cannot_commit(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> None:
    config = spark_runner.config(application)
    older = InlineQuery(word_count(*topics), config, spark_runner.admin)
    older.epoch()
    newer = InlineQuery(word_count(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a"]))
    newer.run_to_end()
    spark_runner.write(topics[0], lines(["a"]))
    failure = failure_of(older.run_to_end)
    assert type(failure).__name__ == "TaskMigratedError"
    newer.run_to_end()
    assert final(spark_runner.read(topics[1]))["a"] == 2


def failing_in_the_second_level(source_topic: str, target: str) -> Topology:
    def fail(_: str, count: int) -> str:
        if count == 3:
            raise ValueError("three")
        return str(count)

    builder = StreamsBuilder()
    words = builder.stream(source_topic, consumed=TEXT).group_by(lambda _, value: value)
    words.count(materialized=Materialized.as_("counts")).to_stream().map_values(fail).to(target)
    return builder.build()


def test_an_epoch_with_an_error_in_a_later_level_writes_nothing(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a", "b", "c", "a", "a"], partitions=3))
    topology = failing_in_the_second_level(*topics)
    values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
    config = spark_runner.config(application, values)
    query = InlineQuery(topology, config, spark_runner.admin)
    failure = failure_of(query.run_to_end)
    assert isinstance(failure, StreamsError)
    assert "ValueError: three" in "\n".join(failure.__notes__)
    assert spark_runner.read(topics[1]) == []
    assert Checkpoint(config.checkpoint_directory()).last_epoch() == 0


def failing_in_the_first_level(source_topic: str, target: str) -> Topology:
    def fail(value: str) -> str:
        if value == "wrong":
            raise ValueError("wrong")
        return value

    builder = StreamsBuilder()
    words = builder.stream(source_topic, consumed=TEXT).map_values(fail).group_by(lambda _, value: value)
    words.count(materialized=Materialized.as_("counts")).to_stream().map_values(str).to(target)
    return builder.build()


def test_an_error_is_reported_and_not_that_later_levels_lack_what_the_failed_task_would_have_sent(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
    config = spark_runner.config(application, values)
    words = [InputRecord(None, word.encode(), 1_000, n % 3) for n, word in enumerate("abcdefghi")]
    spark_runner.write(topics[0], [*words, InputRecord(None, b"wrong", 1_000, 1)])
    query = InlineQuery(failing_in_the_first_level(*topics), config, spark_runner.admin)
    failure = failure_of(query.run_to_end)
    assert "ValueError: wrong" in "\n".join(failure.__notes__)


def reading(builder: StreamsBuilder, source: str, target: str) -> None:
    builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long(), name="read")).to(target)


def writing(builder: StreamsBuilder, source: str, target: str) -> None:
    numbers = builder.stream(source, TEXT).map_values(lambda value: 7 if value == "bad" else value)
    numbers.to(target, Produced.with_(value_serde=Serdes.string(), name="write"))


@pytest.mark.one_broker
@pytest.mark.parametrize(
    ("program", "what"),
    [
        (reading, "cannot read the value, with LongSerde, of the record"),
        (
            writing,
            "cannot write the value to topic {target}: StringSerde was given int 7, for the input record",
        ),
    ],
    ids=["reading", "writing"],
)
def test_a_record_that_a_serde_cannot_read_or_write_is_named_to_the_program(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    program: Callable[[StreamsBuilder, str, str], None],
    what: str,
) -> None:
    source, target = topics
    spark_runner.write(source, [InputRecord(None, each, 1_000, 1) for each in (b"12345678", b"87654321", b"bad")])
    builder = StreamsBuilder()
    program(builder, source, target)
    query = InlineQuery(builder.build(), spark_runner.config(application), spark_runner.admin)
    failure = failure_of(query.run_to_end)
    told = "\n".join([str(failure), *failure.__notes__])
    assert f"{what.format(target=target)} at topic {source}, partition 1, offset 2" in told
    assert f"(created at {__file__}:" in told


def test_an_application_that_is_reset_starts_over_in_processes_that_knew_it(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b", "b"], partitions=3))
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    query.run_to_end()
    reset_application(word_count(*topics).build(application), config, spark_runner.admin)
    query.restart()
    query.run_to_end()
    assert {key: number(value[8:]) for key, value in spark_runner.store(config, "counts").items()} == {b"a": 1, b"b": 2}
