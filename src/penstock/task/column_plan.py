"""Selects the nodes that run column by column after each entry of a batch.

`execution` runs them. They support columns, share no store with another node in the meantime, and are not reachable
through a node without column support.

A user's Processor or FixedKeyProcessor never works on columns, because `forward` is a call: it returns after the
children have processed the record, or raises their errors. So the processor may change the forwarded value, catch the
error of a child, send records between two forwards, and schedule punctuations that are due with the next record. With
columns, the children would run after the processor has seen the whole batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.processor.api import BatchProcessor, ColumnProcessor, Processor
from penstock.processor.suppress import TableSuppress
from penstock.serdes.api import Library
from penstock.state.api import EngineStore
from penstock.task.error_handling import ErrorHandling
from penstock.task.join_nodes import JoinNodes
from penstock.task.processor_topology import ProcessorNode, ProcessorTopology, SinkNode, SourceNode
from penstock.task.record_sender import DeadLetterSink

Entry = SourceNode | ProcessorNode
Child = ProcessorNode | SinkNode | DeadLetterSink


@dataclass(frozen=True)
class ColumnPlan:
    """The nodes that run column by column after some entries.

    Args:
        nodes: in topological order.
        joins: of these nodes, those that run together.
        positions: whether rows need positions.
        record_sections: whether a path leads to nodes that run record by record.
    """

    entries: Sequence[Entry]
    nodes: tuple[ProcessorNode, ...]
    joins: tuple[JoinNodes, ...]
    positions: bool
    record_sections: bool

    @cached_property
    def steps(self) -> Sequence[ProcessorNode | JoinNodes]:
        """What runs one after the other: a join at the place of the last of its nodes."""
        joined = {name: join for join in self.joins for name in join.names}
        steps = dict.fromkeys(joined.get(node.name, node) for node in reversed(self.nodes))
        return list(steps)[::-1]


def column_nodes(topology: ProcessorTopology, errors: ErrorHandling) -> frozenset[str]:
    """Return the names of nodes that support columns while no other node uses their stores.

    The evictions of a bounded store depend on every single read, and the entries of a store with a time to live on the
    time of every single record, so their nodes work record by record. So do nodes that write the records that they
    drop, but do not report dropped rows. If the task may
    continue after an error, only a user's function may fail in these nodes, which affects one row: they have no stores,
    and no sinks or suppress() below, whose errors may belong to their parent. A user's handler is called in the order
    of the records, so no node works on columns then.
    """
    if errors.ask_in_order:
        return frozenset()
    return frozenset(
        node.name
        for node in topology.processors
        if isinstance(node.processor, ColumnProcessor)
        and not (node.dropped_sinks and not _drops_rows(node.processor))
        and topology.bounded_stores.isdisjoint(node.stores)
        and not (errors.may_resume and (node.stores or any(map(_fails_its_parent, _receivers(node)))))
    )


def using_headers(topology: ProcessorTopology, stores: Mapping[str, EngineStore]) -> frozenset[str]:
    """Return the names of nodes with a store that uses the headers of records.

    A serde of the store, by name in `stores`, uses them. These nodes process records with headers one by one.
    """
    return frozenset(
        node.name for node in topology.processors if any(stores[name].uses_headers for name in node.stores)
    )


def _drops_rows(processor: Processor) -> bool:
    return isinstance(processor, BatchProcessor) and processor.drops_rows


def _receivers(node: ProcessorNode) -> Sequence[Child]:
    """Return the children of `node`, and the sinks of its dropped records."""
    return *node.children, *node.dropped_sinks


def _fails_its_parent(child: Child) -> bool:
    """Return whether errors of `child` may belong to the node above it."""
    return isinstance(child, SinkNode) or (
        isinstance(child, ProcessorNode) and isinstance(child.processor, TableSuppress)
    )


def column_plan(
    entries: Sequence[Entry],
    topology: ProcessorTopology,
    able: frozenset[str],
    errors: ErrorHandling,
    joins: Sequence[JoinNodes] = (),
) -> ColumnPlan:
    """Return the plan after `entries`, whose rows run together.

    Without record sections, a key-value store can only be used in the meantime by the nodes reached from the batch.
    Record sections advance stream time between the rows, and so allow any punctuation. If entries expire or are
    evicted, the earlier actions of other nodes matter. A node that forwards itself does so after its batch, when no
    other rows are in progress: so there is no record section below it, in which stream time and the current record
    would be those of an earlier row.
    """
    joined = {name for join in joins for name in join.names}
    able |= joined
    sharing_ever = sharing(topology.processors) - joined
    able -= {
        node.name
        for node in topology.processors
        if _forwards_itself(node) and not all(below.name in able for below in _below((node,)))
    }
    others = {node.name for node in topology.processors if not topology.key_value_stores.issuperset(node.stores)}
    able -= (sharing(_below(entries)) - joined) | (sharing_ever & others)
    plan = _plan_of(entries, topology, able, errors, joins)
    if any(len(node.children) > 1 for node in (*entries, *plan.nodes[:-1])):
        able -= {node.name for node in plan.nodes if _forwards_itself(node)}
        plan = _plan_of(entries, topology, able, errors, joins)
    return _plan_of(entries, topology, able - sharing_ever, errors, joins) if plan.record_sections else plan


def libraries_of(plan: ColumnPlan) -> tuple[Library | None, Library | None]:
    """Return the libraries of the arrays in which nodes below a source take keys and values; None for objects."""
    below = [node.processor for node in plan.nodes if any(node in entry.children for entry in plan.entries)]
    found = [processor.libraries for processor in below if isinstance(processor, BatchProcessor)]
    keys, values = (next(filter(None, libraries), None) for libraries in zip(*found, (None, None), strict=True))
    return keys, values


def passes_keys(plan: ColumnPlan) -> bool:
    """Return whether no node below a source looks at keys, but sinks."""
    processors = [node.processor for node in plan.nodes]
    return not plan.record_sections and all(
        isinstance(each, BatchProcessor) and each.passes_keys for each in processors
    )


def _forwards_itself(node: Child | Entry) -> bool:
    """Return whether the output of `node`, if it works on columns, is outside its plan."""
    return (
        isinstance(node, ProcessorNode)
        and isinstance(node.processor, BatchProcessor)
        and node.processor.forwards_itself
    )


def _below(entries: Sequence[Entry]) -> list[ProcessorNode]:
    """Return the processors reachable from `entries`, also through caches."""
    found: dict[str, ProcessorNode] = {}
    below: list[Child] = [child for entry in entries for child in entry.children]
    while below:
        node = below.pop()
        if isinstance(node, ProcessorNode) and node.name not in found:
            found[node.name] = node
            below.extend(node.children)
    return list(found.values())


def sharing(nodes: Sequence[ProcessorNode]) -> set[str]:
    """Return the names of those `nodes` that share a store with another of them."""
    users = Counter(store for node in nodes for store in node.stores)
    return {node.name for node in nodes if any(users[store] > 1 for store in node.stores)}


def _plan_of(
    entries: Sequence[Entry],
    topology: ProcessorTopology,
    able: frozenset[str],
    errors: ErrorHandling,
    joins: Sequence[JoinNodes],
) -> ColumnPlan:
    unable: set[str] = set()
    reached: set[str] = set()
    below: list[tuple[Child, bool]] = [(child, False) for entry in entries for child in entry.children]
    while below:  # a node below a record section belongs to it, whatever other paths lead there
        node, in_section = below.pop()
        in_section = in_section or (isinstance(node, ProcessorNode) and node.name not in able)
        if node.name in reached and (node.name in unable or not in_section):
            continue
        reached.add(node.name)
        if in_section:
            unable.add(node.name)
        if in_section or not _forwards_itself(node):
            below.extend((child, in_section) for child in node.children)
    split = {name for join in joins if not unable.isdisjoint(join.names) for name in join.names}
    if not split.isdisjoint(able):  # all nodes of a join run together, or each record by record
        return _plan_of(entries, topology, able - split, errors, joins)
    nodes = tuple(node for node in topology.processors if node.name in reached - unable)
    inner = {node.name for node in nodes}
    edges = [
        child
        for start in (*entries, *(node for node in nodes if not _forwards_itself(node)))
        for child in start.children
    ]
    leaving = [child for child in edges if child.name not in inner]
    entered = [child.name for child in edges if child.name in inner]
    record_sections = errors.ask_in_order or any(isinstance(child, ProcessorNode) for child in leaving)
    positions = record_sections or errors.writes_dead_letters or len(leaving) > 1 or len(entered) > len(set(entered))
    positions = positions or any(node.dropped_sinks for node in nodes)
    together = tuple(join for join in joins if not inner.isdisjoint(join.names))
    return ColumnPlan(entries, nodes, together, positions or bool(together), record_sections)
