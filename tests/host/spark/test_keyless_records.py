"""Where records without a key go on Spark: the same partitions whatever falls on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import OutputRecord, lines
from tests.host.test_keyless_records import words_without_keys
from tests.host.test_topologies import TEXT, random_lines
from tests.support.brokers import RunningBroker


@pytest.mark.partitions(3, 4)
def test_records_without_a_key_go_to_the_same_partitions_after_crashes(
    spark_runner: SparkRunner,
    broker: RunningBroker,
    unique_name: Callable[[str], str],
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
) -> None:
    source, target = topics
    spark_runner.write(source, lines(random_lines(3, 60), partitions=2))
    written: dict[str, list[OutputRecord]] = {}
    for execution in ("auto", "crashed"):
        own = target if execution == "auto" else unique_name(execution)
        if own != target:
            spark_runner.create_topics({own: 4})
        values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
        config = spark_runner.config(unique_name("app"), values)
        query = InlineQuery(words_without_keys(source, own), config, spark_runner.admin)
        if execution == "crashed":
            crashes(5, 0.04, 30)
        run_to_end_over_kills(query)
        written[execution] = spark_runner.read(own)
    assert {record.partition for record in written["auto"]} == {0, 1, 2, 3}
    places = {name: {(each.partition, each.value, each.timestamp) for each in all_} for name, all_ in written.items()}
    assert places["auto"] == places["crashed"]
