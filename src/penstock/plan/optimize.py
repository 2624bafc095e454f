"""Optimisations of a plan according to `topology.optimization`, and the merging of duplicate sources.

Duplicate sources are always merged.

Rules: every function takes a plan and returns a new one. The results of a program stay the same, except for their order
if Kafka's optimisation changes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from penstock.errors import ConfigError, TopologyError
from penstock.plan import nodes as n
from penstock.plan.names import RepartitionNames
from penstock.plan.upstream import ancestors

REUSE_TABLE_SOURCE_TOPICS = "reuse.ktable.source.topics"
MERGE_REPARTITION_TOPICS = "merge.repartition.topics"
SINGLE_STORE_SELF_JOIN = "single.store.self.join"

_ALL = (REUSE_TABLE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN)
_ACCEPTABLE = (
    'Acceptable values are: "+NO_OPTIMIZATION+", "+OPTIMIZE+", or a comma separated list of specific optimizations: '
    '("+REUSE_KTABLE_SOURCE_TOPICS+", "+MERGE_REPARTITION_TOPICS+" + "SINGLE_STORE_SELF_JOIN+").'
)


def optimizations(config: Mapping[str, Any]) -> frozenset[str]:
    """Return the optimisations in `topology.optimization`: no optimisation, all, or a list.

    Raises ConfigError, with Kafka's text, for any other value.
    """
    value = config.get("topology.optimization") or "" if "topology.optimization" in config else "none"
    chosen = re.split(r"\s*,\s*", value)
    if len(chosen) > 1 and {"none", "all"} & set(chosen):
        raise ConfigError(f'"{value}" is not a valid optimization config. {_ACCEPTABLE}')
    if not set(chosen) <= {"none", "all", *_ALL}:
        raise ConfigError(f"Unrecognized config. {_ACCEPTABLE}")
    return frozenset(_ALL) if chosen == ["all"] else frozenset(chosen) - {"none"}


def optimize(plan: n.Plan, chosen: frozenset[str]) -> n.Plan:
    """Return `plan` with duplicate sources merged and the `chosen` optimisations applied.

    Raises TopologyError if sources cannot be merged.
    """
    merged = merge_duplicate_sources(plan)
    if REUSE_TABLE_SOURCE_TOPICS in chosen:
        merged = reuse_table_source_topics(merged)
    if MERGE_REPARTITION_TOPICS in chosen:
        merged = merge_repartitions(merged)
    return single_store_self_joins(merged) if SINGLE_STORE_SELF_JOIN in chosen else merged


def merge_duplicate_sources(plan: n.Plan) -> n.Plan:
    """Return `plan` with one source for each set of topics and each pattern.

    The first source remains and adopts the children of the others.

    Raises TopologyError if two sources share only some of their topics, or if their offset resets, the DataFrames
    that fill their topic or its histories differ.
    """
    result = dict(plan)
    by_topic: dict[str, n.NodeId] = {}
    by_pattern: dict[tuple[str, int], n.NodeId] = {}
    sources = [(id, node) for id, node in plan.items() if isinstance(node, n.StreamSourceNode)]
    first_of = dict(sources)
    for id, node in sources:
        first = id
        if node.pattern is not None:
            first = by_pattern.setdefault((node.pattern.pattern, node.pattern.flags), id)
        for topic in node.topics:
            first = by_topic.setdefault(topic, id)
            if set(first_of[first].topics) != set(node.topics):
                raise TopologyError("Two source nodes are subscribed to overlapping but not equal input topics")
        if first != id:
            if first_of[first].offset_reset != node.offset_reset:
                raise TopologyError("Can't configure different offset reset policies on the same input topic(s)")
            if first_of[first].data_frame is not node.data_frame:
                raise TopologyError(f"Two DataFrames write to {node.topics[0]}: give one of them another name.")
            if first_of[first].history is not node.history:
                raise TopologyError(
                    f"Topic {node.topics[0]} is read twice, and not with the same history: make one stream with "
                    "stream_from_history, and use it for both."
                )
            del result[id]
            _replace_parent(result, id, (first,))
    return result


def reuse_table_source_topics(plan: n.Plan) -> n.Plan:
    """Return `plan` with the source topics of tables as changelogs of their stores.

    A table's topic already contains all its records. Kafka: reuse.ktable.source.topics. A table with a time to live
    keeps its own changelog, since the topic has no tombstones of the expired entries.
    """
    return {
        id: replace(node, reuse_topic=True) if isinstance(node, n.TableSourceNode) and node.store.ttl is None else node
        for id, node in plan.items()
    }


def merge_repartitions(plan: n.Plan) -> n.Plan:
    """Return `plan` with one repartition directly below each node that changes keys.

    It replaces the repartitions before the individual operators. Kafka: merge.repartition.topics.

    A repartition moves only if no node on the way changes values or copies records to every task. The merged topic has
    the name of the first topic that it replaces. Nodes below the same child of a key-changing node share the
    repartition; Kafka 4.3 fails there. As in Kafka, a `process()` on the way does not prevent the move: a `process()`
    that changes keys needs a `repartition()`.
    """
    result = dict(plan)
    for changer, repartitions in _repartitions_by_key_changer(plan).items():
        if not repartitions:
            continue
        replaced = [_repartition(result, id) for id in repartitions]
        names = RepartitionNames.of_topic(replaced[0].names.topic)
        single = n.RepartitionNode(
            name=names.source,
            parents=(changer,),
            names=names,
            key_serde=next((node.key_serde for node in replaced if node.key_serde is not None), None),
            value_serde=next((node.value_serde for node in replaced if node.value_serde is not None), None),
        )
        single_id = max(result) + 1
        result = _inserted_after(result, changer, single_id, single)
        for id in repartitions:
            child = _child_above(result, changer, id)
            if child != single_id:  # not yet moved with an earlier repartition
                parents = tuple(parent for parent in result[child].parents if parent != changer)
                result[child] = replace(result[child], parents=(*parents, single_id))
            above = result.pop(id).parents
            _replace_parent(result, id, above)
    return result


def single_store_self_joins(plan: n.Plan) -> n.Plan:
    """Return `plan` with one window store and one processor for each self-join.

    Kafka: single.store.self.join.
    """
    result = dict(plan)
    for id, join in plan.items():
        if isinstance(join, n.StreamStreamJoinNode) and len(join.parents) == 1:
            result[id] = replace(join, self_join=True)
            windows = [other for other, node in plan.items() if node.name == join.other_windowed]
            for other in windows:
                if isinstance(plan[other], n.StreamJoinWindowNode) and plan[other].parents == join.parents:
                    del result[other]
    return result


def _repartition(plan: n.Plan, id: n.NodeId) -> n.RepartitionNode:
    node = plan[id]
    assert isinstance(node, n.RepartitionNode)
    return node


def _repartitions_by_key_changer(plan: n.Plan) -> dict[n.NodeId, list[n.NodeId]]:
    """Return the repartitions that can move up to each key-changing node.

    If all of a node's repartitions are below a merge, they move up to the merge instead. All are in the order of their
    creation.
    """
    by_age = sorted(plan.items(), key=itemgetter(0))
    result: dict[n.NodeId, list[n.NodeId]] = {id: [] for id, node in by_age if _changes_keys(node)}
    for id, node in by_age:
        if isinstance(node, n.RepartitionNode) and node.movable:
            changers = (
                other
                for other in ancestors(plan, id)
                if _changes_keys(plan[other]) or _changes_values(plan[other]) or _is_broadcast(plan[other])
            )
            nearest = next(changers, None)
            if nearest is not None and _changes_keys(plan[nearest]):
                result[nearest].append(id)
    for merge in [id for id, node in by_age if isinstance(node, n.MergeNode)]:
        above = [
            changer
            for changer, repartitions in result.items()
            if all(_is_below(plan, id, merge) for id in repartitions) and _is_below(plan, merge, changer)
        ]
        if above:
            result[merge] = list(dict.fromkeys(id for changer in above for id in result[changer]))
            for changer in above:
                del result[changer]
    return result


def _changes_keys(node: n.GraphNode) -> bool:
    return isinstance(node, n.MapNode | n.FlatMapNode | n.SelectKeyNode)


def _changes_values(node: n.GraphNode) -> bool:
    return isinstance(node, n.MapValuesNode | n.FlatMapValuesNode)


def _is_broadcast(node: n.GraphNode) -> bool:
    return isinstance(node, n.RepartitionNode) and node.is_broadcast


def _child_above(plan: n.Plan, parent: n.NodeId, id: n.NodeId) -> n.NodeId:
    """Return the child of `parent` that is the node `id` or an ancestor of it."""
    return next(candidate for candidate in ancestors(plan, id) if parent in plan[candidate].parents)


def _is_below(plan: n.Plan, id: n.NodeId, above: n.NodeId) -> bool:
    return any(above in plan[candidate].parents for candidate in ancestors(plan, id))


def _replace_parent(plan: dict[n.NodeId, n.GraphNode], removed: n.NodeId, parents: tuple[n.NodeId, ...]) -> None:
    """Give the children of `removed` the `parents` in its place.

    `removed` is no longer in `plan`.
    """
    for id, node in plan.items():
        if removed in node.parents:
            others = tuple(parent for parent in node.parents if parent != removed)
            plan[id] = replace(node, parents=tuple(dict.fromkeys((*others, *parents))))


def _inserted_after(plan: n.Plan, before: n.NodeId, id: n.NodeId, node: n.GraphNode) -> dict[n.NodeId, n.GraphNode]:
    result = {}
    for known, other in plan.items():
        result[known] = other
        if known == before:
            result[id] = node
    return result
