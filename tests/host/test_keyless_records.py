"""Records without a key go to the same partitions of a topic on each host, in both executions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import StreamsBuilder, Topology
from tests.host.support import Runner, lines
from tests.host.test_topologies import TEXT, random_lines


def words_without_keys(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(source, consumed=TEXT).map(lambda key, line: (None, line.upper()))
    words.to(target)
    return builder.build()


@pytest.mark.one_broker
def test_records_without_a_key_go_to_the_same_partitions_on_each_host(
    spark_runner: Runner, threads_runner: Runner, unique_name: Callable[[str], str]
) -> None:
    source = unique_name("in")
    spark_runner.create_topics({source: 3})
    spark_runner.write(source, lines(random_lines(3, 60), partitions=2))
    places = []
    for runner in (spark_runner, threads_runner):
        for execution in ("auto", "record"):
            target = unique_name(execution)
            runner.create_topics({target: 4})
            values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
            config = runner.config(unique_name("app"), {**values, "penstock.execution": execution})
            program = runner.program(words_without_keys(source, target), config)
            try:
                program.run_to_end()
            finally:
                program.close()
            places.append({(each.partition, each.value, each.timestamp) for each in runner.read(target)})
    assert {partition for partition, _, _ in places[0]} == {0, 1, 2, 3}
    assert places[1:] == places[:1] * 3
