"""Where records without a key go: to all partitions of a topic, and the same ones whichever execution runs and whatever
falls on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import StreamsBuilder, Topology
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import OutputRecord, SparkRunner, lines
from tests.host.spark.test_topologies import TEXT, random_lines
from tests.support.brokers import RunningBroker


def words_without_keys(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(source, consumed=TEXT).map(lambda key, line: (None, line.upper()))
    words.to(target)
    return builder.build()


@pytest.mark.partitions(3, 4)
def test_records_without_a_key_go_to_all_partitions_and_the_same_after_crashes(
    spark_runner: SparkRunner,
    broker: RunningBroker,
    unique_name: Callable[[str], str],
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
) -> None:
    source, target = topics
    spark_runner.write(source, lines(random_lines(3, 60), partitions=2))
    written: dict[str, list[OutputRecord]] = {}
    for execution in ("auto", "record", "crashed"):
        own = target if execution == "auto" else unique_name(execution)
        if own != target:
            spark_runner.create_topics({own: 4})
        values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
        values |= {"penstock.execution": "record" if execution == "record" else "auto"}
        config = spark_runner.config(unique_name("app"), values)
        query = InlineQuery(words_without_keys(source, own), config, spark_runner.admin)
        if execution == "crashed":
            crashes(5, 0.04, 30)
        run_to_end_over_kills(query)
        written[execution] = spark_runner.read(own)
    assert {record.partition for record in written["auto"]} == {0, 1, 2, 3}
    places = {name: {(each.partition, each.value, each.timestamp) for each in all_} for name, all_ in written.items()}
    assert places["auto"] == places["record"] == places["crashed"]
