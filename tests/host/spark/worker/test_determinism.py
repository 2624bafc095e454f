"""Functions that are not deterministic are found by running epochs twice; deterministic ones pass and count once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from penstock import Grouped, Materialized, StreamsBuilder, Topology
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, lines
from tests.host.test_topologies import TEXT, TEXT_OUT, final, word_count

CHECKED = {"penstock.determinism.check.epochs": 1}
_calls: Iterator[int] = itertools.count()


pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(1, 1)]


def numbered(_: object) -> str:
    return str(next(_calls))


def numbers_out(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).map_values(numbered).to(target, produced=TEXT_OUT)
    return builder.build()


def numbers_kept(source: str) -> Topology:
    builder = StreamsBuilder()
    stored = Materialized.as_("numbers").with_value_serde(TEXT.value_serde)
    builder.stream(source, consumed=TEXT).group_by_key().aggregate(
        lambda: "", lambda _key, value, _before: numbered(value), materialized=stored
    )
    return builder.build()


def numbers_carried(source: str, target: str) -> Topology:
    """A sub-topology that feeds itself with what differs, and writes what does not."""
    builder = StreamsBuilder()
    texts = builder.stream(source, consumed=TEXT)
    pairs = Grouped.with_(key_serde=TEXT.key_serde, value_serde=TEXT.value_serde).with_name("numbers")
    counted = texts.map_values(numbered).group_by(lambda _, value: value, pairs).count()
    counted.to_stream().map_values(str).merge(texts).to(target, produced=TEXT_OUT)
    return builder.build()


def test_output_that_differs_names_task_topic_and_node(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    spark_runner.write(topics[0], lines(["x"]))
    query = InlineQuery(numbers_out(*topics), spark_runner.config(application, CHECKED), spark_runner.admin)
    error = failure_of(query.run_to_end)
    assert type(error).__name__ == "NonDeterministicError"
    assert "Task 0_0" in str(error)
    assert f"record 0 for topic {topics[1]}, partition 0 (node KSTREAM-SINK-0000000002)" in str(error)
    assert spark_runner.read(topics[1]) == []


def test_state_that_differs_names_the_store(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    spark_runner.write(topics[0], [InputRecord(b"k", b"x", 1_000)])
    query = InlineQuery(numbers_kept(topics[0]), spark_runner.config(application, CHECKED), spark_runner.admin)
    assert "store numbers (node KSTREAM-AGGREGATE-0000000001) got b'k' = " in str(failure_of(query.run_to_end))


def test_rows_for_the_next_epoch_that_differ_name_their_topic(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    spark_runner.write(topics[0], lines(["x"]))
    query = InlineQuery(numbers_carried(*topics), spark_runner.config(application, CHECKED), spark_runner.admin)
    expected = f"carries to the next epoch differ, for topics {application}-numbers-repartition"
    assert expected in str(failure_of(query.run_to_end))


def test_only_the_epochs_of_the_sample_run_twice(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application, {"penstock.determinism.check.epochs": 3})
    query = InlineQuery(numbers_out(*topics), config, spark_runner.admin)
    for _ in range(2):
        spark_runner.write(topics[0], lines(["x"]))
        assert query.epoch()
    spark_runner.write(topics[0], lines(["x"]))
    assert "epoch 3" in str(failure_of(query.run_to_end))


def test_deterministic_functions_pass_and_write_once(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    query = InlineQuery(word_count(*topics), spark_runner.config(application, CHECKED), spark_runner.admin)
    for texts in (["a b", "b"], ["a"]):
        spark_runner.write(topics[0], lines(texts))
        query.run_to_end()
    assert final(spark_runner.read(topics[1])) == {"a": 2, "b": 2}
    assert len(spark_runner.read(topics[1])) == 4
