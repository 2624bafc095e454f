"""The Processor API: base classes, and the contexts that implement its interface."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from penstock import FixedKeyProcessorContext, Processor, ProcessorContext, ProcessorSupplier, Record
from penstock.plan.topology import Topology
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, RowOrigin, SimpleSupplier
from penstock.record import RecordBatch
from penstock.state.stores import Stores
from penstock.task.context import NodeContext
from penstock.testing import MockProcessorContext
from tests.task.topologies import output_of, supplier


def test_a_processor_keeps_its_context_and_must_define_process() -> None:
    processor: Processor = Processor()
    context = MockProcessorContext()
    processor.init(context)
    assert processor.context is context
    with pytest.raises(NotImplementedError, match=r"^Processor must define process\(self, record\)\.$"):
        processor.process(Record("k", "v", 0))
    processor.close()


def test_a_supplier_must_define_get_and_has_no_stores_by_default() -> None:
    class Empty(ProcessorSupplier):
        pass

    assert Empty().stores() == ()
    with pytest.raises(NotImplementedError, match=r"^Empty must define get\(self\)\.$"):
        Empty().get()


def test_a_simple_supplier_makes_new_processors_with_its_stores() -> None:
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), None, None)
    made = SimpleSupplier(Processor, [store])
    assert made.get() is not made.get()
    assert made.stores() == (store,)


def parameters(owner: type, name: str) -> Any:
    member = inspect.getattr_static(owner, name, None)
    assert member is not None, f"{owner.__name__} has no {name}"
    return list(inspect.signature(member).parameters) if inspect.isfunction(member) else type(member)


@pytest.mark.parametrize(
    ("interface", "context"),
    [
        (ProcessorContext, MockProcessorContext),
        (ProcessorContext, FixedKeyProcessorContext),
        (ProcessorContext, NodeContext),
        (EngineContext, NodeContext),
    ],
)
def test_a_context_has_each_member_with_the_same_parameters(interface: type, context: type) -> None:
    names = [name for name in dir(interface) if not name.startswith("_")]
    assert len(names) > 15
    for name in names:
        expected = parameters(interface, name)
        if (context, name) == (FixedKeyProcessorContext, "call"):
            expected.remove("key")  # its calls have the key of the record
        assert parameters(context, name) == expected, name


def test_a_batch_processor_returns_its_rows_for_all_children() -> None:
    class Doubled(BatchProcessor):
        def process(self, record: Record[Any, Any]) -> None:
            for _ in range(2):
                self.context.forward(record)

        def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
            rows = np.repeat(np.arange(len(batch)), 2)
            return batch.take(rows), rows

    assert not Doubled().holds_back
    assert not Doubled().forwards_itself
    topology = Topology().add_source("S", "in").add_processor("D", supplier(Doubled), "S").add_sink("K", "out", "D")
    for execution in ("auto", "record"):
        output = output_of(topology, [("a", "x", 1), ("b", "y", 2)], execution=execution)
        assert output == [("a", "x", 1)] * 2 + [("b", "y", 2)] * 2
