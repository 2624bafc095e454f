"""Sinks to internal topics that a lake or Spark reads: their nodes, with names and serdes."""

from __future__ import annotations

from dataclasses import replace

from penstock.dsl.arguments import checked_partitions, inherited, option
from penstock.dsl.graph import Graph
from penstock.dsl.options import Produced
from penstock.lake.tables import Delta, Iceberg, LakeMode, LakeSink
from penstock.plan import names, nodes
from penstock.plan.internal_topics import LAKE_SUFFIX


def internal_sink(graph: Graph, parent: nodes.NodeId, suffix: str, produced: Produced | None) -> nodes.StreamSinkNode:
    """Return the sink of a topic that is named after the sink and read outside of the topology."""
    options = option(produced, Produced())
    name = graph.names.processor_name(options.name, names.STREAM_SINK)
    options = inherited(f"Sink {name}", options, *graph.serdes_of(parent))
    return nodes.StreamSinkNode(
        name=name,
        parents=(parent,),
        topic=f"{name}{suffix}",
        key_serde=options.key_serde,
        value_serde=options.value_serde,
        partitioner=options.partitioner,
    )


def lake_sink(
    graph: Graph,
    parent: nodes.NodeId,
    table: Iceberg | Delta,
    mode: LakeMode,
    produced: Produced | None,
    partitions: int | None,
) -> nodes.StreamSinkNode:
    """Return the sink of a topic that the application copies to `table`, see `KStream.to_lake`."""
    if not isinstance(table, Iceberg | Delta):
        raise TypeError(f"to_lake takes an Iceberg or a Delta of penstock.lake, got {table!r}.")
    sink = internal_sink(graph, parent, LAKE_SUFFIX, produced)
    return replace(sink, lake=LakeSink(table, sink.key_serde, sink.value_serde, checked_partitions(partitions), mode))
