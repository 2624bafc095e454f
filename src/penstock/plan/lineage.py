"""The lineage of a topology: the topics and stores from which each of its outputs may come.

It follows from the nodes alone, before anything runs. The code of users is unknown: a processor may use each record
that reaches it, and may read and write each of its stores. Operators of the DSL say which stores they only read. A
processor of users may also read global stores, which is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.plan.describe import function_name
from penstock.plan.subtopology import BuiltTopology, NodeSpec, ProcessorSpec, SinkSpec, SourceSpec, SubtopologySpec
from penstock.plan.topology import Topology, built_topology
from penstock.processor.store_reader import StoreReader
from penstock.serdes import Serde
from penstock.serdes.fields import SchemaField, fields_of
from penstock.serdes.format import format_of


@dataclass(frozen=True)
class DataFormat:
    """The keys or values of a topic or a store.

    Args:
        name: the byte format, such as "string", or the class of the serde; None without a serde.
        fields: of the objects, with their types; empty if unknown, or without fields.
    """

    name: str | None
    fields: tuple[SchemaField, ...] = ()


@dataclass(frozen=True)
class SourceLineage:
    """A source and what it reads.

    Args:
        node: the name of the source.
        topics: full names; empty with a pattern.
        topic_pattern: matches whole names of topics; None with `topics`.
        internal: whether it reads a repartition topic or an answers topic.
    """

    node: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    internal: bool
    key: DataFormat
    value: DataFormat

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics, or the pattern."""
        return self.topics if self.topic_pattern is None else (self.topic_pattern,)


@dataclass(frozen=True)
class StoreLineage:
    """A store.

    Args:
        name: of the store.
        kind: such as "timestamped_key_value".
        changelog: full name of the topic with its changes; None if there is none.
        sources: the topics and patterns of the sub-topology from which its content may come.
    """

    name: str
    kind: str
    changelog: str | None
    sources: tuple[str, ...]
    key: DataFormat
    value: DataFormat


@dataclass(frozen=True)
class SinkLineage:
    """A sink and the origin of its records.

    Args:
        node: the name of the sink.
        topic: full name; None if a function chooses the topic of each record.
        topic_name_extractor: the name of that function; None with `topic`.
        internal: whether it writes to a repartition topic.
        sources: the topics and patterns, of the sub-topology and of global stores, from which its records may come.
        stores: the stores from which they may come, global ones at the end.
    """

    node: str
    topic: str | None
    topic_name_extractor: str | None
    internal: bool
    sources: tuple[str, ...]
    stores: tuple[str, ...]
    key: DataFormat
    value: DataFormat

    @property
    def output(self) -> str:
        """The topic, or the name of the function that chooses it."""
        return str(self.topic if self.topic_name_extractor is None else self.topic_name_extractor)


@dataclass(frozen=True)
class SubtopologyLineage:
    """The sources, stores and sinks of one sub-topology, or of all global stores."""

    id: int
    sources: tuple[SourceLineage, ...]
    stores: tuple[StoreLineage, ...]
    sinks: tuple[SinkLineage, ...]


@dataclass(frozen=True)
class OutputLineage:
    """A topic that the application writes for others.

    Args:
        topic: the topic, or the name of the function that chooses it.
        inputs: the topics and patterns from which its records may come, over all sub-topologies.
    """

    topic: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class TopologyLineage:
    """The lineage of a topology.

    Args:
        subtopologies: by ascending id.
        global_stores: their sources and stores; None without global stores.
        outputs: the topics written for others, each once, in the order of their sinks.
    """

    subtopologies: tuple[SubtopologyLineage, ...]
    global_stores: SubtopologyLineage | None
    outputs: tuple[OutputLineage, ...]

    @property
    def parts(self) -> tuple[SubtopologyLineage, ...]:
        """The sub-topologies, and the global stores at the end."""
        return (*self.subtopologies, *filter(None, [self.global_stores]))

    def origin(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the topics and patterns from which the records of the topics `names` come, over all sub-topologies."""
        return _origin(self.parts, names)


def lineage_by_name(topologies: Mapping[str, Topology], config: StreamsConfig) -> dict[str, TopologyLineage]:
    """Return the lineage of each topology of an application, by name.

    Args:
        topologies: by name; the name is empty if there is only one.
        config: the configuration with application.id and the default serdes.
    """
    application_id = config.required("application.id")
    ids = {name: f"{application_id}-{name}" if name else application_id for name in topologies}
    return {name: lineage_of(built_topology(each, ids[name]), config) for name, each in topologies.items()}


def lineage_of(built: BuiltTopology, config: StreamsConfig) -> TopologyLineage:
    """Return the lineage of a topology.

    Args:
        built: the topology.
        config: the configuration with the default serdes.
    """
    config = config.overridden(built.config_overrides)
    shared = built.global_topology
    parts = tuple(_lineage_of(part, shared, config) for part in built.subtopologies)
    global_stores = None if shared is None else _lineage_of(shared, None, config)
    return TopologyLineage(parts, global_stores, _outputs((*parts, *filter(None, [global_stores]))))


def _lineage_of(part: SubtopologySpec, shared: SubtopologySpec | None, config: StreamsConfig) -> SubtopologyLineage:
    graph = _Graph(part, shared)
    sources, sinks = [], []
    for node in part.nodes:
        match node:
            case SourceSpec():
                formats = _formats(node, config)
                sources.append(SourceLineage(node.name, node.topics, node.pattern_text, node.is_internal, *formats))
            case SinkSpec():
                name = None if node.topic_extractor is None else function_name(node.topic_extractor)
                origin, formats = graph.origin(node.parents), _formats(node, config)
                sinks.append(SinkLineage(node.name, node.topic, name, node.repartition, *origin, *formats))
            case ProcessorSpec():
                pass
    stores = []
    for name, store in part.stores.items():
        changelog, _ = part.changelogs.get(name, (None, {}))
        topics, _ = graph.origin(graph.writers[name])
        formats = _format(store.key_serde, "key", config), _format(store.value_serde, "value", config)
        stores.append(StoreLineage(name, store.kind, changelog, topics, *formats))
    return SubtopologyLineage(part.id, tuple(sources), tuple(stores), tuple(sinks))


class _Graph:
    """The nodes of a sub-topology, and the stores between them.

    Args:
        part: the sub-topology.
        shared: the global stores and their nodes; None without any.
    """

    def __init__(self, part: SubtopologySpec, shared: SubtopologySpec | None) -> None:
        self._nodes = {node.name: node for each in (part, shared) if each is not None for node in each.nodes}
        self._stores = tuple(name for each in (part, shared) if each is not None for name in each.stores)
        self._read: dict[str, set[str]] = {}
        self.writers: dict[str, list[str]] = {name: [] for name in self._stores}
        for node in self._nodes.values():
            if isinstance(node, ProcessorSpec):
                processor = node.supplier.get()
                reads = set(processor.read_stores() if isinstance(processor, StoreReader) else ())
                self._read[node.name] = reads.union(node.stores)
                for store in set(node.stores) - reads:
                    self.writers[store].append(node.name)

    def origin(self, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the topics and the stores from which records at the nodes `names` may come."""
        reached: set[str] = set()
        stores: set[str] = set()
        rest = list(names)
        while rest:
            name = rest.pop()
            node = self._nodes[name]
            if name not in reached and isinstance(node, ProcessorSpec):
                rest.extend(node.parents)
                stores |= self._read[name]
                rest.extend(writer for store in self._read[name] for writer in self.writers[store])
            reached.add(name)
        topics = dict.fromkeys(
            topic for each in self._nodes.values() if each.name in reached for topic in _read_by(each)
        )
        return tuple(topics), tuple(store for store in self._stores if store in stores)


def _read_by(node: NodeSpec) -> tuple[str, ...]:
    if not isinstance(node, SourceSpec):
        return ()
    return node.topics if node.pattern_text is None else (node.pattern_text,)


def _outputs(parts: tuple[SubtopologyLineage, ...]) -> tuple[OutputLineage, ...]:
    """Return the origin of each output, over the repartition topics between the sub-topologies."""
    outputs: dict[str, set[str]] = {}
    for sink in (sink for part in parts for sink in part.sinks if not sink.internal):
        outputs.setdefault(sink.output, set()).update(sink.sources)
    return tuple(OutputLineage(output, _origin(parts, direct)) for output, direct in outputs.items())


def _origin(parts: tuple[SubtopologyLineage, ...], names: Iterable[str]) -> tuple[str, ...]:
    """Return the topics of others from which the records of the topics `names` come, in the order of their sources."""
    internal: dict[str, set[str]] = {}
    for sink in (sink for part in parts for sink in part.sinks if sink.internal):
        internal.setdefault(sink.output, set()).update(sink.sources)
    reached: set[str] = set()
    rest = list(names)
    while rest:
        topic = rest.pop()
        if topic not in reached:
            reached.add(topic)
            rest.extend(internal.get(topic, ()))
    sources = (source for part in parts for source in part.sources if not source.internal)
    inputs = dict.fromkeys(topic for source in sources for topic in source.inputs)
    return tuple(topic for topic in inputs if topic in reached)


def _formats(node: SourceSpec | SinkSpec, config: StreamsConfig) -> tuple[DataFormat, DataFormat]:
    return _format(node.key_serde, "key", config), _format(node.value_serde, "value", config)


def _format(given: Serde | None, part: str, config: StreamsConfig) -> DataFormat:
    serde: Serde | None = config[f"default.{part}.serde"] if given is None else given
    if serde is None:
        return DataFormat(None)
    try:
        serde = serde.with_defaults(config["default.key.serde"], config["default.value.serde"])
    except ConfigError:  # an inner serde is missing; the start of the application reports it
        return DataFormat(type(serde).__name__)
    return DataFormat(format_of(serde) or type(serde).__name__, fields_of(serde))
