"""Topologies of one to three levels on Spark, from topic to topic, on the embedded broker and on a real Kafka."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from penstock import (
    Consumed,
    Grouped,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    Topology,
)
from penstock.plan.partitioning import partition_for
from penstock.processor.api import ProcessorSupplier
from tests.host.support import WITH_ALL_SESSIONS_AT_LENGTH, InputRecord, OutputRecord, Runner, lines

pytestmark = WITH_ALL_SESSIONS_AT_LENGTH

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
TEXT_OUT = Produced.with_(key_serde=STRING, value_serde=STRING)
COUNT_OUT = Produced.with_(key_serde=STRING, value_serde=Serdes.long())


def word_count(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(source, consumed=TEXT)
        .flat_map_values(lambda line: line.split())
        .group_by(lambda _, word: word, grouped=Grouped.with_(key_serde=STRING, value_serde=STRING))
        .count(materialized=Materialized.as_("counts"))
        .to_stream()
        .to(target, produced=COUNT_OUT)
    )
    return builder.build()


def number(value: bytes | None) -> int:
    assert value is not None
    return int.from_bytes(value, "big")


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def final(records: list[OutputRecord]) -> dict[str | None, int]:
    return {text(record.key): number(record.value) for record in records}


def assert_counted_one_by_one(records: list[OutputRecord]) -> None:
    """Without a cache each record counts one more than the one of its key before."""
    seen: dict[bytes | None, int] = {}
    for record in records:
        assert number(record.value) == seen.get(record.key, 0) + 1, "a record twice, or one left out"
        seen[record.key] = number(record.value)


def random_lines(seed: int, count: int, words: int = 200) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(f"w{chosen.randrange(words)}" for _ in range(10)) for _ in range(count)]


def test_counts_words_over_several_epochs_and_restarts(
    runner: Runner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 3, target: 2})
    config = runner.config(application)
    expected: Counter[str] = Counter()
    for part in range(3):
        texts = random_lines(part, 400)
        expected.update(word for line in texts for word in line.split())
        runner.write(source, lines(texts, partitions=3))
        runner.run(word_count(source, target), config)
    records = runner.read(target)
    assert final(records) == expected
    assert_counted_one_by_one(records)
    store = runner.store(config, "counts")
    assert {key.decode(): number(value[8:]) for key, value in store.items()} == expected


def test_a_topology_of_one_level_keeps_keys_timestamps_headers_and_partitions(
    runner: Runner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 2, target: 2})
    builder = StreamsBuilder()
    shouted = builder.stream(source, consumed=TEXT).filter(lambda _, value: value != "drop").map_values(str.upper)
    shouted.to(target, produced=TEXT_OUT)
    runner.write(
        source,
        [
            InputRecord(b"k1", b"one", 5, 0, (("h", b"1"), ("h", None))),
            InputRecord(b"k2", b"drop", 6, 1),
            InputRecord(None, b"two", 7, 1),
            InputRecord(b"k3", b"three", 8, 0),
        ],
    )
    runner.run(builder.build(), runner.config(application))
    records = runner.read(target)
    assert OutputRecord(partition_for(b"k1", 2), b"k1", b"ONE", 5, (("h", b"1"), ("h", None))) in records
    assert sorted((r.key or b"", r.value, r.timestamp) for r in records) == [
        (b"", b"TWO", 7),
        (b"k1", b"ONE", 5),
        (b"k3", b"THREE", 8),
    ]


def test_three_levels(runner: Runner, application: str, unique_name: Callable[[str], str]) -> None:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 2, target: 3})
    texts = random_lines(7, 300, words=50)
    runner.write(source, lines(texts, partitions=2))
    builder = StreamsBuilder()
    pairs = Grouped.with_(key_serde=STRING, value_serde=STRING)
    counts = (
        builder.stream(source, consumed=TEXT)
        .flat_map_values(lambda line: line.split())
        .group_by(lambda _, word: word, grouped=pairs)
        .count(materialized=Materialized.as_("counts"))
    )
    (
        counts.to_stream()
        .map(lambda word, count: (word[-1], word))
        .group_by_key(grouped=pairs)
        .count(materialized=Materialized.as_("by-last"))
        .to_stream()
        .to(target, produced=COUNT_OUT)
    )
    topology = builder.build()
    built = topology.build(application)
    assert len(built.subtopologies) == 3
    runner.run(topology, runner.config(application))
    expected = Counter(word[-1] for line in texts for word in line.split())
    assert final(runner.read(target)) == expected


class Summing(Processor):
    """Sums by key; emits all sums by stream time, and a tick by wall-clock time."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("sums")
        context.schedule(1_000, PunctuationType.STREAM_TIME, self.emit)
        context.schedule(1, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, (self.store.get(record.key) or 0) + int(record.value))

    def emit(self, timestamp: int) -> None:
        with self.store.all() as entries:
            for key, value in entries:
                self.context.forward(Record(key, f"{value} at {timestamp}", timestamp))

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", "tick", timestamp))


class SummingSupplier(ProcessorSupplier):
    def get(self) -> Processor:
        return Summing()

    def stores(self) -> Sequence[StoreBuilder]:
        supplier = Stores.persistent_key_value_store("sums")
        return (Stores.key_value_store_builder(supplier, STRING, Serdes.long()),)


@pytest.mark.one_broker
def test_a_processor_with_a_store_and_both_kinds_of_punctuation(
    runner: Runner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 1, target: 1})
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).process(SummingSupplier()).to(target, produced=TEXT_OUT)
    config = runner.config(application)
    runner.write(source, [InputRecord(b"a", b"1", 1), InputRecord(b"b", b"2", 500), InputRecord(b"a", b"3", 1200)])
    runner.run(builder.build(), config)
    first = [(text(r.key), text(r.value)) for r in runner.read(target) if r.key != b"tick"]
    # A schedule of stream time is anchored at 0 and due with the first record.
    runner.write(source, [InputRecord(b"b", b"5", 1900), InputRecord(b"a", b"1", 2100)])
    runner.run(builder.build(), config)
    records = runner.read(target)
    second = [(text(r.key), text(r.value)) for r in records if r.key != b"tick"][len(first) :]
    assert first[-2:] == [("a", "4 at 1200"), ("b", "2 at 1200")]
    assert second[-2:] == [("a", "5 at 2100"), ("b", "7 at 2100")]
    ticks = [r for r in records if r.key == b"tick"]
    assert ticks  # one at least: the epochs are further apart than a millisecond
    assert runner.store(config, "sums") == {b"a": (5).to_bytes(8, "big"), b"b": (7).to_bytes(8, "big")}
