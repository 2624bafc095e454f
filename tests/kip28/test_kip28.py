"""The shapes of the first papers: what they promise beyond the papers' own jobs (tests/examples/test_kip28.py)."""

from __future__ import annotations

import threading
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
    KStreamTopology,
    Processor,
    ProcessorContext,
    PTopology,
    Source,
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
def test_what_cannot_be_done_in_init_is_reported_when_the_program_is_written_or_starts(
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


class OwnInit(Chain):
    """Does not call the __init__ of its base."""

    def __init__(self) -> None:
        self.own = True


class Streams(KStreamTopology):
    def __init__(self) -> None:
        self.target = "out"

    def build(self) -> None:
        self.from_(None, None, "in").send_to(self.target)


class Nameless(Counting):
    def __init__(self) -> None:
        self.seen = 0


def test_classes_of_topologies_need_not_initialise_their_base() -> None:
    assert str(OwnInit.topology().describe()) == str(Chain.topology().describe())
    assert output(Streams.topology(), ("k", "v", 1)) == [("k", "v", 1)]


def test_a_processor_without_the_name_that_its_base_takes_is_refused_where_it_is_used() -> None:
    message = r"A Nameless has no name: call super\(\).__init__\(name\) in Nameless.__init__"
    with pytest.raises(TypeError, match=message):
        KStreamBuilder().from_("in").process(Nameless())
    with pytest.raises(TypeError, match=message):
        PTopology().add_processor(Nameless(), Source("source-0"))


def test_each_task_has_its_own_processors() -> None:
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


class Doubling(KafkaProcessor):
    """Forwards each value twice, with how many came before it in this task."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seen: list[str] = []

    def process(self, key: str, value: str) -> None:
        self.seen.append(value)
        self.forward(key, f"{value}{value}{len(self.seen)}")


def test_a_processor_may_be_given_itself_and_is_copied_for_each_task() -> None:
    given_processor = Doubling("double")
    builder = KStreamBuilder()
    builder.from_("in").process(given_processor).send_to("out")
    topology = builder.build()
    for _ in range(2):
        assert output(topology, ("k", "a", 1), ("k", "b", 2)) == [("k", "aa1", 1), ("k", "bb2", 2)]
    assert given_processor.seen == []
    assert "Processor: double" in str(topology.describe())


def test_a_processor_that_cannot_be_copied_is_refused() -> None:
    class Holding(KafkaProcessor):
        def __init__(self) -> None:
            super().__init__("holding")
            self.lock = threading.Lock()

        def process(self, key: str, value: str) -> None:
            pass

    with pytest.raises(StreamsError, match=r"Holding cannot be copied for each task.*create in init"):
        KStreamBuilder().from_("in").process(Holding())


def test_streams_keep_their_serdes_on_the_way_through_topics_and_take_others() -> None:
    builder = KStreamBuilder()
    numbers = builder.from_("in", STRING, LONG)
    numbers.through("between").filter(lambda key, value: value > 1).send_to("out")
    numbers.map_values(str).through("texts", value_serde=STRING).send_to("copies")
    with TopologyTestDriver(builder.build(), {}) as driver:
        driver.create_input_topic("in", STRING, LONG).pipe_key_value_list([("a", 1), ("b", 2)])
        assert driver.create_output_topic("out", STRING, LONG).read_key_values_to_list() == [("b", 2)]
        copies = driver.create_output_topic("copies", STRING, STRING).read_key_values_to_list()
        assert copies == [("a", "1"), ("b", "2")]


class Ranging(Processor):
    """Keeps the first value of each key, and sends the entries from b to c with its own serdes."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.store = InMemoryKeyValueStore("firsts", context)
        assert list(self.store.range("a", "b")) == []
        assert self.store.put_if_absent("b", "0") is None

    def process(self, key: str, value: str) -> None:
        before = self.store.put_if_absent(key, value)
        for entry in self.store.range("b", "c"):
            self.context.send("out", before, int(entry.value), STRING, LONG)


def test_a_store_keeps_the_first_value_and_gives_a_range() -> None:
    builder = TopologyBuilder().add_source("source", "in").add_processor("processor", Ranging, "source")
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        topic.pipe_key_value_list([("b", "1"), ("a", "2"), ("c", "3")])
        sent = driver.create_output_topic("out", STRING, LONG).read_key_values_to_list()
    assert sent == [("0", 0), (None, 0), (None, 0), (None, 3)]


def test_what_a_join_needs_is_reported_in_the_words_of_the_papers() -> None:
    builder = KStreamBuilder()
    left, right = builder.from_("a"), builder.from_("b")
    windowed = left.with_window(Window(10))
    for method in ("join", "join_prior"):
        with pytest.raises(TypeError, match=rf"needs a window before {method}: call with_window first"):
            getattr(left, method)(windowed, lambda one, other: one)
    for join in (windowed.join, windowed.join_prior):
        with pytest.raises(TypeError, match=r"Expected a stream with a window.*join\(other.with_window\("):
            join(right, lambda one, other: one)  # type: ignore[arg-type]  # which is what is refused
    with pytest.raises(TypeError, match=r"Expected a Window for a join.*windows of aggregations"):
        left.with_window(TimeWindows.of_size_with_no_grace(10))  # type: ignore[arg-type]  # as above


class Sending(Processor):
    """Sends what comes, once with the serdes of the stream and once with others."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, key: str, value: int) -> None:
        self.context.send("numbers", key, value)
        self.context.send("texts", key, str(value), value_serde=STRING)


def test_what_a_processor_of_a_stream_sends_has_the_serdes_of_the_stream() -> None:
    builder = KStreamBuilder()
    builder.from_("in", STRING, LONG).process(Sending)
    with TopologyTestDriver(builder.build(), {}) as driver:
        driver.create_input_topic("in", STRING, LONG).pipe_input("k", 7)
        assert driver.create_output_topic("numbers", STRING, LONG).read_key_value() == ("k", 7)
        assert driver.create_output_topic("texts", STRING, STRING).read_key_value() == ("k", "7")
