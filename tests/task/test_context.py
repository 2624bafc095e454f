"""What a processor may ask of its context besides the Processor API of Kafka Streams: to send anywhere, and where its
record comes from."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import StreamsError
from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorContext, PunctuationType
from penstock.record import Record
from penstock.state.stores import Stores
from tests.task.topologies import LONG, STRING, batch_of, sent, supplier, task_of


class Call(Processor):
    """Calls a function with its context for each record."""

    def __init__(self, function: Callable[[ProcessorContext, Record[Any, Any]], None]) -> None:
        self._function = function

    def process(self, record: Record[Any, Any]) -> None:
        self._function(self.context, record)


def _topology(function: Callable[[ProcessorContext, Record[Any, Any]], None]) -> Topology:
    topology = Topology().add_source("source", "in").add_processor("call", supplier(lambda: Call(function)), "source")
    return topology.add_sink("sink", "out", "call")


def test_a_processor_sends_to_any_topic_in_the_order_of_what_it_forwards() -> None:
    def send(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.send("elsewhere", record.value, record.key)
        context.forward(record)
        context.send("numbers", None, 7, value_serde=LONG)

    task = task_of(_topology(send))
    task.add_records("in", 0, batch_of(("k", "v", 5), headers=(("h", b"1"),)))
    task.process()
    records = list(task.drain_in_order())
    assert [(r.topic, r.key, r.value, r.timestamp, r.headers) for r in records] == [
        ("elsewhere", b"v", b"k", 5, (("h", b"1"),)),
        ("out", b"k", b"v", 5, (("h", b"1"),)),
        ("numbers", None, (7).to_bytes(8, "big"), 5, (("h", b"1"),)),
    ]


class Tick(Processor):
    """Sends the time, and where its record comes from, at each punctuation."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def process(self, record: Record) -> None:
        """Takes no notice of records."""

    def _tick(self, now: int) -> None:
        context = self.context
        context.send("ticks", str(now), f"{context.topic} {context.partition} {context.offset}")


def test_a_punctuator_sends_with_its_own_time() -> None:
    task = task_of(Topology().add_source("source", "in").add_processor("tick", supplier(Tick), "source"))
    task.advance_wall_clock(10)
    assert sent(task) == [("ticks", "10", "None -1 -1", 10)]


def test_internal_topics_are_not_for_sending() -> None:
    task = task_of(_topology(lambda context, record: context.send("test-x-repartition", "a", "b")))
    task.add_records("in", 0, batch_of(("k", "v", 5)))
    with pytest.raises(StreamsError) as caught:
        task.process()
    assert str(caught.value.__cause__).startswith("Processor call cannot send to the internal topic test-x-repartition")


def test_the_context_says_where_a_record_comes_from() -> None:
    def show(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record.with_value(f"{context.topic}/{context.partition}/{context.offset}"))

    task = task_of(_topology(show))
    task.add_records("in", 0, batch_of(("k", "v", 5), first_offset=9))
    task.process()
    assert sent(task) == [("out", "k", "in/0/9", 5)]


@pytest.mark.parametrize("caching", [False, True])
def test_clear_removes_what_is_committed_and_what_is_not(caching: bool) -> None:
    builder = Stores.key_value_store_builder(Stores.in_memory_key_value_store("store"), STRING, STRING)
    builder = builder.with_caching_enabled() if caching else builder

    def put_or_clear(context: ProcessorContext, record: Record[Any, Any]) -> None:
        store = context.get_state_store("store")
        if record.value == "clear":
            store.clear()
        else:
            store.put(record.key, record.value)

    topology = _topology(put_or_clear).add_state_store(builder, "call")
    task = task_of(topology, cache_bytes=1 << 20)
    task.add_records("in", 0, batch_of(("a", "1", 1), ("b", "2", 2)))
    task.process()
    task.flush()
    task.committed(task.changes(), b"first")
    task.add_records("in", 0, batch_of(("c", "3", 3), ("", "clear", 4), ("d", "4", 5), first_offset=2))
    task.process()
    task.flush()
    assert task.changes() == {"store": {b"a": None, b"b": None, b"c": None, b"d": b"4"}}


def test_a_store_that_is_not_connected_is_named_with_the_call_that_connects_it() -> None:
    topology = _topology(lambda context, record: context.get_state_store("last").get("k"))
    task = task_of(topology)
    task.add_records("in", 0, batch_of(("k", "v", 5)))
    with pytest.raises(StreamsError) as caught:
        task.process()
    told = "".join(traceback.format_exception(caught.value))
    assert "call is connected to: none" in told
    assert "Topology.connect_processor_and_state_stores('call', 'last')" in told
