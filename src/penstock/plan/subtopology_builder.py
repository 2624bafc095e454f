"""The construction of `BuiltTopology` from registered nodes.

It determines the nodes, full topic names, children, stores and internal topics of each sub-topology. It checks nothing:
registration has already done that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from penstock.plan.broadcast import broadcasts_of
from penstock.plan.internal_topics import changelog_topic, full_name, repartition_topic, task_topic
from penstock.plan.java_collections import hash_order
from penstock.plan.subtopology import BuiltTopology, NodeSpec, ProcessorSpec, SinkSpec, SourceSpec, SubtopologySpec
from penstock.state.api import StoreBuilder, StoreSource


class QuickUnion:
    """Disjoint sets of names, united pair by pair, with path splitting (Kafka class: QuickUnion)."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add `name` as a new set."""
        self._parents[name] = name

    def root(self, name: str) -> str:
        """Return the representative of the set of `name`; raises KeyError for an unknown name."""
        parents = self._parents
        current, parent = name, parents[name]
        while parent != current:
            grandparent = parents[parent]
            parents[current] = grandparent
            current, parent = parent, grandparent
        return current

    def unite(self, name: str, others: Iterable[str]) -> None:
        """Unite the set of `name` with those of `others`; raises KeyError for unknown names."""
        for other in others:
            self._parents[self.root(name)] = self.root(other)


def node_groups(names: Iterable[str], union: QuickUnion) -> list[list[str]]:
    """Return `names` in groups; the index of a group is the id of its sub-topology.

    Parents and children, and nodes that share a store, are in one group (`union`). The first node of each group
    determines the order of the groups, and names keep their order.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(union.root(name), []).append(name)
    return list(groups.values())


def build_topology(
    application_id: str,
    groups: Mapping[int, Sequence[NodeSpec]],
    stores: Mapping[str, StoreBuilder],
    internal_topics: Mapping[str, int | None],
    copartitioned_sources: Iterable[frozenset[str]],
    store_topics: Mapping[str, str],
    global_nodes: Sequence[NodeSpec],
    outside_topics: Set[str] = frozenset(),
) -> BuiltTopology:
    """Return the topology of `application_id` as plain data.

    Args:
        application_id: prefix of the internal topics.
        groups: the nodes of each sub-topology by its id, in the order of their addition; topics without prefix,
            children not yet known.
        stores: all stores by name, connected or not.
        internal_topics: the repartition topics (no prefix) and the numbers of partitions that the user fixed.
        copartitioned_sources: sets of names of sources whose topics must have equal numbers of partitions.
        store_topics: the source topics that fill stores in place of a changelog, by the store's name.
        global_nodes: the nodes of all global stores.
        outside_topics: the topics (no prefix) between the topology and Spark DataFrames or tables of a lake.
    """
    sources = [node for group in groups.values() for node in group if isinstance(node, SourceSpec)]
    of_tasks = [topic for node in sources if node.has_task_topic for topic in node.topics]
    full_names = {topic: full_name(application_id, topic) for topic in (*internal_topics, *outside_topics, *of_tasks)}
    broadcasts = internal_topics.keys() & broadcasts_of(node for group in groups.values() for node in group)
    topics_of = {node.name: {full_names.get(topic, topic) for topic in node.topics} for node in sources}
    return BuiltTopology(
        subtopologies=tuple(
            _subtopology(id, application_id, nodes, stores, full_names, internal_topics, broadcasts, store_topics)
            for id, nodes in groups.items()
        ),
        repartition_topics={
            full_names[topic]: repartition_topic(application_id, topic, partitions)
            for topic, partitions in internal_topics.items()
        },
        task_topics={full_names[topic]: task_topic(application_id, topic) for topic in of_tasks},
        copartition_groups=_united(
            {topic for source in together for topic in topics_of[source]} for together in copartitioned_sources
        ),
        global_topology=_subtopology(-1, application_id, global_nodes, stores, full_names, {}, frozenset(), {})
        if global_nodes
        else None,
    )


def _subtopology(
    id: int,
    application_id: str,
    nodes: Sequence[NodeSpec],
    stores: Mapping[str, StoreBuilder],
    full_names: Mapping[str, str],
    internal_topics: Mapping[str, int | None],
    broadcasts: Set[str],
    store_topics: Mapping[str, str],
) -> SubtopologySpec:
    children: dict[str, list[str]] = {node.name: [] for node in nodes}
    connected: dict[str, StoreBuilder] = {}
    for node in nodes:
        if not isinstance(node, SourceSpec):
            for parent in node.parents:
                children[parent].append(node.name)
        if isinstance(node, ProcessorSpec):
            names = hash_order(node.stores)
            connected.update((name, _filled(stores[name], store_topics.get(name), nodes)) for name in names)
    finished = tuple(
        _finished(node, tuple(children[node.name]), full_names, internal_topics, broadcasts) for node in nodes
    )
    return SubtopologySpec(
        id=id,
        nodes=finished,
        stores=connected,
        source_topics=_unique(
            topic
            for node in finished
            if isinstance(node, SourceSpec) and not node.has_task_topic
            for topic in node.topics
        ),
        sink_topics=_unique(node.topic for node in finished if isinstance(node, SinkSpec) and node.topic is not None),
        changelogs={
            name: changelog_topic(application_id, store, store_topics.get(name))
            for name, store in connected.items()
            if store.logging or name in store_topics
        },
    )


def _filled(store: StoreBuilder, topic: str | None, nodes: Sequence[NodeSpec]) -> StoreBuilder:
    """Return `store` with the serdes of `topic`, which fills it.

    Without such a topic, `store` has its own changelog and is returned as it is.
    """
    for node in nodes:
        if topic is not None and isinstance(node, SourceSpec) and topic in node.topics:
            return replace(store, source=StoreSource(topic, node.key_serde, node.value_serde))
    return store


def _finished(
    node: NodeSpec,
    children: tuple[str, ...],
    full_names: Mapping[str, str],
    internal_topics: Mapping[str, int | None],
    broadcasts: Set[str],
) -> NodeSpec:
    match node:
        case SourceSpec():
            topics = tuple(full_names.get(topic, topic) for topic in node.topics)
            return replace(
                node,
                topics=topics,
                children=children,
                repartition=any(topic in internal_topics for topic in node.topics),
                broadcast=any(topic in broadcasts for topic in node.topics),
            )
        case ProcessorSpec():
            return replace(node, children=children)
        case SinkSpec():
            if node.topic is None:
                return node
            return replace(
                node, topic=full_names.get(node.topic, node.topic), repartition=node.topic in internal_topics
            )


def _unique(topics: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topics))


def _united(groups: Iterable[set[str]]) -> tuple[frozenset[str], ...]:
    """Return `groups`, united if they share a topic."""
    result: list[set[str]] = []
    for group in groups:
        shared = [known for known in result if known & group]
        result = [known for known in result if not known & group]
        result.append(group.union(*shared))
    return tuple(frozenset(group) for group in result if group)
