"""Dropped records in a topic on each host: each once, with its origin, over restarts; and back by a redrive."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from penstock import (
    Consumed,
    JoinWindows,
    Materialized,
    Produced,
    Serdes,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from penstock.plan.partitioning import partition_for
from penstock.tools.transfers.redrive import RedriveOptions, redrive
from tests.host.support import WITH_PROCESSES, InputRecord, OutputRecord, Program, Runner

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

STRING, LONG = Serdes.string(), Serdes.long()
TEXT = Consumed.with_(STRING, STRING)
PARTITIONS = 2
ROUNDS = 4
VALUES = {"default.key.serde": STRING, "default.value.serde": STRING}


def counting(prefix: str) -> Topology:
    """Counts in windows by key, and by value after a repartition."""
    windows = TimeWindows.of_size_and_grace(timedelta(milliseconds=500), timedelta(milliseconds=100))
    builder = StreamsBuilder()
    stream = builder.stream(f"{prefix}-in", TEXT)
    for name, grouped in (("keys", stream.group_by_key()), ("values", stream.group_by(lambda key, value: value))):
        counts = grouped.windowed_by(windows).count(Materialized.as_(name)).late_to(f"{prefix}-late-{name}")
        results = counts.to_stream().map(lambda key, count: (f"{key.key}@{key.window.start}", count))
        results.to(f"{prefix}-{name}", Produced.with_(STRING, LONG))
    return builder.build()


def rounds(seed: int) -> list[list[InputRecord]]:
    """Return records by time, some of which come late, and some without a key or value."""
    chosen = random.Random(seed)
    found: list[list[InputRecord]] = []
    for number in range(ROUNDS):
        records = []
        for step in range(60):
            key = chosen.choice((b"a", b"b", b"c", None))
            value = chosen.choice((b"x", b"y", b"z", None))
            time = 10_000 + 1_500 * number + 25 * step - chosen.choice((0, 0, 0, 40, 900, 2_000))
            place = 0 if key is None else partition_for(key, PARTITIONS)
            records.append(InputRecord(key, value, time, place, (("number", b"%d" % (60 * number + step)),)))
        found.append(records)
    return found


def total(records: list[OutputRecord]) -> int:
    """Return the sum of the last counts of all keys and windows."""
    return sum({record.key: int.from_bytes(record.value or b"", "big") for record in records}.values())


def origin(record: OutputRecord) -> tuple[str, int]:
    said = dict(record.headers)
    return (said["penstock.dropped.topic"] or b"").decode(), int(said["penstock.dropped.partition"] or b"-1")


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_counted_and_dropped_records_are_all_records_over_restarts(
    runner: Runner, start: Callable[..., Program], unique_name: Callable[[str], str], execution: str
) -> None:
    prefix = unique_name(execution)
    topics = [f"{prefix}-{name}" for name in ("in", "keys", "values", "late-keys", "late-values")]
    runner.create_topics(dict.fromkeys(topics, PARTITIONS))
    config = {**VALUES, "penstock.execution": execution, "processing.guarantee": "exactly_once_v2"}
    program = start(counting(prefix), runner.config(prefix, config))
    written = [record for records in rounds(seed=5) for record in records]
    for records in rounds(seed=5):
        runner.write(f"{prefix}-in", records)
        program.run_to_end()
        program.restart()
    late = runner.read(f"{prefix}-late-keys")
    assert total(runner.read(f"{prefix}-keys")) + len(late) == len(written)
    numbers = Counter(record.headers[0] for record in late)
    assert numbers.most_common(1)[0][1] == 1
    originals = {record.headers[0]: record for record in written}
    for record in late:
        source = originals[record.headers[0]]
        assert (record.key, record.value, record.timestamp) == (source.key, source.value, source.timestamp)
        assert origin(record) == (f"{prefix}-in", source.partition)
    reasons = Counter(dict(record.headers)["penstock.dropped.reason"] for record in late)
    assert set(reasons) == {b"late", b"null-key"}
    late_values = runner.read(f"{prefix}-late-values")
    assert total(runner.read(f"{prefix}-values")) + len(late_values) == len(written)
    keyless = [record for record in late_values if record.key is None or record.value is None]
    assert {origin(record)[0] for record in keyless} == {f"{prefix}-in"}


def test_late_records_of_a_versioned_table_and_a_join_are_written_and_redriven(
    runner: Runner, start: Callable[..., Program], unique_name: Callable[[str], str]
) -> None:
    prefix = unique_name("late")
    builder = StreamsBuilder()
    versions = Materialized.as_(Stores.persistent_versioned_key_value_store("versions", 1_000))
    builder.stream(f"{prefix}-table", TEXT).to_table(materialized=versions).late_to(f"{prefix}-late")
    left, right = builder.stream(f"{prefix}-left", TEXT), builder.stream(f"{prefix}-right", TEXT)
    windows = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=1))
    left.join(right, lambda one, other: one + other, windows).late_to(f"{prefix}-late").to(f"{prefix}-out")
    names = ("table", "left", "right", "out", "late")
    runner.create_topics({f"{prefix}-{name}": 1 for name in names})
    program = start(builder.build(), runner.config(prefix, VALUES))
    for name in ("table", "right"):
        runner.write(f"{prefix}-{name}", [InputRecord(b"k", b"new", 90_000_000), InputRecord(b"k", b"old", 5)])
    program.run_to_end()
    program.restart()
    late = runner.read(f"{prefix}-late")
    assert sorted(origin(record)[0] for record in late) == [f"{prefix}-right", f"{prefix}-table"]
    assert {(record.key, record.value, record.timestamp) for record in late} == {(b"k", b"old", 5)}
    done = redrive(runner.config(prefix, VALUES), f"{prefix}-late", RedriveOptions())
    assert done.records == 2
    assert [record.value for record in runner.read(f"{prefix}-right")] == [b"new", b"old", b"old"]
