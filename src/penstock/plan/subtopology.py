"""A sub-topology as plain, picklable data: what `Topology` hands to the task. It knows nothing of how it was described
or lowered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from penstock.processor.api import ProcessorSupplier
from penstock.processor.timestamps import TimestampExtractor
from penstock.serdes import Serde
from penstock.state.api import RecordContext, StoreBuilder


class TaskId(NamedTuple):
    """A task: a sub-topology and a partition (Kafka class: TaskId)."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @staticmethod
    def parse(text: str) -> TaskId:
        """Return the id whose `str` is `text` (Kafka: TaskId.parse); raises ValueError if it is none."""
        subtopology, _, partition = text.partition("_")
        return TaskId(int(subtopology), int(partition))


StreamPartitioner = Callable[[str, Any, Any, int], "set[int] | None"]
"""Called with topic, key, value and number of partitions; returns the partitions to send to, an empty set to drop, None
for the default (Kafka class: StreamPartitioner, KIP-837)."""

TopicNameExtractor = Callable[[Any, Any, RecordContext], str]
"""Called with key, value and context of the record; returns the topic to send to (Kafka class: TopicNameExtractor)."""


@dataclass(frozen=True)
class SourceSpec:
    """A source node: of topics, or of the topics whose whole name matches pattern.

    topics: full names, internal ones with the application's prefix; repartition: whether its topic is an internal
    repartition topic.
    """

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None
    children: tuple[str, ...] = ()
    repartition: bool = False


@dataclass(frozen=True)
class ProcessorSpec:
    """A processor node; stores: the names of those connected to it."""

    name: str
    supplier: ProcessorSupplier
    parents: tuple[str, ...]
    children: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkSpec:
    """A sink node: to one topic (full name) or to the topic that an extractor names; repartition: whether it is an
    internal repartition topic."""

    name: str
    parents: tuple[str, ...]
    topic: str | None = None
    topic_extractor: TopicNameExtractor | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitioner: StreamPartitioner | None = None
    repartition: bool = False


@dataclass(frozen=True, eq=False)
class DataFrameSource:
    """A streaming DataFrame of Spark whose rows a host writes to an internal topic, which the topology reads.

    data_frame: the host's business alone; it never leaves the program. partitions: of the topic when it is made, None
    for the host's choice.
    """

    data_frame: Any
    partitions: int | None = None


@dataclass(frozen=True, eq=False)
class DataFrameSink:
    """A function to which a host gives what the topology writes to an internal topic, as DataFrames of Spark.

    function: called in the program with a DataFrame and its number. partitions: as of DataFrameSource.
    """

    function: Callable[[Any, int], None]
    partitions: int | None = None


NodeSpec = SourceSpec | ProcessorSpec | SinkSpec


@dataclass(frozen=True)
class SubtopologySpec:
    """All nodes of one sub-topology in the order in which they were added (parents before children), and its stores in
    Kafka's order: by the first node that uses each; those of one node as a HashSet gives them.

    source_topics and sink_topics have full names and include the repartition topics; a dynamic sink adds none.
    changelogs: store name -> (topic, configs) of the stores that log.
    """

    id: int
    nodes: tuple[NodeSpec, ...]
    stores: Mapping[str, StoreBuilder] = field(default_factory=dict)
    source_topics: tuple[str, ...] = ()
    sink_topics: tuple[str, ...] = ()
    changelogs: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)

    @property
    def written_changelogs(self) -> Mapping[str, str]:
        """The changelog topic of each store whose changelog its tasks write: a store that is filled from a source topic
        may have that as its changelog."""
        return {name: topic for name, (topic, _) in self.changelogs.items() if topic not in self.source_topics}

    def sinks_of(self, topic: str, described: Callable[[str], str] = str) -> str:
        """Return the names of the sinks that write to `topic`, or choose it by a function, with commas between."""
        sinks = (node.name for node in self.nodes if isinstance(node, SinkSpec) and node.topic in (topic, None))
        return ", ".join(map(described, sinks))


@dataclass(frozen=True)
class InternalTopic:
    """A repartition or changelog topic. partitions: None if it follows from the topology."""

    name: str
    config: Mapping[str, str]
    partitions: int | None = None


@dataclass(frozen=True)
class BuiltTopology:
    """A whole topology as plain, picklable data (Kafka class: the groups of InternalTopologyBuilder).

    subtopologies: by ascending id; an id that is missing is that of a global store. repartition_topics: by full name.
    copartition_groups: sets of full topic names that must have equal numbers of partitions. global_topology: the nodes
    and stores of all global stores, None if there are none; it makes no tasks. config_overrides: what goes before the
    configuration of the application where this topology runs. data_frame_topics: the full names of the
    topics between the topology and DataFrames of Spark; data_frame_sources, data_frame_sinks: those by topic.
    node_order: the names of all nodes of sub-topologies in the order in which they were added. node_lines, store_lines:
    where in the user's program they were made, by name.
    """

    subtopologies: tuple[SubtopologySpec, ...]
    repartition_topics: Mapping[str, InternalTopic] = field(default_factory=dict)
    copartition_groups: tuple[frozenset[str], ...] = ()
    global_topology: SubtopologySpec | None = None
    config_overrides: Mapping[str, Any] = field(default_factory=dict)
    data_frame_topics: tuple[str, ...] = ()
    data_frame_sources: Mapping[str, DataFrameSource] = field(default_factory=dict)
    data_frame_sinks: Mapping[str, DataFrameSink] = field(default_factory=dict)
    node_order: tuple[str, ...] = ()
    node_lines: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    store_lines: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def without_data_frames(self) -> BuiltTopology:
        """Return the topology without what belongs to the program alone: DataFrames, and functions that take some."""
        return replace(self, data_frame_sources={}, data_frame_sinks={})

    def without_lines(self) -> BuiltTopology:
        """Return the topology without where it was made: what does not change where the program is edited elsewhere."""
        return replace(self, node_lines={}, store_lines={})
