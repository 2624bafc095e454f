"""The shape of a program before it runs: what `evolution` compares with that of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.host.spark.protocol.placement import Placement, place, resolve_patterns, shape
from penstock.plan.partition_grouper import configured_grouper
from penstock.plan.subtopology import BuiltTopology


def program_shape(built: BuiltTopology, config: StreamsConfig, topics: Mapping[str, int]) -> dict[str, Any]:
    """Return the shape that a topology has where the brokers have `topics` (partitions by name); source topics that are
    not among them count one partition."""
    topology, placement = _placed(built, config, topics)
    return shape(topology, placement)


def store_partitions(built: BuiltTopology, config: StreamsConfig, topics: Mapping[str, int]) -> dict[str, int]:
    """Return in how many partitions (tasks) each store of a topology has its keys where the brokers have `topics`."""
    topology, placement = _placed(built, config, topics)
    return {
        name: sum(task.subtopology == spec.id for task in placement.tasks)
        for spec in topology.subtopologies
        for name in spec.stores
    }


def _placed(built: BuiltTopology, config: StreamsConfig, topics: Mapping[str, int]) -> tuple[BuiltTopology, Placement]:
    internal = frozenset(built.repartition_topics)
    topology = resolve_patterns(built, topics, internal)
    read = {topic for spec in topology.subtopologies for topic in spec.source_topics if topic not in internal}
    counts = {**dict.fromkeys(sorted(read), 1), **topics}
    return topology, place(topology, counts, 1, configured_grouper(config))
