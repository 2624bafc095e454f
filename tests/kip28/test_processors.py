"""Processors of the papers: their context, stores, names, and copies for each task."""

from __future__ import annotations

import threading

import pytest

from penstock import Topology
from penstock.errors import StreamsError
from penstock.kip28 import (
    InMemoryKeyValueStore,
    KafkaProcessor,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    PTopology,
    Source,
    TopologyBuilder,
)
from penstock.testing import TopologyTestDriver
from tests.kip28.support import CONFIG, LONG, STRING, output


def topology_of(processor: type[Processor]) -> Topology:
    builder = TopologyBuilder().add_source("source", "in").add_processor("processor", processor, "source")
    return builder.add_sink("sink", "out", "processor").build()


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
def test_init_neither_forwards_nor_schedules_without_an_interval(
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


class Nameless(KafkaProcessor):
    def __init__(self) -> None:
        self.seen = 0


def test_a_processor_without_a_name_is_refused() -> None:
    message = r"A Nameless has no name: call super\(\).__init__\(name\) in Nameless.__init__"
    with pytest.raises(TypeError, match=message):
        KStreamBuilder().from_("in").process(Nameless())
    with pytest.raises(TypeError, match=message):
        PTopology().add_processor(Nameless(), Source("source-0"))


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


class Sending(Processor):
    """Sends what comes, once with the serdes of the stream and once with others."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, key: str, value: int) -> None:
        self.context.send("numbers", key, value)
        self.context.send("texts", key, str(value), value_serde=STRING)


def test_a_processor_sends_with_the_serdes_of_its_stream() -> None:
    builder = KStreamBuilder()
    builder.from_("in", STRING, LONG).process(Sending)
    with TopologyTestDriver(builder.build(), {}) as driver:
        driver.create_input_topic("in", STRING, LONG).pipe_input("k", 7)
        assert driver.create_output_topic("numbers", STRING, LONG).read_key_value() == ("k", 7)
        assert driver.create_output_topic("texts", STRING, STRING).read_key_value() == ("k", "7")
