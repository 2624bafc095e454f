"""The shapes of the first papers: what they promise beyond the papers' own jobs (tests/examples/test_kip28.py)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import SessionWindows, TimeWindows, Topology
from penstock.errors import StreamsError
from penstock.kip28 import (
    InMemoryKeyValueStore,
    KafkaProcessor,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    PTopology,
    TopologyBuilder,
    Window,
    until,
)
from penstock.serdes import Serdes
from penstock.testing import TopologyTestDriver

STRING, LONG = Serdes.string(), Serdes.long()
CONFIG = {"default.key.serde": STRING, "default.value.serde": STRING}


def topology_of(processor: type[Processor]) -> Topology:
    builder = TopologyBuilder().add_source("source", "in").add_processor("processor", processor, "source")
    return builder.add_sink("sink", "out", "processor").build()


def output(topology: Topology, *records: tuple[str, str, int]) -> list[tuple[str, str, int | None]]:
    with TopologyTestDriver(topology, CONFIG) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        for record in records:
            topic.pipe_input(*record)
        read = driver.create_output_topic("out", STRING, STRING).read_records_to_list()
        return [(record.key, record.value, record.timestamp) for record in read]


class Ticking(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(10)

    def process(self, key: str, value: str) -> None:
        pass

    def punctuate(self) -> None:  # type: ignore[override]  # the papers' interface has it without the time
        self.context.forward("tick", "tock")


def test_punctuate_may_leave_out_the_time_and_forwards_at_it() -> None:
    assert output(topology_of(Ticking), ("k", "v", 5), ("k", "v", 17)) == [("tick", "tock", 5), ("tick", "tock", 17)]


class Telling(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, key: str, value: str) -> None:
        self.context.forward(key, f"{self.context.topic} {self.context.partition} {self.context.offset}")


def test_the_context_says_where_a_record_came_from() -> None:
    assert output(topology_of(Telling), ("k", "v", 5), ("k", "v", 3)) == [("k", "in 0 0", 5), ("k", "in 0 1", 3)]


class Hasty(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.forward("too", "early")


class Sleepless(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(self)


@pytest.mark.parametrize(("processor", "error"), [(Hasty, StreamsError), (Sleepless, TypeError)])
def test_what_cannot_be_done_in_init_is_said_when_the_program_is_written_or_starts(
    processor: type[Processor], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"init|interval"):
        output(topology_of(processor))


class Storing(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.store = InMemoryKeyValueStore("made-in-init", context, STRING, LONG)
        assert self.store.get("nothing yet") is None

    def process(self, key: str, value: str) -> None:
        if value == "clear":
            self.store.clear()
        self.store.put(key, len(value))
        self.store.delete(value)

    def close(self) -> None:
        self.store.close()


def test_a_store_made_in_init_belongs_to_the_topology() -> None:
    topology = topology_of(Storing)
    assert "Processor: processor (stores: [made-in-init])" in str(topology.describe())
    with TopologyTestDriver(topology, CONFIG) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        store = driver.get_key_value_store("made-in-init")
        assert store is not None
        topic.pipe_key_value_list([("a", "long"), ("b", "v"), ("c", "b")])
        assert dict(store.all()) == {"a": 4, "c": 1}
        topic.pipe_input("d", "clear")
        assert dict(store.all()) == {"d": 5}


class Counting(KafkaProcessor):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seen = 0

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, key: str, value: str) -> None:
        self.seen += 1
        self.forward(key, f"{value}{self.seen}")
        if self.name == "last":
            self.context.forward(key, value)


class Chain(PTopology):
    def build(self) -> None:
        source, first, last = self.add_source(None, None, "in"), Counting("first"), Counting("last")
        self.add_processor(first, source)
        self.add_processor(last, first, source)


def test_a_topology_class_chains_its_processors() -> None:
    described = str(Chain.topology().describe())
    assert "Processor: last (stores: [])\n      --> none\n      <-- first, source-0" in described
    assert output(Chain.topology(), ("k", "v", 1)) == []


def test_each_task_has_processors_of_its_own() -> None:
    topology = Chain.topology()
    for _ in range(2):  # what a first run counted is not there in the second
        assert output(
            topology.add_sink("sink", "out", "first") if "sink" not in str(topology.describe()) else topology,
            ("k", "v", 1),
        ) == [("k", "v1", 1)]


@pytest.mark.parametrize(
    "windows", [TimeWindows.of_size_with_no_grace(50), SessionWindows.of_inactivity_gap_with_no_grace(50)]
)
def test_until_is_a_grace_period(windows: Any) -> None:
    assert until(windows, 80).grace_period_ms == 30
    assert until(windows).grace_period_ms == 24 * 60 * 60 * 1000 - 50
    with pytest.raises(ValueError, match="cannot be smaller than the window"):
        until(windows, 49)


@given(
    spans=st.tuples(st.integers(0, 5), st.integers(1, 5)),
    events=st.lists(st.tuples(st.sampled_from(["left", "right"]), st.integers(1, 20)), max_size=12),
)
def test_windowed_joins_pair_what_the_papers_say(spans: tuple[int, int], events: list[tuple[str, int]]) -> None:
    builder = KStreamBuilder()
    left = builder.from_("left").with_window(Window(spans[0]))
    right = builder.from_("right").with_window(Window(spans[1]))
    left.join(right, lambda one, other: f"{one} {other}").send_to("around")
    left.join_prior(right, lambda one, other: f"{one} {other}").send_to("prior")
    numbered = [(side, f"{time}:{number}", time) for number, (side, time) in enumerate(events)]
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        topics = {side: driver.create_input_topic(side, STRING, STRING) for side in ("left", "right")}
        for side, value, time in numbered:
            topics[side].pipe_input("key", value, time)
        found = {name: driver.create_output_topic(name, STRING, STRING) for name in ("around", "prior")}
        around, prior = (sorted(found[name].read_values_to_list()) for name in ("around", "prior"))
    pairs = [
        (one, other, time, other_time)
        for side, one, time in numbered
        for other_side, other, other_time in numbered
        if (side, other_side) == ("left", "right") and time - spans[1] <= other_time <= time + spans[0]
    ]
    assert around == sorted(f"{one} {other}" for one, other, _, _ in pairs)
    assert prior == sorted(f"{one} {other}" for one, other, time, other_time in pairs if other_time < time)
