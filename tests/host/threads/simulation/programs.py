"""The programs of a simulation, their input, and what the test driver makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from random import Random
from typing import NamedTuple

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.calls import Calls
from penstock.dsl.options import Produced
from penstock.dsl.park import Park
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
from penstock.host.deployment.layout import Layout, layout_of
from penstock.plan.topology import Topology, built_topology
from penstock.processor.api import Processor, ProcessorContext, PunctuationType, Record
from penstock.processor.backoff import Backoff
from penstock.record import TopicPartition
from penstock.serdes import Serdes
from penstock.state.memory import MemoryBase
from penstock.state.stores import Stores
from penstock.task.changelog_copy import ChangelogCopy
from penstock.testing import TopologyTestDriver
from penstock.windows import TimeWindows
from tests.host.threads.simulation.broker import Row, batch_of

VARIANTS = 4
"""Inputs of each program."""

HELD_MS = 300

_LONG = Produced.with_(Serdes.string(), Serdes.long())

Last = dict[bytes | None, tuple[bytes | None, int]]
"""The last value of each key, and its timestamp (ms)."""


class Kind(Enum):
    """What is certain of the output, whatever the order in which partitions are read."""

    RECORDS = "each record"
    COUNTS = "each count of each key"
    TABLE = "the last value of each key"
    DIFFERENCES = "the last value of each key, if no change is processed twice"


@dataclass(frozen=True)
class Program:
    """sources: its topics; words: the most words of a value; settles_ms: how long its output may wait for a
    punctuation, and for the commit behind that; waits_in: a store that is empty once everything is processed;
    keeps_order: whether the results of a key have the order of its records."""

    name: str
    build: Callable[[], Topology]
    kind: Kind
    sources: tuple[str, ...] = ("in",)
    words: int = 1
    optimization: str = "none"
    settles_ms: int = 0
    waits_in: str = ""
    keeps_order: bool = False


class Input(NamedTuple):
    """A record to be processed."""

    topic: str
    row: Row


class Expected(NamedTuple):
    """What the test driver gives. output: the records of the sink, and their values by key; changelogs: the last values
    by topic; stores: the entries of each store as a base has them."""

    output: Counter[tuple[bytes | None, bytes | None]]
    values: Mapping[bytes | None, list[bytes | None]]
    last: Last
    changelogs: Mapping[str, Last]
    stores: Mapping[str, dict[bytes, bytes]]


def _stateless() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("in").filter(lambda key, value: value != "b")
    lines.map_values(lambda value: value + "!").to("out")
    return builder.build()


def _counts() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().to_stream().to("out", _LONG)
    return builder.build()


def _windowed_counts() -> Topology:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_and_grace(1_000, 1_000_000)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count().to_stream()
    counts.select_key(lambda key, _: f"{key.key} {key.window.start}").to("out", _LONG)
    return builder.build()


def _word_count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in").flat_map_values(str.split)
    words.group_by(lambda _, word: word).count().to_stream().to("out", _LONG)
    return builder.build()


def _windowed_word_count() -> Topology:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_and_grace(500, 1_000_000)
    words = builder.stream("in").flat_map_values(str.split).group_by(lambda _, word: word)
    counts = words.windowed_by(windows).count().to_stream()
    counts.select_key(lambda key, _: f"{key.key} {key.window.start}").to("out", _LONG)
    return builder.build()


def _join() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    left.join(right, lambda one, other: f"{one}{other}").to_stream().to("out")
    return builder.build()


def _regrouped() -> Topology:
    builder = StreamsBuilder()
    counts = builder.table("in").group_by(lambda key, value: (value, key)).count()
    counts.to_stream().to("out", _LONG)
    return builder.build()


class _Holding(Processor[str, str, str, str]):
    """Holds records in a store until the next punctuation by wall clock."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._held = context.get_state_store("held")
        context.schedule(HELD_MS, PunctuationType.WALL_CLOCK_TIME, self._let_go)

    def process(self, record: Record[str, str]) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        self._held.put(f"{record.key} {metadata.offset}", record.value)

    def _let_go(self, now: int) -> None:
        for key, value in list(self._held.all()):
            self.context.forward(Record(key.split()[0], value, 10_000))
            self._held.delete(key)


def _held() -> Topology:
    builder = StreamsBuilder()
    text = Serdes.string()
    builder.add_state_store(Stores.key_value_store_builder(Stores.persistent_key_value_store("held"), text, text))
    builder.stream("in").process(_Holding, "held").to("out")
    return builder.build()


class Service:
    """The service that a function of a program asks; `is_away` tells of each attempt whether it fails."""

    def __init__(self) -> None:
        self.is_away: Callable[[], bool] = lambda: False

    def ask(self, value: str) -> str:
        if self.is_away():
            raise ConnectionError("The service is away.")
        return f"{value}!"


SERVICE = Service()


def answered(value: str) -> str:
    """Return the answer of a call; the calls of one value fail each time."""
    if value == "b":
        raise ValueError("The service refuses b.")
    return f"{value}!"


def _calls(calls: Calls) -> Callable[[], Topology]:
    def build() -> Topology:
        builder = StreamsBuilder()
        builder.stream("in").map_values(answered, named="called", calls=calls).to("out")
        return builder.build()

    return build


def _called_counts() -> Topology:
    builder = StreamsBuilder()
    called = builder.stream("in").map_values(answered, named="called", calls=Calls(threads=1, on_failure="skip"))
    called.group_by_key().count().to_stream().to("out", _LONG)
    return builder.build()


def _parked() -> Topology:
    builder = StreamsBuilder()
    park = Park(backoff=Backoff(100, limit=400), attempts=1_000)
    builder.stream("in").map_values(SERVICE.ask, named="asked", on_error=park).to("out")
    return builder.build()


_HANDLED = Calls(threads=1)
_BY_PARTITION = Calls(threads=1, order="partition")
_UNORDERED = Calls(threads=1, order="unordered", on_failure="skip")
WAITING_PROGRAMS = (
    Program("calls by key", _calls(_HANDLED), Kind.RECORDS, waits_in="called-calls", keeps_order=True),
    Program("calls by partition", _calls(_BY_PARTITION), Kind.RECORDS, waits_in="called-calls", keeps_order=True),
    Program("unordered calls", _calls(_UNORDERED), Kind.RECORDS, waits_in="called-calls"),
    Program("counts of calls", _called_counts, Kind.COUNTS, waits_in="called-calls", keeps_order=True),
    Program("parked", _parked, Kind.RECORDS, waits_in="asked-parked", keeps_order=True),
)
"""Programs whose records wait in a store until a call is answered, or an attempt succeeds."""


PROGRAMS = (
    Program("stateless", _stateless, Kind.RECORDS),
    Program("counts", _counts, Kind.COUNTS),
    Program("windowed counts", _windowed_counts, Kind.COUNTS),
    Program("word count", _word_count, Kind.COUNTS, words=3),
    Program("windowed word count", _windowed_word_count, Kind.COUNTS, words=3),
    Program("join", _join, Kind.TABLE, ("left", "right")),
    Program("join of source topics", _join, Kind.TABLE, ("left", "right"), optimization="all"),
    Program("regrouped", _regrouped, Kind.DIFFERENCES),
    Program("held", _held, Kind.RECORDS, settles_ms=10_000),
)


@cache
def layout(program: Program, partitions: int, cache_bytes: int) -> Layout:
    """Return the tasks of `program`."""
    topics = {**dict.fromkeys(program.sources, partitions), "out": 2}
    return layout_of(built_topology(program.build(), "app"), _config(program, cache_bytes), topics)


def _config(program: Program, cache_bytes: int) -> StreamsConfig:
    settings = {
        "application.id": "app",
        "bootstrap.servers": "simulation:9092",
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.string(),
        "statestore.cache.max.bytes": cache_bytes,
        "topology.optimization": program.optimization,
        "penstock.restart.backoff.ms": 100,
        "penstock.restart.backoff.max.ms": 1_000,
        "penstock.restart.max.attempts": 1_000,
        "penstock.max.skew.ms": 1,  # what comes later than 12 s is history
        "processing.exception.handler": LogAndContinueProcessingExceptionHandler(),  # of calls that fail
    }
    return StreamsConfig(settings, environment={})


@cache
def input_of(program: Program, variant: int) -> list[Input]:
    """Return the records that are to be processed, in the order of their partitions."""
    random = Random(f"{program.name} {variant}")
    records = []
    for number in range(random.randrange(20, 40)):
        key = f"k{random.randrange(5)}"
        words = " ".join(random.choices("abcde", k=random.randint(1, program.words)))
        time = 10_000 + 50 * number + random.randrange(-200, 200)
        records.append(Input(random.choice(program.sources), Row(key.encode(), words.encode(), time, ())))
    return records


@cache
def expected(program: Program, variant: int) -> Expected:
    """Return what the test driver makes of the input."""
    with TopologyTestDriver(program.build(), _config(program, 0), 0) as driver:
        for topic, row in input_of(program, variant):
            driver.pipe_bytes(topic, row.key, row.value, row.timestamp)
        driver.advance_wall_clock_time(HELD_MS)
        written: dict[str, list[Row]] = {}
        for each in driver.read_all_bytes():
            written.setdefault(each.topic, []).append(Row(each.key, each.value, each.timestamp, each.headers))
    for topic, row in input_of(program, variant):  # a source topic may be a changelog
        written.setdefault(topic, []).append(row)
    output = written.get("out", [])
    tasks = layout(program, 1, 0)
    changelogs = {t: last_of(written.get(t, [])) for task in tasks.groups for t, _ in tasks.changelogs(task).values()}
    stores: dict[str, dict[bytes, bytes]] = {}
    for task in tasks.groups:
        base = MemoryBase()
        places = tasks.changelogs(task)
        copy = ChangelogCopy(tasks.spec(task).stores, places, tasks.config, base)
        for store, (topic, _) in places.items():
            copy.apply(store, batch_of(list(enumerate(written.get(topic, [])))), len(written.get(topic, [])))
            stores[store] = dict(base.view(store).range(None, None, False))
    records = Counter((row.key, row.value) for row in output)
    return Expected(records, values_of(output), last_of(output), changelogs, stores)


def last_of(rows: Iterable[Row]) -> Last:
    """Return the last value of each key that is not deleted."""
    last: Last = {}
    for row in rows:
        last.pop(row.key, None)
        if row.value is not None:
            last[row.key] = row.value, row.timestamp
    return last


def values_of(rows: Iterable[Row]) -> dict[bytes | None, list[bytes | None]]:
    """Return the values of each key, in order."""
    values: dict[bytes | None, list[bytes | None]] = {}
    for row in rows:
        values.setdefault(row.key, []).append(row.value)
    return values


def partition_of(row: Row, partitions: int) -> int:
    """Return the partition of a record of the input."""
    assert row.key is not None
    return sum(row.key) % partitions


def changelog_partitions(layout: Layout) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each changelog topic."""
    found: dict[str, list[TopicPartition]] = {}
    for task in layout.groups:
        for partition in layout.changelogs(task).values():
            found.setdefault(partition.topic, []).append(partition)
    return found
