"""The nodes, stores and internal topics of a topology, and their connections, with Kafka's checks.

It has no public methods for users: those are of `Topology`, its subclass.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import replace
from typing import Self

from penstock import notebook
from penstock.errors import TopologyError
from penstock.plan.copartition import check_copartitioned
from penstock.plan.describe import (
    TopologyDescription,
    capacities_of,
    describe_global_store,
    describe_subtopology,
    parked_of,
    serdes_of,
)
from penstock.plan.internal_topics import check_no_pattern
from penstock.plan.names import check_name
from penstock.plan.outside_topics import OutsideTopics
from penstock.plan.subtopology import (
    BuiltTopology,
    DeadLetterSinkSpec,
    DroppedSinkSpec,
    NodeSpec,
    ProcessorSpec,
    SinkSpec,
    SourceSpec,
)
from penstock.plan.subtopology_builder import QuickUnion, build_topology, node_groups
from penstock.plan.topology_config import TopologyConfig
from penstock.plan.user_lines import calling_line, made_at
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder, filled_by_topic

DEAD_LETTERS_SUFFIX = "-dead-letters"
"""The end of the name of the sink for records that fail each time."""

_log = logging.getLogger(__name__)


class InternalTopologyBuilder:
    """The nodes, stores and internal topics of a topology, and their connections.

    Names of internal topics have no application prefix until the topology is built. `topology_config` is the
    configuration needed during construction, or None. Kafka class: InternalTopologyBuilder.
    """

    def __init__(self, topology_config: TopologyConfig | None = None) -> None:
        self._config_overrides = {} if topology_config is None else topology_config.overrides
        self._wrapper = None if topology_config is None else topology_config.processor_wrapper
        self._nodes: dict[str, NodeSpec] = {}
        self._stores: dict[str, StoreBuilder] = {}
        self._store_users: dict[str, list[str]] = {}
        self._source_topics: set[str] = set()
        self._global_stores: dict[str, StoreBuilder] = {}
        self._global_nodes: dict[str, tuple[SourceSpec, ProcessorSpec]] = {}
        self._store_topics: dict[str, str] = {}
        self._internal_topics: dict[str, int | None] = {}
        self.outside_topics = OutsideTopics()  # filled by lowering; the sources and sinks are added like others
        self._copartitioned_sources: list[frozenset[str]] = []
        self._union = QuickUnion()
        self._line: str | None = None
        self._node_lines: dict[str, str] = {}
        self._store_lines: dict[str, str] = {}

    # ---------------------------------------- nodes

    def _add_node(self, node: NodeSpec) -> None:
        self._nodes[node.name] = node
        self._note_line(self._node_lines, node.name)
        self._union.add(node.name)
        parents = () if isinstance(node, SourceSpec) else node.parents
        self._union.unite(node.name, parents)
        below = f" below {', '.join(parents)}, which it is united with" if parents else ""
        _log.debug("%s %s is added%s.", type(node).__name__.removesuffix("Spec"), node.name, below)

    def at_line(self, line: str | None) -> None:
        """Set the line of the user's program for all later additions. None means the line of each call."""
        self._line = line

    def _note_line(self, lines: dict[str, str], name: str) -> None:
        line = calling_line() if self._line is None else self._line
        if line is not None:
            lines[name] = line

    def _check_new(self, name: str) -> None:
        if name is None:
            raise TypeError("name cannot be null")
        if name in self._nodes:
            raise TopologyError(f"Processor {name} is already added.")

    def _check_parents(self, name: str, parents: Iterable[str]) -> None:
        names = tuple(parents)
        if not names:
            raise TopologyError("predecessorNames cannot be empty")
        for parent in names:
            if parent is None:
                raise TypeError("parent name cannot be null")
            if parent not in self._nodes:
                itself = " (self-reference)" if parent == name else ""
                raise TopologyError(f"Parent node {parent} is unknown{itself}.")
            if isinstance(self._nodes[parent], SinkSpec):
                raise TopologyError(f"Sink {parent} cannot be used a parent.")

    def _check_topic(self, topic: str) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"Expected the names of topics one by one, got {topic!r}: unpack a list with *topics.")
        check_no_pattern(topic, "pattern={0!r}")
        if topic in self._source_topics or any(topic in source.topics for source, _ in self._global_nodes.values()):
            raise TopologyError(f"Topic {topic} has already been registered by another source.")
        for node in self._nodes.values():
            if isinstance(node, SourceSpec) and node.pattern is not None and node.pattern.fullmatch(topic):
                raise TopologyError(f"Topic {topic} matches a Pattern already registered by another source.")

    def _check_pattern(self, pattern: re.Pattern[str]) -> None:
        for topic in sorted(self._source_topics):
            if pattern.fullmatch(topic):
                raise TopologyError(
                    f"Pattern {pattern.pattern} will match a topic that has already been registered by another source."
                )

    # ---------------------------------------- stores

    def _add_store(self, store: StoreBuilder, allow_override: bool = False) -> None:
        known = self._stores.get(store.name)
        if known is not None and known is not store and not allow_override:
            raise self._two_stores(store.name)
        self._check_no_global_store(store.name)
        self._stores[store.name] = store
        _log.debug("Store %s is %s.", store.name, "added" if known is None or known is store else "replaced")
        if known is not store:
            self._note_line(self._store_lines, store.name)

    def _two_stores(self, name: str) -> TopologyError:
        """Return the error of a second store of a name."""
        error = TopologyError(f"A different StateStore has already been added with the name {name}")
        used = self._store_users.get(name)
        of = f" of {', '.join(used)}" if used else ""
        line = made_at(self._store_lines.get(name))
        error.add_note(f"There is a store {name}{of} already{line}: give each store a name of its own.")
        return error

    def _check_no_global_store(self, name: str) -> None:
        if name in self._global_stores:
            raise TopologyError(f"A different GlobalStateStore has already been added with the name {name}")

    def _connect(self, processor: str, store: str) -> None:
        if store in self._global_stores:
            raise TopologyError(
                f"Global StateStore {store} can be used by a Processor without being specified; it should not be "
                "explicitly passed."
            )
        if store not in self._stores:
            raise TopologyError(f"StateStore {store} is not added yet.")
        if processor not in self._nodes:
            raise TopologyError(f"Processor {processor} is not added yet.")
        node = self._nodes[processor]
        if not isinstance(node, ProcessorSpec):
            raise TopologyError(f"cannot connect a state store {store} to a source node or a sink node.")
        users = self._store_users.setdefault(store, [])
        self._union.unite(processor, users[:1])
        with_others = f", which is united with {users[0]}" if users and users != [processor] else ""
        _log.debug("Store %s is connected to %s%s.", store, processor, with_others)
        if store not in node.stores:
            users.append(processor)
            self._nodes[processor] = replace(node, stores=(*node.stores, store))

    # ---------------------------------------- additions of lowering besides nodes

    def add_internal_topic(self, topic: str, partitions: int | None = None) -> None:
        """Declare `topic` (no prefix) a repartition topic.

        `partitions` is the number that the user fixed, None if it follows from the topology.
        """
        self._internal_topics[topic] = partitions

    def add_task_source(self, source: SourceSpec) -> None:
        """Add the source of a task topic; raises TopologyError if its name is taken."""
        self._check_new(source.name)
        self._check_topic(source.name)
        self._source_topics.add(source.name)
        self._add_node(source)

    def add_dropped_sink(self, sink: DroppedSinkSpec) -> None:
        """Add the sink of the records that its parents drop.

        Raises TopologyError if its name is taken, or a parent is unknown or a sink.
        """
        self._check_new(sink.name)
        self._check_parents(sink.name, sink.parents)
        self._add_node(sink)

    def add_dead_letters(
        self, node: str, topic: str | None, key_serde: Serde | None, value_serde: Serde | None
    ) -> None:
        """Add the sink of the records of a node that fail each time.

        Args:
            node: the name of the node.
            topic: the topic; None adds nothing.
            key_serde: of the records.
            value_serde: of the records.
        """
        if topic is not None:
            self.add_dropped_sink(
                DeadLetterSinkSpec(
                    name=check_name(node + DEAD_LETTERS_SUFFIX),
                    parents=(node,),
                    topic=topic,
                    key_serde=key_serde,
                    value_serde=value_serde,
                )
            )

    def copartition_sources(self, sources: Iterable[str]) -> None:
        """Require equal numbers of partitions for the topics of `sources` (names of source nodes)."""
        self._copartitioned_sources.append(frozenset(sources))
        _log.debug("The topics of %s must have equal numbers of partitions.", ", ".join(sorted(sources)))

    def check_copartitioned(self) -> None:
        """Raise TopologyError if co-partitioned repartition topics have different fixed numbers of partitions."""
        topics = {node.name: node.topics for node in self._nodes.values() if isinstance(node, SourceSpec)}
        check_copartitioned(
            (frozenset(topic for name in names for topic in topics[name]) for names in self._copartitioned_sources),
            {topic: count for topic, count in self._internal_topics.items() if count is not None},
        )

    def state_store(self, name: str) -> StoreBuilder:
        """Return the store `name`; raises KeyError if it is unknown."""
        return self._stores[name]

    def connect_source_store_and_topic(self, store: str, topic: str) -> None:
        """Use `topic`, which the topology reads, as the changelog of `store`.

        Kafka: connectSourceStoreAndTopic.
        """
        self._store_topics[store] = topic

    def _add_global_store(self, store: StoreBuilder, source: SourceSpec, processor: ProcessorSpec) -> None:
        for name in (source.name, processor.name):
            self._check_new(name)
        if store.name in self._stores:
            raise self._two_stores(store.name)
        self._check_no_global_store(store.name)
        if source.name == processor.name:
            raise TopologyError("sourceName and processorName must be different.")
        for topic in source.topics:
            self._check_topic(topic)
        self._global_stores[store.name] = filled_by_topic(store)
        self._note_line(self._store_lines, store.name)
        self._global_nodes[source.name] = source, processor
        self._add_node(source)
        self._add_node(processor)

    # ---------------------------------------- the whole

    def _groups(self) -> tuple[dict[int, list[str]], dict[int, tuple[SourceSpec, ProcessorSpec]]]:
        """Return the node groups with tasks and those of global stores, by id."""
        groups = dict(enumerate(node_groups(self._nodes, self._union)))
        global_stores = {
            id: self._global_nodes[names[0]] for id, names in groups.items() if names[0] in self._global_nodes
        }
        return {id: names for id, names in groups.items() if id not in global_stores}, global_stores

    def describe(self) -> TopologyDescription:
        """Return the description of the topology; `print` shows it in Kafka's format."""
        groups, global_stores = self._groups()
        return TopologyDescription(
            tuple(
                describe_subtopology(id, {name: self._nodes[name] for name in names}) for id, names in groups.items()
            ),
            tuple(describe_global_store(id, *nodes) for id, nodes in global_stores.items()),
            dict(self._node_lines),
            serdes_of((*self._nodes.values(), *(source for source, _ in global_stores.values()))),
            capacities_of(self._nodes.values()),
            parked_of(self._nodes.values()),
        )

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        return notebook.mime_bundle(self.describe().forms(), include, exclude)

    def parents_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the nodes from which the node `name` receives records."""
        node = self._nodes[name]
        return () if isinstance(node, SourceSpec) else node.parents

    def source_above(self, names: Iterable[str], topic: str) -> str | None:
        """Return the source of a topic above some nodes, with its line, or None."""
        rest = list(names)
        seen: set[str] = set()
        while rest:
            name = rest.pop()
            node = self._nodes[name]
            if isinstance(node, SourceSpec) and node.reads(topic):
                return f"{name}{made_at(self._node_lines.get(name))}"
            rest.extend(each for each in self.parents_of(name) if each not in seen)
            seen.add(name)
        return None

    def upstream_of(self, *names: str) -> Self:
        """Return the topology of the nodes `names` and everything upstream of them.

        These are the nodes above them, also across repartition topics, the nodes that share stores with these, and all
        global stores.
        """
        needed: set[str] = set()
        rest = list(names)
        while rest:
            name = rest.pop()
            if name not in needed:
                needed.add(name)
                rest.extend(self._needed_by(self._nodes[name]))
        needed.update(node.name for both in self._global_nodes.values() for node in both)
        part = copy(self)
        part._nodes = {name: node for name, node in self._nodes.items() if name in needed}
        part._copartitioned_sources = [sources & part._nodes.keys() for sources in self._copartitioned_sources]
        return part

    def _needed_by(self, node: NodeSpec) -> Iterable[str]:
        """Return the names of the nodes on which `node` or its stores directly depend."""
        match node:
            case SourceSpec():
                internal = {topic for topic in node.topics if topic in self._internal_topics}
                return [n.name for n in self._nodes.values() if isinstance(n, SinkSpec) and n.topic in internal]
            case ProcessorSpec():
                return [*node.parents, *(user for store in node.stores for user in self._store_users.get(store, ()))]
            case SinkSpec():
                return node.parents

    def build(self, application_id: str) -> BuiltTopology:
        """Return the topology as plain data, with the internal topics of the application `application_id`."""
        groups, global_stores = self._groups()
        for id, names in groups.items():
            _log.debug("Sub-topology %d has the nodes %s.", id, ", ".join(names))
        for id, nodes in global_stores.items():
            _log.debug(
                "Group %d has no tasks, because it belongs to a global store: %s.", id, ", ".join(n.name for n in nodes)
            )
        built = build_topology(
            application_id,
            {id: [self._nodes[name] for name in names] for id, names in groups.items()},
            {**self._stores, **self._global_stores},
            self._internal_topics,
            self._copartitioned_sources,
            self._store_topics,
            [node for nodes in global_stores.values() for node in nodes],
            frozenset(self.outside_topics.internal),
        )
        return replace(
            self.outside_topics.added_to(built, application_id),
            config_overrides=self._config_overrides,
            node_order=tuple(self._nodes),
            node_lines=dict(self._node_lines),
            store_lines=dict(self._store_lines),
        )
