"""Broadcasts: internal topics with each record in every partition.

A broadcast is a repartition topic whose sink has the partitioner `every_partition`. All other code recognises it by
that partitioner.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.plan.subtopology import BuiltTopology, NodeSpec, SinkSpec, SourceSpec


def every_partition(topic: str, key: Any, value: Any, partitions: int) -> set[int]:
    """Return all partitions of a topic, from 0 to `partitions` - 1 (KIP-837: a multicast)."""
    return set(range(partitions))


def broadcasts_of(nodes: Iterable[NodeSpec]) -> frozenset[str]:
    """Return the topics to which the sinks among `nodes` write each record in every partition."""
    return frozenset(
        node.topic
        for node in nodes
        if isinstance(node, SinkSpec) and node.topic is not None and node.partitioner is every_partition
    )


def read_broadcasts(nodes: Iterable[NodeSpec]) -> frozenset[str]:
    """Return the broadcasts that the sources among `nodes` read."""
    return frozenset(
        topic for node in nodes if isinstance(node, SourceSpec) and node.broadcast for topic in node.topics
    )


def all_broadcasts(topology: BuiltTopology) -> frozenset[str]:
    """Return the full names of all broadcasts of `topology`."""
    return frozenset().union(*(read_broadcasts(spec.nodes) for spec in topology.subtopologies))
