"""What all lowering shares: processors below their parents, with their stores."""

from __future__ import annotations

import pytest

from penstock.errors import TopologyError
from penstock.plan import nodes as n
from penstock.plan.lower.lowering import Lowering
from penstock.plan.subtopology import NodeSpec, ProcessorSpec
from penstock.processor.stateless import StreamMerge
from tests.plan.plans import keep, store, stream

PLAN: n.Plan = {0: stream("a"), 1: stream("b"), 2: keep(1, 0)}


@pytest.fixture
def lowering() -> Lowering:
    lowering = Lowering(PLAN, None)
    for topic in "ab":
        lowering.topology.add_source(f"read-{topic}", topic)
    return lowering


def added(lowering: Lowering) -> tuple[ProcessorSpec, NodeSpec]:
    (part,) = lowering.topology.build("app").subtopologies
    *_, first, last = part.nodes
    assert isinstance(last, ProcessorSpec)
    return last, first


def test_a_processor_has_the_name_and_the_parents_of_its_node(lowering: Lowering) -> None:
    assert lowering.parents(PLAN[2]) == ["read-b", "read-a"]
    lowering.add_processor(PLAN[2], StreamMerge, store())
    processor, _ = added(lowering)
    assert (processor.name, processor.parents, processor.stores) == ("keep", ("read-b", "read-a"), ("store",))
    assert isinstance(processor.supplier.get(), StreamMerge)


def test_a_processor_of_another_name_may_be_below_any_node(lowering: Lowering) -> None:
    lowering.add_processor(PLAN[2], StreamMerge)
    lowering.add_processor_below("further", ["keep"], StreamMerge)
    further, above = added(lowering)
    assert (further.parents, above.name) == (("keep",), "keep")
    with pytest.raises(TopologyError, match="Parent node gone is unknown"):
        lowering.add_processor_below("lost", ["gone"], StreamMerge)
