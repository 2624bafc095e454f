"""Sub-topologies as plain, picklable data, which `Topology` passes to tasks.

This data does not depend on the description or the lowering of a topology.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from penstock.config.offset_reset import EARLIEST
from penstock.lake.tables import LakeSink
from penstock.plan.topic_history import TopicHistory
from penstock.processor.api import ProcessorSupplier
from penstock.processor.calls import CallSpec
from penstock.processor.parked_requests import ParkedRequestSerde
from penstock.processor.stream_partitioner import PartitionerWithHeaders, check_partitioner
from penstock.processor.timestamps import TimestampExtractor, fail_on_invalid_timestamp
from penstock.record import TopicPartition
from penstock.serdes import BytesSerde, Serde
from penstock.state.api import RecordContext, StoreBuilder


class TaskId(NamedTuple):
    """A task: a sub-topology and a partition (Kafka class: TaskId)."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @staticmethod
    def parse(text: str) -> TaskId:
        """Return the id whose `str` is `text` (Kafka: TaskId.parse).

        Raises ValueError if `text` is not a task id.
        """
        subtopology, _, partition = text.partition("_")
        task_id = TaskId(int(subtopology), int(partition))
        if str(task_id) != text:  # int() also reads blanks, signs, underscores and leading zeros
            raise ValueError(f"Not a task id: {text!r}.")
        return task_id


StreamPartitioner = Callable[[str, Any, Any, int], "set[int] | None"] | PartitionerWithHeaders
"""Chooses the partitions of a record.

The arguments are topic, key, value and number of partitions; a function that requires five arguments also takes the
headers, before the number of partitions. An empty set drops the record, None means the default
(Kafka class: StreamPartitioner, KIP-837, KIP-1321).
"""

TopicNameExtractor = Callable[[Any, Any, RecordContext], str]
"""Chooses the topic of a record from its key, value and context (Kafka class: TopicNameExtractor)."""

_FLAGS: Final = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
"""The flags of patterns by their letters."""


@dataclass(frozen=True)
class SourceSpec:
    """A source node.

    Args:
        topics: full names of the topics to read, internal ones with the application's prefix.
        pattern: instead of `topics`, a pattern that matches their whole names.
        repartition: whether its topic is an internal repartition topic.
        broadcast: whether that topic has each record in every partition (`plan/broadcast.py`).
        calls: the operator whose answers its internal topic has, one partition for each task; None for other topics.
        parked: the store of parked records that the requests in its internal topic concern, one partition for each
            task; None for other topics.
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
    broadcast: bool = False
    calls: CallSpec | None = None
    parked: str | None = None

    def reads(self, topic: str) -> bool:
        """Return whether it reads a topic, by its name or by its pattern."""
        return topic in self.topics or (self.pattern is not None and self.pattern.fullmatch(topic) is not None)

    @property
    def has_task_topic(self) -> bool:
        """Whether its topic has a partition for each task, and is no input: of answers, or of requests."""
        return self.calls is not None or self.parked is not None

    @property
    def is_internal(self) -> bool:
        """Whether its topic is internal: of repartition, of answers, or of requests about parked records."""
        return self.repartition or self.has_task_topic

    @property
    def pattern_text(self) -> str | None:
        """The pattern as text, which matches the same names: with those of its flags that it does not contain."""
        if self.pattern is None:
            return None
        missing = self.pattern.flags & ~re.compile(self.pattern.pattern).flags
        letters = "".join(letter for letter, flag in _FLAGS.items() if missing & flag)
        return f"(?{letters}){self.pattern.pattern}" if letters else self.pattern.pattern


def answers_source(name: str, calls: CallSpec) -> SourceSpec:
    """Return the source of the answers topic `name` (no prefix) of an operator."""
    return _task_source(name, BytesSerde(), calls=calls)


def requests_source(name: str, store: str) -> SourceSpec:
    """Return the source of the topic `name` (no prefix) with requests about a store of parked records."""
    return _task_source(name, ParkedRequestSerde(), parked=store)


def _task_source(name: str, value_serde: Serde, calls: CallSpec | None = None, parked: str | None = None) -> SourceSpec:
    return SourceSpec(
        name,
        (name,),
        key_serde=BytesSerde(),
        value_serde=value_serde,
        timestamp_extractor=fail_on_invalid_timestamp,
        offset_reset=EARLIEST,
        calls=calls,
        parked=parked,
    )


@dataclass(frozen=True)
class ProcessorSpec:
    """A processor node.

    Args:
        stores: the names of the stores connected to it.
    """

    name: str
    supplier: ProcessorSupplier
    parents: tuple[str, ...]
    children: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkSpec:
    """A sink node.

    Args:
        topic: the full name of the topic to write to, None with an extractor.
        topic_extractor: returns the topic of each record.
        repartition: whether the topic is an internal repartition topic.
    """

    name: str
    parents: tuple[str, ...]
    topic: str | None = None
    topic_extractor: TopicNameExtractor | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitioner: StreamPartitioner | None = None
    repartition: bool = False

    def __post_init__(self) -> None:
        check_partitioner(f"sink {self.name}", self.partitioner)


@dataclass(frozen=True)
class DroppedSinkSpec(SinkSpec):
    """A sink of the records that its parents drop, not of those that they forward.

    The serdes are for records whose source record is no longer known.
    """


@dataclass(frozen=True)
class DeadLetterSinkSpec(DroppedSinkSpec):
    """A sink of the records on which its parent has failed at each attempt."""


@dataclass(frozen=True, eq=False)
class DataFrameSource:
    """A streaming Spark DataFrame that feeds an internal topic, which the topology reads.

    A host writes its rows to the topic.

    Args:
        data_frame: the DataFrame; only the host uses it, and it never leaves the program.
        partitions: the number of partitions of a new topic, None for the host's choice.
    """

    data_frame: Any
    partitions: int | None = None


@dataclass(frozen=True, eq=False)
class DataFrameSink:
    """A function that receives the records of an internal topic as Spark DataFrames.

    The topology writes the topic, and the host calls the function.

    Args:
        function: called in the program with a DataFrame and its number.
        partitions: as for DataFrameSource.
    """

    function: Callable[[Any, int], None]
    partitions: int | None = None


NodeSpec = SourceSpec | ProcessorSpec | SinkSpec


@dataclass(frozen=True)
class SubtopologySpec:
    """All nodes and stores of one sub-topology.

    Args:
        nodes: the nodes in the order of their addition, parents before children.
        stores: the stores in Kafka's order: by the first node that uses each; stores of the same node in HashSet order.
        source_topics: full names, including the repartition topics, without the task topics.
        sink_topics: full names, including the repartition topics; dynamic sinks add no topics.
        changelogs: topic and configuration of each changelog, by store name.
    """

    id: int
    nodes: tuple[NodeSpec, ...]
    stores: Mapping[str, StoreBuilder] = field(default_factory=dict)
    source_topics: tuple[str, ...] = ()
    sink_topics: tuple[str, ...] = ()
    changelogs: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)

    @property
    def written_changelogs(self) -> Mapping[str, str]:
        """The changelog topic of each store whose changelog is written by its tasks.

        A store that is filled from a source topic may have that topic as its changelog.
        """
        return {name: topic for name, (topic, _) in self.changelogs.items() if topic not in self.source_topics}

    @property
    def answers_topics(self) -> Mapping[str, CallSpec]:
        """The calls of its operators by the full names of their answers topics."""
        sources = [node for node in self.nodes if isinstance(node, SourceSpec)]
        return {topic: node.calls for node in sources if node.calls is not None for topic in node.topics}

    @property
    def requests_topics(self) -> Mapping[str, str]:
        """The stores of parked records by the full names of the topics with requests about them."""
        sources = [node for node in self.nodes if isinstance(node, SourceSpec)]
        return {topic: node.parked for node in sources if node.parked is not None for topic in node.topics}

    @property
    def task_topics(self) -> tuple[str, ...]:
        """The full names of its answers topics and requests topics.

        Each topic has a partition for each task. They have no part in the number of tasks and in their input.
        """
        return (*self.answers_topics, *self.requests_topics)

    @property
    def store_kinds(self) -> dict[str, str]:
        """The kind of each store."""
        return {name: builder.kind for name, builder in self.stores.items()}

    def sinks_of(self, topic: str, described: Callable[[str], str] = str) -> str:
        """Return the names of the sinks that may write to `topic`, separated by commas.

        Includes the sinks that choose their topic by a function.
        """
        sinks = (node.name for node in self.nodes if isinstance(node, SinkSpec) and node.topic in (topic, None))
        return ", ".join(map(described, sinks))


@dataclass(frozen=True)
class InternalTopic:
    """A repartition, changelog, answers or requests topic.

    Args:
        partitions: the number of partitions, None if it follows from the topology.
    """

    name: str
    config: Mapping[str, str]
    partitions: int | None = None


@dataclass(frozen=True)
class BuiltTopology:
    """A whole topology as plain, picklable data (Kafka: the groups of InternalTopologyBuilder).

    Args:
        subtopologies: the sub-topologies by ascending id; a missing id belongs to a global store.
        repartition_topics: the repartition topics by full name.
        task_topics: the topics of the answers of calls, and of requests about parked records, by full name.
        copartition_groups: sets of full topic names that must have equal numbers of partitions.
        global_topology: the nodes and stores of all global stores, None without global stores; it makes no tasks.
        config_overrides: values that override the application's configuration for this topology.
        data_frame_topics: full names of the topics between the topology and Spark DataFrames.
        data_frame_sources: the DataFrames that fill topics, by topic.
        data_frame_sinks: the functions that receive topics as DataFrames, by topic.
        histories: the rows that precede the records of topics, by topic.
        lake_topics: full names of the topics that the application copies to tables of a lake.
        lake_sinks: the tables that receive topics, by topic.
        planned_ends: the end offsets of a run to the end; other partitions end where they end at its start.
        node_order: the names of all nodes of sub-topologies, in the order of their addition.
        node_lines: the lines of the user's program that made the nodes, by name.
        store_lines: the lines of the user's program that made the stores, by name.
    """

    subtopologies: tuple[SubtopologySpec, ...]
    repartition_topics: Mapping[str, InternalTopic] = field(default_factory=dict)
    task_topics: Mapping[str, InternalTopic] = field(default_factory=dict)
    copartition_groups: tuple[frozenset[str], ...] = ()
    global_topology: SubtopologySpec | None = None
    config_overrides: Mapping[str, Any] = field(default_factory=dict)
    data_frame_topics: tuple[str, ...] = ()
    data_frame_sources: Mapping[str, DataFrameSource] = field(default_factory=dict)
    data_frame_sinks: Mapping[str, DataFrameSink] = field(default_factory=dict)
    histories: Mapping[str, TopicHistory] = field(default_factory=dict)
    lake_topics: tuple[str, ...] = ()
    lake_sinks: Mapping[str, LakeSink] = field(default_factory=dict)
    planned_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    node_order: tuple[str, ...] = ()
    node_lines: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    store_lines: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        named = dict(state)
        answers = named.pop("answers_topics", {})  # the name between 0.2.0, which wrote neither, and this version
        self.__dict__.update({"task_topics": answers, "lake_sinks": {}, "planned_ends": {}, **named})

    @property
    def answers_topics(self) -> frozenset[str]:
        """The topics of the answers of calls, by full name."""
        return frozenset(topic for spec in self.subtopologies for topic in spec.answers_topics)

    @property
    def uses_of_task_topics(self) -> dict[str, str]:
        """What each task topic has, as a text such as "the answers of charge"."""
        specs = self.subtopologies
        answers = {
            topic: f"the answers of {each.node}" for spec in specs for topic, each in spec.answers_topics.items()
        }
        requests = {
            topic: f"the requests about {each}" for spec in specs for topic, each in spec.requests_topics.items()
        }
        return {**answers, **requests}

    def without_data_frames(self) -> BuiltTopology:
        """Return the topology without DataFrames, functions of DataFrames, histories and tables of a lake.

        Those belong to the program alone.
        """
        return replace(self, data_frame_sources={}, data_frame_sinks={}, histories={}, lake_sinks={})

    def without_lines(self) -> BuiltTopology:
        """Return the topology without program lines, which change with any edit of the program."""
        return replace(self, node_lines={}, store_lines={})
