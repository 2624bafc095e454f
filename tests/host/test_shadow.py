"""Two versions of a program are compared on each host: equal ones are equal, and a change is found at its sink."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Grouped,
    JoinWindows,
    Materialized,
    Named,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    StoreBuilder,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    savepoints,
)
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.exception_handlers import (
    ErrorHandlerContext,
    LogAndContinueProcessingExceptionHandler,
    ProcessingExceptionHandler,
    ProducerRecord,
    Response,
)
from penstock.lake import Delta
from penstock.processor.api import ProcessorSupplier
from penstock.shadow import NOW, Counts, ShadowOptions, VersionComparison
from penstock.shadow import compare as compare_versions
from penstock.shadow.comparing import VersionComparing
from penstock.shadow.pair import ShadowPair
from tests.host.support import WITH_A_SESSION, InputRecord, Runner, lines
from tests.host.test_topologies import COUNT_OUT, TEXT, TEXT_OUT, word_count
from tests.support.waiting import until

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 2)]

STRING = Serdes.string()
PAIRS = Grouped.with_(key_serde=STRING, value_serde=STRING)
Make = Callable[[str, str, Any], Topology]


def windows(source: str, target: str, size_ms: int) -> Topology:
    builder = StreamsBuilder()
    within = TimeWindows.of_size_and_grace(timedelta(milliseconds=size_ms), timedelta(milliseconds=0))
    counts = builder.stream(source, consumed=TEXT).group_by_key(PAIRS).windowed_by(within).count(Materialized.as_("w"))
    closed = counts.suppress(Suppressed.until_window_closes(Suppressed.BufferConfig.unbounded()))
    closed.to_stream().map(lambda window, count: (window.key, count)).to(target, produced=COUNT_OUT)
    return builder.build()


def stream_join(source: str, target: str, size_ms: int) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(source, consumed=TEXT)
    other = stream.filter(lambda _, value: value.endswith("0")).map_values(str.upper)
    joined = stream.join(
        other,
        lambda left, right: f"{left}{right}",
        JoinWindows.of_time_difference_with_no_grace(timedelta(milliseconds=size_ms)),
        stream_joined=StreamJoined.with_(STRING, STRING, STRING),
    )
    joined.to(target, produced=TEXT_OUT)
    return builder.build()


def foreign_keys(source: str, target: str, digits: int) -> Topology:
    builder = StreamsBuilder()
    stored = Materialized.with_(STRING, STRING)
    table = builder.stream(source, consumed=TEXT).to_table(materialized=stored)
    other = builder.stream(source + "-facts", consumed=TEXT).to_table(materialized=stored)
    joined = table.join(
        other, lambda left, right: f"{left[:digits]}:{right}", foreign_key_extractor=lambda value: value[-1]
    )
    joined.to_stream().to(target, produced=TEXT_OUT)
    return builder.build()


class Averages(Processor):
    """Forwards the rounded mean of each key every 10 ms of stream time."""

    def __init__(self, digits: int) -> None:
        self._digits = digits

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: Any = context.get_state_store("sums")
        context.schedule(10, PunctuationType.STREAM_TIME, self._forward)

    def process(self, record: Record[Any, Any]) -> None:
        total, count = (self._store.get(record.key) or "0,0").split(",")
        self._store.put(record.key, f"{int(total) + len(record.value)},{int(count) + 1}")

    def _forward(self, now: int) -> None:
        with self._store.all() as entries:
            for key, value in entries:
                total, count = map(int, value.split(","))
                self.context.forward(Record(key, str(round(total / count, self._digits)), now))


class AverageSupplier(ProcessorSupplier):
    def __init__(self, digits: int) -> None:
        self._digits = digits

    def get(self) -> Averages:
        return Averages(self._digits)

    def stores(self) -> tuple[StoreBuilder, ...]:
        return (Stores.key_value_store_builder(Stores.persistent_key_value_store("sums"), STRING, STRING),)


def averages(source: str, target: str, digits: int) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).process(AverageSupplier(digits)).to(target, produced=TEXT_OUT)
    return builder.build()


def branches(source: str, target: str, least: int) -> Topology:
    builder = StreamsBuilder()
    long = builder.stream(source, consumed=TEXT).filter(lambda _, value: len(value) >= least, named=Named.as_("long"))
    long.to(lambda key, value, context: f"{target}", produced=TEXT_OUT)
    return builder.build()


def keyed(count: int) -> list[InputRecord]:
    return [
        InputRecord(
            f"k{number % 7}".encode(), f"v{'x' * (number % 5)}{number % 10}".encode(), 1_000 + number, number % 7 % 2
        )
        for number in range(count)
    ]


def compare(
    runner: Runner,
    application: str,
    old: Topology,
    new: Topology,
    options: ShadowOptions | None = None,
    **settings: Any,
) -> VersionComparison:
    config = runner.config(application, settings)
    return VersionComparing(
        ShadowPair((old, config), (new, config), options or ShadowOptions(), runner.run_here)
    ).compare()


def assert_nothing_is_left(runner: Runner, application: str) -> None:
    """Kafka lists deleted topics for a while."""
    assert until(lambda: not any(topic.startswith(f"{application}-shadow") for topic in runner.admin.topics()))


@pytest.mark.parametrize(
    ("make", "same", "changed", "is_exact"),
    [
        (windows, 10, 20, True),
        (stream_join, 20, 10, True),
        (foreign_keys, 2, 3, False),
        (averages, 2, 1, True),
        (branches, 3, 4, True),
    ],
)
def test_equal_versions_are_equal_and_a_change_is_found(
    runner: Runner, application: str, topics: tuple[str, str], make: Make, same: Any, changed: Any, is_exact: bool
) -> None:
    source, target = topics
    runner.create_topics({f"{source}-facts": 2})
    runner.write(f"{source}-facts", [InputRecord(str(n).encode(), f"fact {n}".encode(), 900, n % 2) for n in range(10)])
    runner.write(source, keyed(200))
    equal = compare(runner, application, make(source, target, same), make(source, target, same))
    # The intermediate results of a foreign-key join depend on when its answers come.
    assert equal.is_equal if is_exact else equal.has_equal_final_values
    assert [each.topic for each in equal.topics] == [target]
    assert equal.topics[0].counts.equal
    different = compare(runner, application, make(source, target, same), make(source, target, changed))
    assert not different.is_equal
    (topic,) = different.topics
    assert not topic.counts.are_equal
    assert topic.examples
    assert all(place.line is not None and "test_shadow.py" in place.line for place in (*topic.old, *topic.new))
    assert runner.read(target) == []
    assert_nothing_is_left(runner, application)


def test_a_change_is_shown_with_key_values_and_place(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    source, target = topics
    runner.write(source, lines(["a b", "b c", "a"], partitions=2))

    def doubled(source: str, target: str) -> Topology:
        builder = StreamsBuilder()
        words = builder.stream(source, consumed=TEXT).flat_map_values(lambda line: line.replace("c", "c c").split())
        by_word = words.group_by(lambda _, word: word, grouped=PAIRS)
        by_word.count(materialized=Materialized.as_("counts")).to_stream().to(target, produced=COUNT_OUT)
        return builder.build()

    found = compare(runner, application, word_count(source, target), doubled(source, target))
    (topic,), (store,) = found.topics, found.stores
    assert topic.counts == Counts(equal=5, only_new=1)
    assert topic.other_final_values == 1
    (example,) = topic.examples
    assert (example.key, example.old) == ("c", None)
    assert example.new is not None
    assert (example.new.value, example.new.timestamp) == (2, 1_001)
    assert store.counts == Counts(equal=2, different=1)
    assert str(store.examples[0]) == 'key "c" at 1001: old 1, new 2'
    assert found.summary() == (
        f"The versions of {application} differ (from beginning): topics {target}; stores counts."
    )


def test_caches_change_nothing(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    source, target = topics
    runner.write(source, lines(["a a b", "b a"], partitions=2))
    topology = word_count(source, target)
    found = compare(runner, application, topology, topology, **{"statestore.cache.max.bytes": 1_000_000})
    assert found.topics[0].counts == Counts(equal=5)


def test_both_versions_stop_at_the_same_offsets(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    source, target = topics
    runner.write(source, lines(["a b", "b"], partitions=2))

    def run(topology: Topology, config: StreamsConfig) -> None:
        runner.write(source, lines(["a", "c"], partitions=2))
        runner.run_here(topology, config)

    program = word_count(source, target), runner.config(application)
    found = VersionComparing(ShadowPair(program, program, ShadowOptions(), run)).compare()
    assert found.topics[0].counts == Counts(equal=3)
    assert found.stores[0].counts == Counts(equal=2)


def test_global_tables_stop_at_the_same_offsets(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str]
) -> None:
    source, target = topics
    facts = unique_name("facts")
    runner.create_topics({facts: 1})
    runner.write(source, lines(["a", "b"]))
    builder = StreamsBuilder()
    table = builder.global_table(facts, TEXT)
    stream = builder.stream(source, TEXT)
    joined = stream.left_join(table, lambda _, fact: f"{fact}", key_selector=lambda key, value: "k")
    joined.to(target, produced=TEXT_OUT)
    versions = iter(("1", "2"))

    def run(topology: Topology, config: StreamsConfig) -> None:
        runner.write(facts, [InputRecord(b"k", next(versions).encode(), 1_000)])
        runner.run_here(topology, config)

    runner.write(facts, [InputRecord(b"k", b"0", 1_000)])
    program = builder.build(), runner.config(application)
    found = VersionComparing(ShadowPair(program, program, ShadowOptions(limit=1), run)).compare()
    assert found.topics[0].counts == Counts(equal=2)
    other = builder.build()
    values = compare(runner, application, other, word_count(source, target)).topics[0].examples
    assert {each.old.value for each in values if each.old is not None} == {"2"}


class ToTopic(ProcessingExceptionHandler):
    """Continues, and names the topic of its dead letters itself."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def handle_error(self, context: ErrorHandlerContext, record: Record[Any, Any] | None, error: Exception) -> Response:
        return Response.resume([ProducerRecord(self._topic, b"failed", context.source_raw_value, context.timestamp)])


@pytest.mark.parametrize("of_user", [False, True])
def test_dead_letters_are_held_back_and_compared(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str], of_user: bool
) -> None:
    source, target = topics
    letters = unique_name("letters")
    runner.create_topics({letters: 1})
    runner.write(source, lines(["1", "none", "2"]))

    def numbers(change: Callable[[str], int]) -> Topology:
        builder = StreamsBuilder()
        read = builder.stream(source, TEXT).map_values(lambda value: str(change(value)))
        read.to(target, produced=TEXT_OUT)
        return builder.build()

    settings: dict[str, Any] = {
        "errors.dead.letter.queue.topic.name": letters,
        "processing.exception.handler": LogAndContinueProcessingExceptionHandler,
    }
    if of_user:
        settings = {"processing.exception.handler": ToTopic(letters)}
    old, new = numbers(int), numbers(lambda value: len(value))
    same = compare(runner, application, old, numbers(int), **settings)
    assert {each.topic: each.counts for each in same.topics} == {letters: Counts(equal=1), target: Counts(equal=2)}
    found = compare(runner, application, old, new, **settings)
    assert {each.topic: each.counts for each in found.topics} == {
        letters: Counts(only_old=1),
        target: Counts(equal=1, different=1, only_new=1),
    }
    assert (runner.read(letters), runner.read(target)) == ([], [])


@pytest.mark.parametrize("runner", ["threads"], indirect=True)
def test_tables_of_a_lake_receive_nothing(
    runner: Runner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("deltalake", reason="the extra lake is not installed")
    table = Delta(str(tmp_path / "table"))

    def copied(change: Callable[[str], str]) -> Topology:
        builder = StreamsBuilder()
        produced = Produced.with_(STRING, STRING).with_name("copied")
        builder.stream(topics[0], TEXT).map_values(change).to_lake(table, produced)
        return builder.build()

    runner.write(topics[0], lines(["a"]))
    found = compare(runner, application, copied(str.upper), copied(str.title))
    assert found.is_equal
    assert len(found.topics) == 1
    assert compare(runner, application, copied(str.upper), copied(str.lower)).topics[0].counts == Counts(different=1)
    assert not (tmp_path / "table").exists()
    assert_nothing_is_left(runner, application)


@pytest.mark.parametrize("runner", ["spark"], indirect=True)
def test_functions_of_data_frames_receive_nothing(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    def received(change: Callable[[str], str]) -> Topology:
        builder = StreamsBuilder()
        changed = builder.stream(topics[0], TEXT).map_values(change)
        changed.to_spark(lambda frame, number: pytest.fail("it was called"), TEXT_OUT.with_name("received"))
        return builder.build()

    runner.write(topics[0], lines(["a"]))
    found = compare(runner, application, received(str.upper), received(str.lower))
    assert [each.counts for each in found.topics] == [Counts(different=1)]
    assert_nothing_is_left(runner, application)


@pytest.mark.parametrize("runner", ["spark"], indirect=True)
def test_checkpoints_are_beside_that_of_the_application_and_are_deleted(
    runner: Runner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    runner.write(source, lines(["a b"]))
    topology, checkpoint = word_count(source, target), tmp_path / "checkpoint"
    settings = {"penstock.checkpoint.dir": str(checkpoint)}
    runner.run_here(topology, runner.config(application, settings))
    seen = []

    def run(each: Topology, config: StreamsConfig) -> None:
        runner.run_here(each, config)
        seen.append(sorted(path.name for path in tmp_path.iterdir()))

    program = topology, runner.config(application, settings)
    assert VersionComparing(ShadowPair(program, program, ShadowOptions(start=NOW), run)).compare().is_equal
    assert seen[-1] == ["checkpoint", "checkpoint-shadow-new", "checkpoint-shadow-old"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_the_running_application_is_not_changed(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    source, target = topics
    runner.write(source, lines(["a b"]))
    topology, config = word_count(source, target), runner.config(application)
    runner.run_here(topology, config)
    before = runner.read(target)
    assert compare(runner, application, topology, topology).is_equal
    runner.run_here(topology, config)
    assert runner.read(target) == before
    assert runner.store(config, "counts").keys() == {b"a", b"b"}


@pytest.mark.parametrize("runner", ["spark"], indirect=True)
@pytest.mark.parametrize("is_now", [True, False])
def test_versions_start_from_a_savepoint(
    runner: Runner, application: str, topics: tuple[str, str], tmp_path: Path, is_now: bool
) -> None:
    source, target = topics
    topology, config = word_count(source, target), runner.config(application)
    runner.write(source, lines(["a b"]))
    runner.run_here(topology, config)
    savepoint = str(tmp_path / "savepoint")
    savepoints.take(config, savepoint)
    runner.write(source, lines(["a"]))
    options = ShadowOptions(start=NOW if is_now else savepoint)
    found = compare(runner, application, topology, topology, options)
    assert found.is_equal
    assert found.topics[0].counts == Counts(equal=1)
    assert found.stores[0].counts == Counts(equal=2)


@pytest.mark.parametrize("runner", ["spark"], indirect=True)
def test_a_changed_program_keeps_the_stores_of_the_savepoint(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    runner.write(source, lines(["a b"]))
    runner.run_here(word_count(source, target), runner.config(application))
    runner.write(source, lines(["a"]))

    def with_lines() -> Topology:
        builder = StreamsBuilder()
        texts = builder.stream(source, TEXT)
        by_line = texts.group_by(lambda _, line: line, grouped=PAIRS)
        by_line.count(materialized=Materialized.as_("lines"))
        by_word = texts.flat_map_values(str.split).group_by(lambda _, word: word, grouped=PAIRS.with_name("words"))
        by_word.count(materialized=Materialized.as_("counts")).to_stream().to(target, produced=COUNT_OUT)
        return builder.build()

    old, new = word_count(source, target), with_lines()
    found = compare(runner, application, old, new, ShadowOptions(start=NOW))
    assert found.topics[0].counts == Counts(equal=1)
    assert found.stores[0].counts == Counts(equal=2)
    assert found.not_compared == {"lines": "only the new version has it"}


@pytest.mark.parametrize("runner", ["threads"], indirect=True)
def test_threads_have_no_savepoints(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    topology = word_count(*topics)
    with pytest.raises(StreamsError, match=r"The threads host has no savepoints.*--from beginning"):
        compare(runner, application, topology, topology, ShadowOptions(start=NOW))


@WITH_A_SESSION
def test_a_session_runs_both_versions(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    source, target = topics
    runner.write(source, lines(["a b"]))
    program = word_count(source, target), runner.config(application)
    found = compare_versions(program, program, **runner.options())
    assert found.is_equal
    assert found.topics[0].counts == Counts(equal=2)
    assert_nothing_is_left(runner, application)
