"""The topology of a streams group, and its topics and tasks on this broker (Kafka class: InternalTopicManager).

The numbers of partitions of internal topics follow from the source topics and from the copartition groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

from crc32c import crc32c

from penstock_broker.errors import ApiError
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_MOST_NAMES: Final = 3


class GroupStatus(IntEnum):
    """The reasons for which a group assigns no tasks, and other news for its members."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class StreamsTopology:
    """The topology of an application, as its members send it.

    Args:
        message: the topology in the form of StreamsGroupHeartbeat.

    Attributes:
        message: the same.
        epoch: its epoch.
        subtopologies: its sub-topologies by id, sorted.

    Raises:
        ApiError: STREAMS_INVALID_TOPOLOGY, or INVALID_REQUEST for patterns of source topics.
    """

    def __init__(self, message: Message) -> None:
        self.message = message
        self.epoch: int = message["epoch"]
        listed: list[Message] = message["subtopologies"]
        by_id = {each["subtopology_id"]: each for each in listed}
        if len(by_id) < len(listed):
            raise ApiError(ErrorCode.streams_invalid_topology, "Two subtopologies have the same id.")
        for each in listed:
            _check_subtopology(each)
        self.subtopologies: Mapping[str, Message] = dict(sorted(by_id.items()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamsTopology):
            return NotImplemented
        return (self.epoch, self.subtopologies) == (other.epoch, other.subtopologies)

    @cached_property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return size_of(self.message)

    __hash__ = None  # type: ignore[assignment]  # a topology has lists

    @cached_property
    def readers(self) -> Mapping[str, str]:
        """Ids of the sub-topologies that read the topics, by topic."""
        return {topic: id for id, each in self.subtopologies.items() for topic in sources_of(each)}

    @property
    def required_topics(self) -> set[str]:
        """All topics that its tasks read, and its changelogs."""
        return {*self.readers, *(topic["name"] for topic in self.internal_topics())}

    def internal_topics(self) -> Iterator[Message]:
        """Yield the repartition topics and the changelogs."""
        for each in self.subtopologies.values():
            yield from each["repartition_source_topics"]
            yield from each["state_changelog_topics"]


def size_of(value: Any) -> int:
    """Return the approximate size of a part of a message in bytes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    return sum(map(size_of, value)) if isinstance(value, list | tuple) else 1


def sources_of(subtopology: Message) -> list[str]:
    """Return the topics that a sub-topology reads."""
    return [*subtopology["source_topics"], *(topic["name"] for topic in subtopology["repartition_source_topics"])]


def _check_subtopology(subtopology: Message) -> None:
    if subtopology["source_topic_regex"]:
        raise ApiError(ErrorCode.invalid_request, "Regular expressions for source topics are not supported yet.")
    for topic in subtopology["state_changelog_topics"]:
        if topic["partitions"] != 0:
            raise ApiError(
                ErrorCode.streams_invalid_topology,
                f"Changelog topic {topic['name']} must have an undefined partition count, but it is set to "
                f"{topic['partitions']}.",
            )
    if not sources_of(subtopology):
        text = f"No source topics found for subtopology {subtopology['subtopology_id']}"
        raise ApiError(ErrorCode.streams_invalid_topology, text)
    for group in subtopology["copartition_groups"]:
        for key in ("source_topics", "repartition_source_topics"):
            if any(not 0 <= index < len(subtopology[key]) for index in group[key]):
                text = f"A copartition group of subtopology {subtopology['subtopology_id']} has an unknown topic."
                raise ApiError(ErrorCode.streams_invalid_topology, text)


class TopicConfigurationError(Exception):
    """A topic is missing or has a wrong number of partitions, so no task is assigned.

    Args:
        status: the problem.
        detail: the topics.
    """

    def __init__(self, status: GroupStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology on this broker.

    Args:
        topology: the topology.
        metadata_hash: a hash of its topics.
        problem: the reason why its tasks cannot be assigned; None if they can.
        partitions: numbers of partitions of the internal topics, by name.
        task_counts: numbers of tasks by sub-topology.
        missing: the internal topics that have to be created.
    """

    topology: StreamsTopology
    metadata_hash: int
    problem: TopicConfigurationError | None = None
    partitions: Mapping[str, int] = field(default_factory=dict)
    task_counts: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[Message, ...] = ()

    def has_task(self, subtopology_id: str, number: int) -> bool:
        """Return whether a task exists."""
        return 0 <= number < self.task_counts.get(subtopology_id, 0)


def configured(topology: StreamsTopology, topics: Mapping[str, tuple[uuid.UUID, int]]) -> ConfiguredTopology:
    """Return a topology with the numbers of partitions and tasks that follow from the existing topics.

    Args:
        topology: the topology.
        topics: ids and numbers of partitions of all existing topics, by name.

    Raises:
        ApiError: STREAMS_INVALID_TOPOLOGY, because a number of partitions cannot be determined.
    """
    found = {name: topics[name] for name in sorted(topology.required_topics) if name in topics}
    text = "".join(f"{name}:{topic_id.hex}:{count};" for name, (topic_id, count) in found.items())
    metadata_hash = crc32c(text.encode())
    present = {name: count for name, (_, count) in found.items()}
    try:
        _check_sources(topology, present)
        decided = _Partitions(topology, present).decided()
        missing = _missing(topology, present, decided)
    except TopicConfigurationError as error:
        return ConfiguredTopology(topology, metadata_hash, error)
    counts = decided | present
    tasks = {id: max(counts[topic] for topic in sources_of(each)) for id, each in topology.subtopologies.items()}
    if not missing:
        return ConfiguredTopology(topology, metadata_hash, None, decided, tasks)
    names = _summary(topic["name"] for topic in missing)
    problem = TopicConfigurationError(GroupStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology, metadata_hash, problem, decided, {}, missing)


def _check_sources(topology: StreamsTopology, present: Mapping[str, int]) -> None:
    wanted = {topic for each in topology.subtopologies.values() for topic in each["source_topics"]}
    missing = sorted(wanted - present.keys())
    if missing:
        raise TopicConfigurationError(
            GroupStatus.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing."
        )


def _missing(topology: StreamsTopology, present: Mapping[str, int], decided: Mapping[str, int]) -> tuple[Message, ...]:
    internal = {topic["name"]: topic for topic in topology.internal_topics()}
    for name in sorted(internal.keys() & present.keys()):
        if present[name] != decided[name]:
            raise TopicConfigurationError(
                GroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {decided[name]}, found "
                f"{present[name]}",
            )
    return tuple(internal[name] for name in sorted(internal.keys() - present.keys()))


def _summary(names: Iterable[str]) -> str:
    first, rest = (listed := list(names))[:_MOST_NAMES], len(listed) - _MOST_NAMES
    return ", ".join(first) + (f" and {rest} additional topics" if rest > 0 else "")


class _Partitions:
    """Decides the numbers of partitions of internal topics.

    Args:
        topology: the topology.
        present: numbers of partitions of the existing topics.
    """

    def __init__(self, topology: StreamsTopology, present: Mapping[str, int]) -> None:
        self._subtopologies = list(topology.subtopologies.values())
        self._present = present
        sources = [topic for each in self._subtopologies for topic in each["repartition_source_topics"]]
        self._fixed = {topic["name"]: topic["partitions"] for topic in sources if topic["partitions"]}
        self._repartition_topics = {topic["name"] for topic in sources}
        self._decided: dict[str, int] = dict(self._fixed)

    def decided(self) -> dict[str, int]:
        """Return the numbers by topic.

        Raises:
            TopicConfigurationError: topics of a copartition group have different numbers.
            ApiError: STREAMS_INVALID_TOPOLOGY.
        """
        self._follow_sinks()
        for each in self._subtopologies:
            for group in each["copartition_groups"]:
                self._copartition(each, group)
        for each in self._subtopologies:
            count = max(self._count(topic) for topic in sources_of(each))
            self._decided.update((topic["name"], count) for topic in each["state_changelog_topics"])
        return self._decided

    def _count(self, topic: str) -> int:
        return self._present[topic] if topic in self._present else self._decided[topic]

    def _follow_sinks(self) -> None:
        """Give each repartition topic as many partitions as the topics of the sub-topology that writes it."""
        open_sinks = True
        while open_sinks:
            open_sinks = has_progress = False
            for each in self._subtopologies:
                known = [self._present[topic] for topic in each["source_topics"]]
                repartitioned = (topic["name"] for topic in each["repartition_source_topics"])
                known += [self._decided[name] for name in repartitioned if name in self._decided]
                for sink in set(each["repartition_sink_topics"]) - self._decided.keys():
                    if known:
                        self._decided[sink] = max(known)
                        has_progress = True
                    else:
                        open_sinks = True
            if open_sinks and not has_progress:
                raise ApiError(
                    ErrorCode.streams_invalid_topology,
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved.",
                )
        if not self._repartition_topics <= self._decided.keys():
            raise ApiError(
                ErrorCode.streams_invalid_topology,
                "Failed to compute number of partitions for all repartition topics, because a repartition source "
                "topic is never used as a sink topic.",
            )

    def _copartition(self, subtopology: Message, group: Message) -> None:
        given = [subtopology["source_topics"][index] for index in group["source_topics"]]
        made = [subtopology["repartition_source_topics"][index]["name"] for index in group["repartition_source_topics"]]
        # The numbers of source topics decide, then those that the program sets, then the largest one.
        leading = given or [name for name in made if name in self._fixed]
        counts = {name: self._count(name) for name in leading}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name}={count}" for name, count in sorted(counts.items()))
            raise TopicConfigurationError(
                GroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{listed}]",
            )
        count = next(iter(counts.values())) if counts else max((self._count(name) for name in made), default=0)
        for name in made:
            if self._fixed.get(name, count) != count:
                raise TopicConfigurationError(
                    GroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{self._fixed[name]}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{count}] of the source topic.",
                )
            self._decided[name] = count
