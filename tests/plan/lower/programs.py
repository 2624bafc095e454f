"""Programs as topologies, for the tests of what each operator becomes."""

from __future__ import annotations

from penstock import StreamsBuilder
from penstock.plan.subtopology import BuiltTopology, NodeSpec, ProcessorSpec, SinkSpec
from penstock.processor.api import Processor


def nodes_of(built: BuiltTopology) -> dict[str, NodeSpec]:
    return {node.name: node for part in built.subtopologies for node in part.nodes}


def build(builder: StreamsBuilder) -> BuiltTopology:
    return builder.build().build("app")


def processors(built: BuiltTopology) -> dict[str, Processor]:
    """Return a new processor of each node, by name."""
    found = nodes_of(built)
    return {name: node.supplier.get() for name, node in found.items() if isinstance(node, ProcessorSpec)}


def kinds(built: BuiltTopology) -> list[str]:
    """Return the classes of the processors, in the order of their addition."""
    return [type(each).__name__ for each in processors(built).values()]


def sinks(built: BuiltTopology) -> list[SinkSpec]:
    return [node for node in nodes_of(built).values() if isinstance(node, SinkSpec)]
