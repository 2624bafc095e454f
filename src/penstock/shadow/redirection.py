"""The redirection of a topology: its outputs go to topics of its own, and it stops at planned ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.config import StreamsConfig
from penstock.config.offset_reset import EARLIEST
from penstock.errors import TopologyError
from penstock.host.deployment.layout import own_topics
from penstock.host.deployment.topics import check_source_topics, resolve_patterns, source_topics
from penstock.plan.subtopology import BuiltTopology, NodeSpec, SinkSpec, SourceSpec, SubtopologySpec, TopicNameExtractor
from penstock.plan.topology import Topology
from penstock.plan.user_lines import made_at
from penstock.record import TopicPartition
from penstock.shadow.held_letters import held_handlers
from penstock.shadow.redirected_topics import RedirectedTopics, output_prefix
from penstock.state.api import RecordContext

WITHOUT_CACHES: Final = {"statestore.cache.max.bytes": 0}
"""With caches, the number of updates depends on the times of commits."""


@dataclass(frozen=True)
class Redirection:
    """The changes of one version for its comparison.

    Args:
        application_id: of the version.
        config: of the version.
        topics: the partitions of the topics of the brokers.
        ends: the end offset of each input partition.
        from_beginning: whether sources begin at the first record, whatever their offset reset.
    """

    application_id: str
    config: StreamsConfig
    topics: Mapping[str, int]
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    from_beginning: bool = True

    @property
    def prefix(self) -> str:
        """The first part of the names of redirected topics. Internal topics continue with a hyphen instead."""
        return output_prefix(self.application_id)

    def resolved(self, built: BuiltTopology) -> BuiltTopology:
        """Return a topology with the topics that its patterns match now, in place of the patterns.

        Raises:
            MissingSourceTopicError: a source topic does not exist, or a pattern matches no topic.
            TopologyError: the topology reads a topic that it writes, or a DataFrame.
        """
        found = resolve_patterns(built, self.topics, own_topics(built), self.config)
        check_source_topics(found, self.topics, str(self.config["bootstrap.servers"]))
        if found.data_frame_sources:
            raise TopologyError(
                f"The topology of {self.application_id} reads DataFrames, whose rows have no offsets to stop at. A "
                "comparison needs topics as inputs."
            )
        self._check_loops(found)
        return found

    def applied_to(self, built: BuiltTopology) -> BuiltTopology:
        """Return a topology that writes to redirected topics and stops at the planned ends.

        It gives nothing to tables of a lake and to functions of DataFrames; their internal topics are written. Raises
        as `resolved`.
        """
        found = self.resolved(built)
        internal = own_topics(found)
        return replace(
            found,
            subtopologies=tuple(self._redirected(part, internal) for part in found.subtopologies),
            config_overrides={
                **{key: each for key, each in found.config_overrides.items() if key not in WITHOUT_CACHES},
                **held_handlers(self.config.overridden(found.config_overrides), self._redirected_topics()),
            },
            data_frame_sinks={},
            lake_sinks={},
            planned_ends=self.ends,
        )

    def _redirected_topics(self) -> RedirectedTopics:
        return RedirectedTopics(self.prefix, self.config.client_config(), self.topics)

    def _redirected(self, part: SubtopologySpec, internal: frozenset[str]) -> SubtopologySpec:
        def moved(topic: str) -> str:
            return topic if topic in internal else self.prefix + topic

        def changed(node: NodeSpec) -> NodeSpec:
            match node:
                case SourceSpec() if not node.is_internal:
                    reset = EARLIEST if self.from_beginning else node.offset_reset
                    return replace(node, pattern=None, offset_reset=reset)
                case SinkSpec(topic=str(topic)):
                    return replace(node, topic=moved(topic))
                case SinkSpec(topic_extractor=extractor) if extractor is not None:
                    return replace(node, topic_extractor=RedirectedTopicNames(extractor, self._redirected_topics()))
                case _:
                    return node

        return replace(
            part, nodes=tuple(map(changed, part.nodes)), sink_topics=tuple(moved(topic) for topic in part.sink_topics)
        )

    def _check_loops(self, built: BuiltTopology) -> None:
        """Raise TopologyError if a sink writes to a topic that the topology reads."""
        read = source_topics(built) - own_topics(built)
        for node in (node for part in built.subtopologies for node in part.nodes if isinstance(node, SinkSpec)):
            if node.topic in read:
                raise TopologyError(
                    f"{node.name}{made_at(built.node_lines.get(node.name))} writes to {node.topic}, which the topology "
                    "also reads: in a comparison, its records would not come back. Compare topologies without such a "
                    "loop, for example with repartition() in place of the topic."
                )


class RedirectedTopology(Topology):
    """A topology that is redirected when it is built.

    Args:
        topology: the topology.
        redirection: its changes.
    """

    def __init__(self, topology: Topology, redirection: Redirection) -> None:
        super().__init__()
        vars(self).update(vars(topology))
        self._topology = topology
        self._redirection = redirection

    def build(self, application_id: str) -> BuiltTopology:
        """Return the redirected topology as plain data."""
        return self._redirection.applied_to(self._topology.build(application_id))


class RedirectedTopicNames:
    """Chooses redirected topics by a user's function.

    Args:
        extractor: the function of the user.
        topics: names and creates the redirected topics.
    """

    def __init__(self, extractor: TopicNameExtractor, topics: RedirectedTopics) -> None:
        self._extractor = extractor
        self._topics = topics

    def __call__(self, key: Any, value: Any, context: RecordContext) -> str:
        """Return the redirected topic of a record."""
        return self._topics.of(self._extractor(key, value, context))


def check_patterns(built: BuiltTopology, held: Iterable[str]) -> None:
    """Raise TopologyError if a pattern of a topology matches a topic of the comparison: the running application would
    read it.
    """
    names = sorted(held)
    for node in (node for part in built.subtopologies for node in part.nodes if isinstance(node, SourceSpec)):
        matches = [] if node.pattern is None else [name for name in names if node.pattern.fullmatch(name)]
        if node.pattern is not None and matches:
            raise TopologyError(
                f"{node.name}{made_at(built.node_lines.get(node.name))} reads the topics that match "
                f"{node.pattern.pattern!r}. The comparison would create {matches[0]}, which matches too, so the "
                "running application would read it. Name the topics, or narrow the pattern, in both versions."
            )
