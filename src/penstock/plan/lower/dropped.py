"""Lowering of the writes of dropped records.

An operator may have several sinks: one for each input, since their values have different serdes, and one for the
null-key filter of each repartition, which belongs to another sub-topology.
"""

from __future__ import annotations

from penstock.plan import nodes as n
from penstock.plan.droppers import droppers, repartitions_of
from penstock.plan.lower.lowering import Lowering
from penstock.plan.names import check_name
from penstock.plan.subtopology import DroppedSinkSpec


def add_dropped_records(lowering: Lowering, node: n.DroppedRecordsNode) -> None:
    """Add the sinks of the records that the parent of `node` drops."""
    (operator,) = node.parents
    for dropper in droppers(lowering.plan, operator):
        lowering.topology.add_dropped_sink(
            DroppedSinkSpec(
                name=check_name(node.name + dropper.suffix),
                parents=dropper.processors,
                topic=node.topic,
                key_serde=node.key_serde,
                value_serde=node.value_serdes[min(dropper.input, len(node.value_serdes) - 1)],
                partitioner=node.partitioner,
            )
        )
    for id, repartition in repartitions_of(lowering.plan, operator):
        if id in lowering.keeping_null_keys:
            continue
        lowering.topology.add_dropped_sink(
            DroppedSinkSpec(
                name=check_name(f"{node.name}-{repartition.names.filter}"),
                parents=(repartition.names.filter,),
                topic=node.topic,
                key_serde=repartition.key_serde or node.key_serde,
                value_serde=repartition.value_serde or node.value_serdes[0],
                partitioner=node.partitioner,
            )
        )
