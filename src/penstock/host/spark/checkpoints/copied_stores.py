"""The stores that each task has a copy of, because they are filled by broadcasts.

A store belongs to the processors whose suppliers bring it, such as that of a table; without any, to all that are
connected to it. If those receive only records of broadcasts, each task has all entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import StreamsError
from penstock.plan.broadcast import read_broadcasts
from penstock.plan.subtopology import NodeSpec, ProcessorSpec, SourceSpec, SubtopologySpec


def copied_stores(spec: SubtopologySpec) -> frozenset[str]:
    """Return the names of the stores of `spec` that each task has a copy of.

    Raises StreamsError if a store may have entries of broadcasts and of other records.
    """
    if not read_broadcasts(spec.nodes):
        return frozenset()
    received: dict[str, frozenset[bool]] = {}
    for node in spec.nodes:  # parents before children
        received[node.name] = _received(node, received, spec.nodes)
    found = set()
    for name in spec.stores:
        connected = [node for node in spec.nodes if isinstance(node, ProcessorSpec) and name in node.stores]
        owners = [node for node in connected if name in {store.name for store in node.supplier.stores()}] or connected
        origins = frozenset().union(*(received[node.name] for node in owners))
        if len(origins) > 1:
            raise StreamsError(
                f"Store {name} is filled by {', '.join(node.name for node in owners)} with records of a broadcast and "
                "with others, so which of its entries every task needs is unknown, and it cannot be re-partitioned. "
                "Give the entries of the broadcast a store of their own, in stores() of the supplier of a processor "
                "that receives nothing else, such as with broadcast().to_table()."
            )
        if True in origins:
            found.add(name)
    return frozenset(found)


def _received(node: NodeSpec, above: Mapping[str, frozenset[bool]], nodes: Sequence[NodeSpec]) -> frozenset[bool]:
    """Return whether the records that reach `node` come from a broadcast, from other topics, or both.

    Answers of calls stand for the records that wait for them, in the store of an earlier node. Requests about parked
    records add nothing to a store.
    """
    if not isinstance(node, SourceSpec):
        return frozenset().union(*(above[parent] for parent in node.parents))
    if node.parked is not None:
        return frozenset()
    if node.calls is None:
        return frozenset((node.broadcast,))
    inboxes = (each.name for each in nodes if isinstance(each, ProcessorSpec) and node.calls.store in each.stores)
    return frozenset().union(*(above[name] for name in inboxes if name in above))
