"""Plans by hand, node by node, for the tests of what is derived from them."""

from __future__ import annotations

from typing import Any

from penstock.plan import nodes as n
from penstock.plan.names import RepartitionNames
from penstock.processor.joiner import JoinType
from penstock.serdes import Serdes
from penstock.state.api import StoreBuilder
from penstock.state.stores import Stores

TEXT = Serdes.string()


def store(name: str = "store", **options: Any) -> StoreBuilder:
    return StoreBuilder(Stores.in_memory_key_value_store(name), TEXT, TEXT, **options)


def versioned_store(name: str = "versions") -> StoreBuilder:
    supplier = Stores.persistent_versioned_key_value_store(name, 1000)
    return Stores.versioned_key_value_store_builder(supplier, TEXT, TEXT)


def stream(*topics: str, **options: Any) -> n.StreamSourceNode:
    return n.StreamSourceNode(name=f"read-{'-'.join(topics)}", topics=topics, **options)


def table(topic: str, **options: Any) -> n.TableSourceNode:
    given = {"store": store(f"{topic}-store"), "queryable": False, **options}
    return n.TableSourceNode(name=f"table-{topic}", source_name=f"read-{topic}", topic=topic, **given)


def keep(*parents: n.NodeId, name: str = "keep") -> n.FilterNode:
    return n.FilterNode(name=name, parents=parents, predicate=lambda key, value: True, negate=False)


def rekey(*parents: n.NodeId, name: str = "rekey") -> n.SelectKeyNode:
    return n.SelectKeyNode(name=name, parents=parents, selector=lambda key, value: value)


def revalue(*parents: n.NodeId, name: str = "revalue") -> n.MapValuesNode:
    return n.MapValuesNode(name=name, parents=parents, mapper=str, with_key=False)


def repartition(topic: str, *parents: n.NodeId, **options: Any) -> n.RepartitionNode:
    names = RepartitionNames.of_topic(f"{topic}-repartition")
    return n.RepartitionNode(
        name=names.source, parents=parents, names=names, **{"key_serde": None, "value_serde": None, **options}
    )


def lookup(stream: n.NodeId, table: n.NodeId, type: JoinType = JoinType.INNER) -> n.StreamTableJoinNode:
    return n.StreamTableJoinNode(
        name="lookup", parents=(stream,), table=table, joiner=lambda one, other: one, with_key=False, type=type
    )
