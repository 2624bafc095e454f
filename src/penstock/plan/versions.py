"""Which nodes of a plan have versions: tables in versioned stores, and those that follow from them (KIP-889, KIP-914).

Pure functions over nodes.
"""

from __future__ import annotations

from penstock.plan import nodes as n
from penstock.state.api import StoreBuilder

VERSIONED = "versioned"
NOT_VERSIONED = "KTable must be versioned to use a grace period in a stream table join."


def is_versioned_store(store: StoreBuilder | None) -> bool:
    """Return whether `store` keeps versions."""
    return store is not None and store.kind == VERSIONED


def own_versions(node: n.GraphNode) -> bool | None:
    """Return whether the updates of `node` carry versions, None if that follows from its parents."""
    match node:
        case n.TableFilterNode() | n.TableMapValuesNode() | n.TableTransformValuesNode():
            return node.versioned
        case n.TableSuppressNode():
            return False
        case (
            n.TableSourceNode()
            | n.StreamToTableNode()
            | n.CountNode()
            | n.ReduceNode()
            | n.AggregateNode()
            | n.TableCountNode()
            | n.TableReduceNode()
            | n.TableAggregateNode()
            | n.WindowedTableNode()
            | n.TableTableJoinNode()
            | n.ForeignKeyJoinNode()
        ):
            return is_versioned_store(node.store)
        case _:
            return None


def may_be_versioned(node: n.GraphNode) -> bool:
    """Return whether the updates of `node` may carry versions, as far as its parents do not matter."""
    return own_versions(node) is not False
