"""Partitioners choose the partitions on each host, in both executions: by headers (KIP-1321), or several (KIP-837)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Produced, Repartitioned, StreamsBuilder, TableJoined
from penstock.record import Headers
from tests.host.support import WITH_PROCESSES, InputRecord, Program, Runner
from tests.host.test_topologies import TEXT

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

TEXTS = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.value_serde}


def named(topic: str, key: Any, value: Any, headers: Headers, number_of_partitions: int) -> set[int]:
    """Choose the partition that a header names."""
    return {int(dict(headers)["partition"] or 0) % number_of_partitions}


def next_to_named(topic: str, key: Any, value: Any, headers: Headers, number_of_partitions: int) -> set[int]:
    """Choose the partition after the one that a header names."""
    return {(int(dict(headers)["partition"] or 0) + 1) % number_of_partitions}


def even_or_odd(topic: str, key: Any, value: Any, number_of_partitions: int) -> set[int]:
    """Choose all partitions whose number is even, or odd, as the value."""
    return set(range(int(value) % 2, number_of_partitions, 2))


def sent_to(partition: int) -> Headers:
    return (("partition", str(partition).encode()),)


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_sinks_and_repartition_topics_get_the_partition_that_a_header_names(
    runner: Runner, start: Callable[..., Program], unique_name: Callable[[str], str], execution: str
) -> None:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 1, target: 4})
    written = [InputRecord(b"k", b"%d" % row, 1_000 + row, headers=sent_to(row)) for row in range(40)]
    runner.write(source, written)
    builder = StreamsBuilder()
    spread = builder.stream(source).repartition(
        Repartitioned.as_("spread").with_number_of_partitions(4).with_stream_partitioner(named)
    )
    counts = spread.group_by_key().count().to_stream().map_values(str)
    counts.to(target, Produced.with_(partitioner=next_to_named))
    values = {**TEXTS, "penstock.execution": execution, "statestore.cache.max.bytes": 0}
    start(builder.build(), runner.config(unique_name("app"), values)).run_to_end()
    found = sorted((each.partition, int(each.value or b"")) for each in runner.read(target))
    assert found == [(partition, count) for partition in range(4) for count in range(1, 11)]


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_record_goes_to_each_partition_that_the_partitioner_chooses(
    runner: Runner, start: Callable[..., Program], unique_name: Callable[[str], str], execution: str
) -> None:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 2, target: 4})
    rows = range(60)
    runner.write(source, [InputRecord(b"k%d" % row, b"%d" % row, 1_000 + row, row % 2) for row in rows])
    builder = StreamsBuilder()
    copied = builder.stream(source).repartition(
        Repartitioned.as_("copied").with_number_of_partitions(4).with_stream_partitioner(even_or_odd)
    )
    copied.to(target, Produced.with_(partitioner=even_or_odd))
    values = {**TEXTS, "penstock.execution": execution}
    start(builder.build(), runner.config(unique_name("app"), values)).run_to_end()
    found = sorted((each.partition, int(each.value or b"")) for each in runner.read(target))
    assert found == sorted((partition, row) for row in rows for partition in (row % 2, row % 2 + 2) for _ in range(2))


@pytest.mark.parametrize("partition", [0, 1])
def test_a_join_by_foreign_key_finds_the_row_in_the_partition_that_a_header_names(
    runner: Runner, start: Callable[..., Program], unique_name: Callable[[str], str], partition: int
) -> None:
    left, right, target = unique_name("left"), unique_name("right"), unique_name("out")
    runner.create_topics({left: 2, right: 2, target: 1})
    runner.write(right, [InputRecord(b"x", b"one", 1_000, partition, sent_to(partition))])
    runner.write(left, [InputRecord(b"a", b"x", 1_001, partition, sent_to(partition))])
    builder = StreamsBuilder()
    joined = builder.table(left).join(
        builder.table(right),
        lambda key, row: f"{key}-{row}",
        foreign_key_extractor=lambda value: value,
        table_joined=TableJoined.with_(named, named),
    )
    joined.to_stream().to(target)
    values = {**TEXTS, "statestore.cache.max.bytes": 0}
    program = start(builder.build(), runner.config(unique_name("app"), values))
    program.run_to_end()
    runner.write(right, [InputRecord(b"x", b"two", 1_002, partition, sent_to(partition))])
    program.run_to_end()
    assert [each.value for each in runner.read(target)] == [b"x-one", b"x-two"]
