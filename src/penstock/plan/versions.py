"""The nodes of a plan that have versions (KIP-889, KIP-914).

These are tables in versioned stores, and nodes that derive from them. Pure functions over nodes.
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
    """Return whether the updates of `node` carry versions, None if its parents determine that."""
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
    """Return whether the updates of `node` may carry versions, regardless of its parents."""
    return own_versions(node) is not False
