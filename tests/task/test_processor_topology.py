"""The nodes of a task, run record by record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.errors import StreamsError
from penstock.exception_handlers import LogAndContinueExceptionHandler
from penstock.plan.broadcast import every_partition
from penstock.plan.subtopology import SinkSpec, SubtopologySpec, TaskId
from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorContext
from penstock.record import Headers, Record, RecordBatch, RecordMetadata
from penstock.serdes import Serdes
from penstock.task.error_handling import ProcessingError
from penstock.task.processor_topology import ProcessorNode, ProcessorTopology, SinkNode
from penstock.task.record_sender import RecordSender
from tests.task.topologies import AnyTopic, batch_of, nodes_of, supplier

AT = RecordMetadata("in", 0, 4)


class Upper(Processor):
    """Makes values upper case; `fails`: the method that fails, init or close."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        if self.fails == "init":
            raise ValueError("not ready")

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_value(record.value.upper()))

    def close(self) -> None:
        if self.fails == "close":
            raise ValueError("stuck")


def chain(fails: str = "") -> Topology:
    topology = Topology().add_source("S", "in").add_processor("P", supplier(lambda: Upper(fails)), "S")
    return topology.add_processor("Q", supplier(Upper), "P").add_sink("K", "out", "Q")


def test_a_record_passes_through_all_nodes_below() -> None:
    nodes = nodes_of(chain())
    for node in nodes.topology.processors:
        node.init()
    nodes.topology.processors[0].process(Record("k", "value", 5))
    assert [(sent.topic, sent.value) for sent in nodes.collector.drain_in_order()] == [("out", b"VALUE")]


def test_an_error_has_the_name_of_the_node_that_failed_below_others() -> None:
    nodes = nodes_of(chain())
    first, second = nodes.topology.processors
    for node in (first, second):
        node.init()
    nodes.topology.before_each("K", lambda record: 1 / 0)
    with pytest.raises(ProcessingError) as caught:
        first.process(Record("k", "value", 5))
    assert (caught.value.node, type(caught.value.error)) == ("Q", ZeroDivisionError)
    assert nodes.task.record is None


def begin_and_end(node: ProcessorNode) -> None:
    node.init()
    node.close()


@pytest.mark.parametrize(
    ("fails", "says"), [("init", "failed to initialize processor P"), ("close", "failed to close processor P")]
)
def test_a_processor_that_cannot_begin_or_end_is_named(fails: str, says: str) -> None:
    node = nodes_of(chain(fails)).topology.processors[0]
    with pytest.raises(StreamsError) as caught:
        begin_and_end(node)
    assert str(caught.value) == says
    assert not node.initializing


def test_rows_that_cannot_be_read_are_dropped_with_the_others_in_order() -> None:
    topology = Topology().add_source("S", "in", value_serde=Serdes.long())
    nodes = nodes_of(topology, **{"deserialization.exception.handler": LogAndContinueExceptionHandler})
    rows = [(b"a", (1).to_bytes(8), 1, 0, ()), (b"b", b"no number", 2, 1, ()), (None, (2).to_bytes(8), 3, 2, ())]
    read = nodes.topology.sources[0].deserialize("in", 0, RecordBatch.of(rows))
    assert (read.keys, read.values, read.offsets.tolist()) == (["a", None], [1, 2], [0, 2])
    assert nodes.topology.sources[0].is_canonical(batch_of(("k", "8 bytes.", 1)))


def sink_with(**options: Any) -> Topology:
    return Topology().add_source("S", "in").add_sink("K", options.pop("topic", "out"), "S", **options)


@pytest.mark.parametrize(("chosen", "sent_to"), [(None, [0]), (set(), []), ({3, 1}, [1, 3])])
def test_a_partitioner_sends_to_all_that_it_chooses(chosen: set[int] | None, sent_to: list[int]) -> None:
    nodes = nodes_of(sink_with(partitioner=lambda topic, key, value, count: chosen), partitions=4)
    nodes.topology.nodes["K"].process(Record("k", "v", 5))  # type: ignore[union-attr]  # a sink
    assert [sent.partition for sent in nodes.collector.drain_in_order()] == sent_to
    assert sum(nodes.task.dropped_records.values()) == (chosen == set())


def test_a_partitioner_that_takes_the_headers_gets_those_of_the_record() -> None:
    def by_count(topic: str, key: str, value: str, headers: Headers, count: int) -> set[int]:
        return {len(headers)}

    nodes = nodes_of(sink_with(partitioner=by_count), partitions=4)
    sink = nodes.topology.nodes["K"]
    assert isinstance(sink, SinkNode)
    two = (("a", b"1"), ("a", None))
    sink.process(Record("k", "v", 5, two))
    first = nodes.collector.reserve(1)
    sink.process_columns(RecordBatch.of([("k", "v", 5, 0, two)]), np.arange(first, first + 1))
    assert [sent.partition for sent in nodes.collector.drain_in_order()] == [2, 2]


def test_a_partition_that_is_chosen_twice_gets_one_record() -> None:
    nodes = nodes_of(sink_with(partitioner=lambda topic, key, value, count: [2, 0, 2]), partitions=4)
    nodes.topology.nodes["K"].process(Record("k", "v", 5))  # type: ignore[union-attr]  # a sink
    assert [sent.partition for sent in nodes.collector.drain_in_order()] == [0, 2]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"partitioner": lambda topic, key, value, count: 1}, "returned 1 for topic out: expected a set of partitions"),
    ({"partitioner": lambda topic, key, value, count: {"1"}}, r"returned {'1'} for topic out: expected a set"),
    ({"partitioner": lambda topic, key, value, count: {4}}, "chose partition 4 of topic out, which has partitions 0"),
    ({"topic": lambda key, value, context: None}, "returned None for the input record at topic in, partition 0"),
    ({"topic": lambda key, value, context: "a b"}, r"offset 4, which cannot be the name of a topic: it "),
    ({"value_serde": Serdes.long()}, "cannot write the value to topic out: LongSerde was given str 'v'"),
]


@pytest.mark.parametrize(("options", "says"), MISTAKES)
def test_a_sink_that_cannot_write_names_itself_and_the_input(options: dict[str, Any], says: str) -> None:
    nodes = nodes_of(sink_with(**options), partitions=4)
    nodes.task.metadata = AT
    with pytest.raises(StreamsError, match=says) as caught:
        nodes.topology.nodes["K"].process(Record("k", "v", 5))  # type: ignore[union-attr]  # a sink
    assert "sink K" in str(caught.value).replace("Sink", "sink")


@pytest.mark.parametrize(
    ("partitioner", "rows", "copies"),
    [
        (None, 4, 1),
        (lambda topic, key, value, count: {len(value) % count}, 2, 1),
        (lambda topic, key, value, count: {2, 0}, 4, 2),
        (every_partition, 4, 3),
    ],
)
def test_columns_are_written_as_their_records(partitioner: Any, rows: int, copies: int) -> None:
    written = [("a", "x"), (None, "yy"), ("b", None), ("a", "zzz")][:rows]
    batch = RecordBatch.of([(key, value, 5, at, ()) for at, (key, value) in enumerate(written)])
    outputs = []
    for by_columns in (False, True):
        nodes = nodes_of(sink_with(partitioner=partitioner), partitions=3)
        sink = nodes.topology.nodes["K"]
        assert isinstance(sink, SinkNode)
        if by_columns:
            first = nodes.collector.reserve(len(batch))
            sink.process_columns(batch, np.arange(first, first + len(batch)))
        else:
            for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
                nodes.task.metadata = RecordMetadata("in", 0, row)
                sink.process(Record(key, value, 5))
        outputs.append(list(nodes.collector.drain_in_order()))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len(batch) * copies


def test_a_tap_is_taken_off_without_what_was_set_before_it() -> None:
    nodes = nodes_of(chain())
    for node in nodes.topology.processors:
        node.init()
    seen: list[Any] = []
    assert not nodes.topology.before_each("S", seen.append)
    assert nodes.topology.before_each("Q", seen.append)
    nodes.task.taps.open("Q", 5)
    nodes.topology.tap("Q")
    nodes.topology.processors[0].process(Record("k", "a", 5))
    nodes.topology.untap("Q")
    nodes.topology.processors[0].process(Record("k", "b", 6))
    assert [record.value for record in seen] == ["A", "B"]
    assert [record.value for record in nodes.task.taps.records("Q")] == ["A"]


def test_a_sink_has_no_nodes_below_it() -> None:
    nodes = nodes_of(chain())
    sender = RecordSender(nodes.collector, AnyTopic(1), TaskId(0, 0), nodes.task.offset)
    sinks = SinkSpec("K", ("S",), "out"), SinkSpec("L", ("K",), "x")
    spec = SubtopologySpec(0, (nodes.topology.sources[0].spec, *sinks))
    with pytest.raises(StreamsError, match=r"Sink K cannot be a parent of L\."):
        ProcessorTopology(spec, nodes.task, nodes.collector, sender, nodes.errors)
