"""Which joins of two streams run column by column, and which record by record."""

from __future__ import annotations

from typing import Any

from penstock import JoinWindows, StreamsBuilder
from penstock.plan.topology import Topology
from penstock.processor.api import Processor
from penstock.record import Record
from penstock.task.join_nodes import join_nodes
from tests.support.joins import LEFT, OUT, RIGHT, STRING, pair
from tests.task.topologies import nodes_of, supplier

WINDOWS = JoinWindows.of_time_difference_with_no_grace(5)


def joined(builder: StreamsBuilder) -> Topology:
    return builder.build({"default.key.serde": STRING, "default.value.serde": STRING})


def two_streams(late_to: str | None = None) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(LEFT).join(builder.stream(RIGHT), pair, WINDOWS)
    stream.to(OUT)
    if late_to is not None:
        stream.late_to(late_to)
    return joined(builder)


def test_both_sides_of_an_inner_join_are_found() -> None:
    nodes = nodes_of(two_streams())
    (join,) = join_nodes(nodes.topology, nodes.errors)
    assert len(join.names) == 4
    assert [node.children for node in join.windows] == [[node] for node in join.joins]
    assert join.counted - join.names == {name for node in join.joins for name in node.stores}


class Idle(Processor):
    """A user's processor that may read the store of a join."""

    def process(self, record: Record[Any, Any]) -> None:
        """Do nothing."""


def test_no_join_is_found_whose_store_another_node_reads() -> None:
    topology = two_streams()
    (store, *_) = next(iter(topology.build("test").subtopologies)).stores
    topology.add_processor("own", supplier(Idle), "KSTREAM-SOURCE-0000000000")
    topology.connect_processor_and_state_stores("own", store)
    nodes = nodes_of(topology)
    assert join_nodes(nodes.topology, nodes.errors) == ()


def test_no_join_is_found_that_writes_dropped_records_or_is_a_self_join() -> None:
    dropping = nodes_of(two_streams(late_to="dropped"))
    assert join_nodes(dropping.topology, dropping.errors) == ()
    builder = StreamsBuilder()
    stream = builder.stream(LEFT)
    stream.join(stream, pair, WINDOWS).to(OUT)
    itself = nodes_of(builder.build({"topology.optimization": "single.store.self.join"}))
    assert join_nodes(itself.topology, itself.errors) == ()
