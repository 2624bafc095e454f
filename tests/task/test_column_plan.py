"""Which nodes run column by column, and which stay record by record."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler, ProcessingExceptionHandler
from penstock.plan.topology import Topology
from penstock.processor.aggregate import StreamCount
from penstock.processor.api import Processor
from penstock.processor.stateless import StreamMapValues
from penstock.record import Headers, Record
from penstock.serdes import StringSerde
from penstock.state.api import StoreBuilder
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.suppliers import KeyValueBytesStoreSupplier, LruMapBytesStoreSupplier
from penstock.task.column_plan import column_nodes, column_plan, passes_keys, sharing, using_headers
from penstock.task.processor_state_manager import ProcessorStateManager
from tests.task.topologies import LONG, STRING, Nodes, nodes_of, only_subtopology, supplier


class Own(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class OwnHandler(ProcessingExceptionHandler):
    """A handler of the user's own."""


def mapped(*names: str, own: str = "") -> Topology:
    """Return a chain below S; the nodes in `own` are processors of the user's."""
    topology, parent = Topology().add_source("S", "in"), "S"
    for name in names:
        topology.add_processor(name, supplier(Own if name in own else lambda: StreamMapValues(str, False)), parent)
        parent = name
    return topology


def able(nodes: Nodes) -> frozenset[str]:
    return column_nodes(nodes.topology, nodes.errors)


def planned(nodes: Nodes) -> tuple[list[str], bool, bool]:
    plan = column_plan(nodes.topology.sources[:1], nodes.topology, able(nodes), nodes.errors)
    return [node.name for node in plan.nodes], plan.positions, plan.record_sections


def counted(*names: str, store: KeyValueBytesStoreSupplier | LruMapBytesStoreSupplier | None = None) -> Topology:
    """Return a source with counts below, which share one store."""
    topology = Topology().add_source("S", "in")
    for name in names:
        topology.add_processor(name, supplier(lambda: StreamCount("s")), "S")
    builder = StoreBuilder(store or KeyValueBytesStoreSupplier("s", True), STRING, LONG, timestamped=True)
    return topology.add_state_store(builder, *names)


def test_a_chain_of_operators_is_one_plan_without_positions() -> None:
    assert planned(nodes_of(mapped("A", "B").add_sink("K", "out", "B"))) == (["A", "B"], False, False)


def test_keys_pass_a_plan_whose_nodes_do_not_look_at_them() -> None:
    def with_key() -> Topology:
        mapper = supplier(lambda: StreamMapValues(max, True))
        return mapped("A").add_processor("B", mapper, "A").add_sink("K", "out", "B")

    def passing(nodes: Nodes) -> bool:
        return passes_keys(column_plan(nodes.topology.sources[:1], nodes.topology, able(nodes), nodes.errors))

    assert passing(nodes_of(mapped("A", "B").add_sink("K", "out", "B")))
    assert not passing(nodes_of(with_key()))
    assert not passing(nodes_of(mapped("A", "X", own="X").add_sink("K", "out", "X")))
    assert not passing(nodes_of(counted("C")))


def test_rows_need_positions_where_the_paths_divide() -> None:
    topology = mapped("A").add_sink("K", "out", "A").add_sink("L", "other", "A")
    assert planned(nodes_of(topology)) == (["A"], True, False)


def test_a_processor_of_the_users_own_is_an_island_with_all_below_it() -> None:
    nodes = nodes_of(mapped("A", "X", "B", own="X").add_sink("K", "out", "B"))
    assert able(nodes) == {"A", "B"}
    assert planned(nodes) == (["A"], True, True)


def test_a_node_that_another_path_reaches_through_an_island_belongs_to_it() -> None:
    topology = mapped("A", "X", own="X")
    topology.add_processor("B", supplier(lambda: StreamMapValues(str, False)), "A", "X")
    assert planned(nodes_of(topology)) == (["A"], True, True)


def test_nodes_that_share_a_store_are_not_in_one_plan() -> None:
    alone, shared = nodes_of(counted("C")), nodes_of(counted("C", "D"))
    assert planned(alone) == (["C"], False, False)
    assert planned(shared)[0] == []
    assert sharing(alone.topology.processors) == set()
    assert sharing(shared.topology.processors) == {"C", "D"}


def test_nodes_of_a_bounded_store_work_record_by_record() -> None:
    assert able(nodes_of(counted("C"))) == {"C"}
    assert able(nodes_of(counted("C", store=LruMapBytesStoreSupplier("s", 5)))) == frozenset()


@pytest.mark.parametrize(
    ("handler", "expected"), [(LogAndContinueProcessingExceptionHandler, {"A"}), (OwnHandler, set())]
)
def test_a_task_that_goes_on_after_errors_has_fewer_columns(handler: type, expected: set[str]) -> None:
    config = {"processing.exception.handler": handler}
    topology = mapped("A", "B").add_sink("K", "out", "B")
    assert able(nodes_of(topology)) == {"A", "B"}
    assert able(nodes_of(topology, **config)) == expected, "an error of the sink would be that of B"
    assert able(nodes_of(counted("C"), **config)) == frozenset()


class Telling(StringSerde):
    """A serde that looks at headers."""

    def serialize(self, topic: str, value: str, headers: Headers = ()) -> bytes:
        return f"{value}{len(headers)}".encode()


@pytest.mark.parametrize(("serde", "expected"), [(STRING, set()), (Telling(), {"C"})])
def test_a_node_uses_headers_if_a_serde_of_its_store_does(serde: StringSerde, expected: set[str]) -> None:
    topology = Topology().add_source("S", "in").add_processor("C", supplier(lambda: StreamCount("s")), "S")
    topology.add_state_store(StoreBuilder(KeyValueBytesStoreSupplier("s", True), serde, LONG, timestamped=True), "C")
    nodes = nodes_of(topology)
    state = ProcessorStateManager(only_subtopology(topology), "", nodes.task, MemoryBase(), RecordCache(0))
    assert using_headers(nodes.topology, state.stores) == expected
