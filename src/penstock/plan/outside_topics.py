"""The topics of a topology that Spark fills, precedes with a history, or receives as DataFrames, or a lake receives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.lake.tables import LakeSink
from penstock.plan.internal_topics import full_name
from penstock.plan.subtopology import BuiltTopology, DataFrameSink, DataFrameSource
from penstock.plan.topic_history import TopicHistory


@dataclass(frozen=True)
class OutsideTopics:
    """The DataFrames, functions, histories and tables of a topology by topic, filled by lowering.

    Internal topics have no prefix.
    """

    sources: dict[str, DataFrameSource] = field(default_factory=dict)
    sinks: dict[str, DataFrameSink] = field(default_factory=dict)
    histories: dict[str, TopicHistory] = field(default_factory=dict)
    lakes: dict[str, LakeSink] = field(default_factory=dict)

    @property
    def internal(self) -> tuple[str, ...]:
        """The internal topics between the topology and DataFrames or tables."""
        return (*self.sources, *self.sinks, *self.lakes)

    def added_to(self, built: BuiltTopology, application_id: str) -> BuiltTopology:
        """Return `built`, the topology of `application_id`, with these topics."""
        return replace(
            built,
            data_frame_topics=tuple(full_name(application_id, topic) for topic in (*self.sources, *self.sinks)),
            data_frame_sources={full_name(application_id, topic): each for topic, each in self.sources.items()},
            data_frame_sinks={full_name(application_id, topic): each for topic, each in self.sinks.items()},
            histories=dict(self.histories),
            lake_topics=tuple(full_name(application_id, topic) for topic in self.lakes),
            lake_sinks={full_name(application_id, topic): each for topic, each in self.lakes.items()},
        )
