"""The description of a topology, for users.

It contains the sub-topologies and nodes as plain data, Kafka's text for them, and the contents of their picture.

Rules: nodes of a sub-topology are sorted by the size of the graph below them, largest first, then by name. Names of
internal topics have no prefix.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from penstock import notebook
from penstock.plan import picture
from penstock.plan.java_collections import TreeOrder, copied_hash_order, hash_order
from penstock.plan.subtopology import NodeSpec, ProcessorSpec, SinkSpec, SourceSpec, TopicNameExtractor
from penstock.plan.user_lines import made_at
from penstock.serdes import Serde


@dataclass(frozen=True)
class SourceDescription:
    """A source and its topics, or its pattern (Kafka class: TopologyDescription.Source)."""

    name: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    successors: tuple[str, ...]

    def __str__(self) -> str:
        topics = f"[{', '.join(self.topics)}]" if self.topic_pattern is None else self.topic_pattern
        return f"Source: {self.name} (topics: {topics})\n      --> {_names(self.successors)}"


@dataclass(frozen=True)
class ProcessorDescription:
    """A processor and its stores (Kafka class: TopologyDescription.Processor)."""

    name: str
    stores: tuple[str, ...]
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"Processor: {self.name} (stores: [{', '.join(self.stores)}])\n"
            f"      --> {_names(self.successors)}\n      <-- {_names(self.predecessors)}"
        )


@dataclass(frozen=True)
class SinkDescription:
    """A sink and its topic, or its topic name extractor (Kafka class: TopologyDescription.Sink)."""

    name: str
    topic: str | None
    topic_name_extractor: TopicNameExtractor | None
    predecessors: tuple[str, ...]

    @property
    def target(self) -> str:
        """The topic, or the name of the topic name extractor."""
        extractor = self.topic_name_extractor
        return str(self.topic) if extractor is None else function_name(extractor)

    def __str__(self) -> str:
        kind = "topic" if self.topic_name_extractor is None else "extractor class"
        return f"Sink: {self.name} ({kind}: {self.target})\n      <-- {_names(self.predecessors)}"


NodeDescription = SourceDescription | ProcessorDescription | SinkDescription


@dataclass(frozen=True)
class SubtopologyDescription:
    """The nodes of one sub-topology, in Kafka's order (Kafka class: TopologyDescription.Subtopology)."""

    id: int
    nodes: tuple[NodeDescription, ...]

    def text(self, shown: Callable[[NodeDescription], str] = str) -> str:
        """Return Kafka's text, with each node as formatted by `shown`."""
        return f"Sub-topology: {self.id}\n" + "".join(f"    {shown(node)}\n" for node in self.nodes) + "\n"

    __str__ = text


@dataclass(frozen=True)
class GlobalStoreDescription:
    """The source and the processor of a global store (Kafka class: TopologyDescription.GlobalStore)."""

    id: int
    source: SourceDescription
    processor: ProcessorDescription

    @property
    def nodes(self) -> tuple[NodeDescription, ...]:
        """Both nodes."""
        return (self.source, self.processor)

    def text(self, shown: Callable[[NodeDescription], str] = str) -> str:
        """Return Kafka's text, with each node as formatted by `shown`."""
        return (
            f"Sub-topology: {self.id} for global store (will not generate tasks)\n"
            f"    {shown(self.source)}\n    {shown(self.processor)}\n"
        )

    __str__ = text


@dataclass(frozen=True)
class TopologyDescription:
    """All sub-topologies and global stores by id; `str()` returns Kafka's text (Kafka class: TopologyDescription).

    Args:
        lines: the line of the program that made each node, as `program.py:12`, by node name; only known lines.
        serdes: the names of the key and value serdes of each source and sink, by node name; None for the configured
            default.
        capacities: the maximum number of calls in flight of each operator with calls, for each process, by node name.
        parked: the store of parked records of each operator that parks, by node name.
    """

    subtopologies: tuple[SubtopologyDescription, ...]
    global_stores: tuple[GlobalStoreDescription, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    serdes: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict, compare=False, repr=False)
    capacities: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    parked: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return "Topologies:\n " + "".join(f"  {entry}" for entry in self._entries())

    def with_lines(self) -> str:
        """Return Kafka's text, plus the program line that made each node."""
        return "Topologies:\n " + "".join(f"  {entry.text(self._with_line)}" for entry in self._entries())

    def _with_line(self, node: NodeDescription) -> str:
        head, end, rest = str(node).partition("\n")
        return f"{head}{made_at(self.lines.get(node.name))}{end}{rest}"

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain data.

        Each node has the line of the program that made it, if known.
        """
        return {
            kind: [
                {
                    "id": part.id,
                    "nodes": [{**node_fields(node), "line": self.lines.get(node.name)} for node in part.nodes],
                }
                for part in parts
            ]
            for kind, parts in (("subtopologies", self.subtopologies), ("global_stores", self.global_stores))
        }

    def to_mermaid(self) -> str:
        """Return the topology as a mermaid flowchart, for Markdown pages."""
        return picture.mermaid(self._graph)

    def to_svg(
        self,
        figures: Mapping[str, picture.Figure] | None = None,
        *,
        part_figures: Mapping[int, picture.Figure] | None = None,
        folded: Collection[int] = (),
        node_address: Callable[[str], str] | None = None,
        part_address: Callable[[int], str] | None = None,
    ) -> str:
        """Return the picture of the topology as an SVG document.

        Notebooks display it automatically.

        Args:
            figures: measurements by node name, which determine the colours; None for colours by kind.
            part_figures: measurements of sub-topologies and global stores, by id.
            folded: ids of the sub-topologies and global stores to draw as a single node.
            node_address: returns the link of a node, by its name; None for no links.
            part_address: returns the link of the title of a sub-topology or global store, by its id; None for no links.
        """
        entries = self._entries()
        shown = {f"node {name}": figure for name, figure in (figures or {}).items()}
        shown |= {_title(entry): each for entry in entries if (each := (part_figures or {}).get(entry.id))}
        addresses: dict[str, str] = {}
        if node_address is not None:
            addresses |= {f"node {node.name}": node_address(node.name) for entry in entries for node in entry.nodes}
        if part_address is not None:
            addresses |= {_title(entry): part_address(entry.id) for entry in entries}
        graph = self._graph.folded([_title(entry) for entry in entries if entry.id in folded])
        return picture.svg(graph, shown, addresses)

    def forms(self, title: str | None = None, facts: Mapping[str, str] | None = None) -> notebook.Forms:
        """Return the notebook forms of an object with this topology.

        They contain the picture and Kafka's text, below the `title` and further `facts` by name.
        """
        svg, facts = cache(self.to_svg), facts or {}
        text = str(self).rstrip()
        as_text = f"<details><summary>Description</summary>{notebook.preformatted(text)}</details>"
        return {
            notebook.TEXT: lambda: f"{notebook.heading_text(title, facts)}\n{text}" if title else text,
            notebook.HTML: lambda: notebook.with_heading(title or "Topology", facts, svg() + as_text),
            notebook.SVG: svg,
            notebook.MERMAID: self.to_mermaid,
        }

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        return notebook.mime_bundle(self.forms(), include, exclude)

    @cached_property
    def _graph(self) -> picture.Picture:
        return _graph(self._entries())

    def _entries(self) -> list[SubtopologyDescription | GlobalStoreDescription]:
        return sorted((*self.subtopologies, *self.global_stores), key=lambda entry: entry.id)


def serdes_of(nodes: Iterable[NodeSpec]) -> dict[str, tuple[str | None, str | None]]:
    """Return the names of the key and value serdes of each source and sink.

    None means the default.
    """
    return {
        node.name: (_type_name(node.key_serde), _type_name(node.value_serde))
        for node in nodes
        if not isinstance(node, ProcessorSpec)
    }


def capacities_of(nodes: Iterable[NodeSpec]) -> dict[str, int]:
    """Return the maximum number of calls in flight, for each process, of each operator with calls."""
    calls = [node.calls for node in nodes if isinstance(node, SourceSpec) and node.calls is not None]
    return {each.node: each.rules.capacity for each in calls}


def parked_of(nodes: Collection[NodeSpec]) -> dict[str, str]:
    """Return the store of parked records of each operator that parks."""
    stores = {node.name: node.parked for node in nodes if isinstance(node, SourceSpec) and node.parked is not None}
    return {
        node.name: stores[parent]
        for node in nodes
        if isinstance(node, ProcessorSpec)
        for parent in node.parents
        if parent in stores
    }


def _type_name(serde: Serde | None) -> str | None:
    return None if serde is None else type(serde).__name__


def describe_subtopology(id: int, nodes: Mapping[str, NodeSpec]) -> SubtopologyDescription:
    """Describe the sub-topology `id`.

    Args:
        id: the id of the sub-topology.
        nodes: its nodes by name, in the order of their addition.
    """
    sizes = dict.fromkeys(nodes, 1)
    predecessors = {name: TreeOrder(sizes) for name in nodes}
    successors = {name: TreeOrder(sizes) for name in nodes}

    for name in hash_order(hash_order(nodes)):
        for parent in _parents(nodes[name]):
            predecessors[name].add(parent)
            successors[parent].add(name)
            grown, delta = [parent], sizes[name]
            while grown:  # once for each path, as in Kafka
                above = grown.pop()
                sizes[above] += delta
                grown.extend(predecessors[above])
    order = sorted(nodes, key=lambda name: (-sizes[name], name))
    return SubtopologyDescription(
        id, tuple(_describe(nodes[name], predecessors[name], successors[name]) for name in order)
    )


def describe_global_store(id: int, source: SourceSpec, processor: ProcessorSpec) -> GlobalStoreDescription:
    """Describe the global store of node group `id`, which `processor` fills from `source`."""
    return GlobalStoreDescription(
        id,
        SourceDescription(source.name, source.topics, None, (processor.name,)),
        ProcessorDescription(processor.name, processor.stores, (source.name,), ()),
    )


def _describe(node: NodeSpec, predecessors: Iterable[str], successors: Iterable[str]) -> NodeDescription:
    match node:
        case SourceSpec():
            topics = tuple(copied_hash_order(node.topics))
            return SourceDescription(node.name, topics, node.pattern_text, tuple(successors))
        case ProcessorSpec():
            stores = tuple(copied_hash_order(hash_order(node.stores)))
            return ProcessorDescription(node.name, stores, tuple(predecessors), tuple(successors))
        case SinkSpec():
            return SinkDescription(node.name, node.topic, node.topic_extractor, tuple(predecessors))


def _parents(node: NodeSpec) -> tuple[str, ...]:
    return () if isinstance(node, SourceSpec) else node.parents


def node_fields(node: NodeDescription) -> dict[str, Any]:
    """Return a node as plain data."""
    match node:
        case SourceDescription():
            ends = {"successors": list(node.successors)}
            own = {"topics": list(node.topics), "topic_pattern": node.topic_pattern}
            return {"name": node.name, "kind": "source", **own, **ends}
        case ProcessorDescription():
            ends = {"predecessors": list(node.predecessors), "successors": list(node.successors)}
            return {"name": node.name, "kind": "processor", "stores": list(node.stores), **ends}
        case SinkDescription():
            ends = {"predecessors": list(node.predecessors)}
            return {"name": node.name, "kind": "sink", "topic": node.target, **ends}


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "none"


def function_name(function: TopicNameExtractor) -> str:
    """Return the name of a topic name extractor in descriptions."""
    return function.__qualname__ if inspect.isroutine(function) else str(function)


# ---------------------------------------- the picture


def _graph(entries: Iterable[SubtopologyDescription | GlobalStoreDescription]) -> picture.Picture:
    """Return the nodes and stores grouped by sub-topology, with the topics between them."""
    nodes: dict[str, picture.Box] = {}
    edges: list[picture.Edge] = []
    for entry in entries:
        group = _title(entry)
        nodes |= {f"node {node.name}": picture.Box(node.name, _shape(node), group) for node in entry.nodes}
        for node in entry.nodes:
            _add_edges(node, group, nodes, edges)
    return picture.Picture(nodes, tuple(edges))


def _title(entry: SubtopologyDescription | GlobalStoreDescription) -> str:
    kind = "Global store" if isinstance(entry, GlobalStoreDescription) else "Sub-topology"
    return f"{kind}: {entry.id}"


def _add_edges(node: NodeDescription, group: str, nodes: dict[str, picture.Box], edges: list[picture.Edge]) -> None:
    """Add the edges that leave `node`, and the topics and stores at their ends."""
    id = f"node {node.name}"
    match node:
        case SourceDescription():
            for topic in node.topics if node.topic_pattern is None else (node.topic_pattern,):
                nodes.setdefault(f"topic {topic}", picture.Box(topic, picture.Shape.TOPIC, None))
                edges.append(picture.Edge(f"topic {topic}", id))
        case ProcessorDescription():
            for store in node.stores:
                nodes.setdefault(f"store {store}", picture.Box(store, picture.Shape.STORE, group))
                edges.append(picture.Edge(id, f"store {store}", dashed=True))
        case SinkDescription():
            nodes.setdefault(f"topic {node.target}", picture.Box(node.target, picture.Shape.TOPIC, None))
            edges.append(picture.Edge(id, f"topic {node.target}"))
    if not isinstance(node, SinkDescription):
        edges.extend(picture.Edge(id, f"node {successor}") for successor in node.successors)


def _shape(node: NodeDescription) -> picture.Shape:
    match node:
        case SourceDescription():
            return picture.Shape.SOURCE
        case ProcessorDescription():
            return picture.Shape.PROCESSOR
        case SinkDescription():
            return picture.Shape.SINK
