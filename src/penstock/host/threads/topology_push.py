"""The topology description that a member pushes to its coordinator (KIP-1331; Kafka class:
StreamsGroupTopologyDescriptionRequestManager).

A coordinator that keeps descriptions asks for one in its answer to a heartbeat; tools such as kafka-streams-groups.sh
show it.
"""

from __future__ import annotations

from typing import Final

from penstock.client.sockets.connection import Api
from penstock.plan.describe import (
    NodeDescription,
    ProcessorDescription,
    SinkDescription,
    SourceDescription,
    describe_subtopology,
)
from penstock.plan.subtopology import BuiltTopology, ProcessorSpec, SourceSpec, SubtopologySpec
from penstock_broker.wire.codec import Message

TOPOLOGY_DESCRIPTION_UPDATE: Final = Api("StreamsGroupTopologyDescriptionUpdate", 93, 0, 0)

_SOURCE, _PROCESSOR, _SINK = 1, 2, 3
"""The types of nodes on the wire."""


def encode_description(topology: BuiltTopology) -> Message:
    """Return the description of a topology for StreamsGroupTopologyDescriptionUpdate."""
    return {
        "subtopologies": [
            {"subtopology_id": str(spec.id), "nodes": [_node(node) for node in _described(spec)]}
            for spec in topology.subtopologies
        ],
        "global_stores": [] if topology.global_topology is None else _global_stores(topology.global_topology),
    }


def _described(spec: SubtopologySpec) -> tuple[NodeDescription, ...]:
    return describe_subtopology(spec.id, {node.name: node for node in spec.nodes}).nodes


def _global_stores(spec: SubtopologySpec) -> list[Message]:
    """Return each source of global stores with its processor."""
    sources = {node.name: node for node in spec.nodes if isinstance(node, SourceSpec)}
    nodes = {node.name: _node(node) for node in _described(spec)}
    return [
        {"source": nodes[parent], "processor": nodes[processor.name]}
        for processor in spec.nodes
        if isinstance(processor, ProcessorSpec)
        for parent in processor.parents
        if parent in sources
    ]


def _node(node: NodeDescription) -> Message:
    match node:
        case SourceDescription(name, topics, pattern, successors):
            known = [] if pattern is not None else list(topics)
            return {"name": name, "node_type": _SOURCE, "source_topics": known, "successors": list(successors)}
        case ProcessorDescription(name, stores, _, successors):
            return {"name": name, "node_type": _PROCESSOR, "stores": list(stores), "successors": list(successors)}
        case SinkDescription(name, topic):
            return {"name": name, "node_type": _SINK, "sink_topic": topic}
