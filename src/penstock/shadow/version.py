"""One version in a comparison: its application.id, configuration, topics and state."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from penstock import savepoints
from penstock.client.api import Admin
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.host.deployment.layout import own_topics
from penstock.host.deployment.topics import written_topics
from penstock.host.open import open_host
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.transactions import commits_topic
from penstock.plan.serde_check import node_serde
from penstock.plan.subtopology import BuiltTopology, SinkSpec
from penstock.plan.topology import Topology, built_topology
from penstock.serdes import Serde
from penstock.shadow.comparison import ProgramPlace
from penstock.shadow.effects import check_no_effects
from penstock.shadow.redirected_topics import create_redirected, delete_existing, output_prefix
from penstock.shadow.redirection import WITHOUT_CACHES, RedirectedTopology, Redirection
from penstock_broker.common.clock import elapsed_milliseconds

Program = tuple[Topology, StreamsConfig | Mapping[str, Any]]
"""A topology and its configuration."""

_LOOK_SECONDS: Final = 0.1
_SESSION_MS: Final = 45_000
"""Kafka's default of session.timeout.ms."""

_CHECKPOINT: Final = "penstock.checkpoint.dir"
_OF_THE_RUNNING_APPLICATION: Final = frozenset(
    {
        _CHECKPOINT,
        "application.server",
        "group.instance.id",
        "penstock.changelog.topics",
        "penstock.metrics.prometheus.port",
        "penstock.openlineage.enabled",
        "penstock.otel.enabled",
        "penstock.state.remote.dir",
        "penstock.trace.order",
        "penstock.ui.port",
    }
)
"""Keys that name places of the running application, or report to others."""


@dataclass(frozen=True)
class ShadowVersion:
    """A version of a program, as an application of its own.

    Args:
        name: "old" or "new".
        topology: of the program.
        given: the configuration of the program, with the brokers and the host of the comparison.
        base_id: the application.id of the old version.
        directory: for the state of both versions.
    """

    name: str
    topology: Topology
    given: StreamsConfig
    base_id: str
    directory: Path

    @property
    def application_id(self) -> str:
        """The application.id of this version in the comparison."""
        return f"{self.base_id}-shadow-{self.name}"

    @cached_property
    def config(self) -> StreamsConfig:
        """The configuration of this version in the comparison."""
        kept = {key: value for key, value in self.given.given().items() if key not in _OF_THE_RUNNING_APPLICATION}
        own = {"application.id": self.application_id, "state.dir": str(self.directory)}
        if self.given[_CHECKPOINT] is not None:  # such as one that all machines of a cluster can read
            own[_CHECKPOINT] = f"{str(self.given[_CHECKPOINT]).rstrip('/')}-shadow-{self.name}"
        if self.given[DEAD_LETTER_QUEUE_TOPIC] is not None:
            own[DEAD_LETTER_QUEUE_TOPIC] = output_prefix(self.application_id) + self.given[DEAD_LETTER_QUEUE_TOPIC]
        return StreamsConfig({**kept, **own, **WITHOUT_CACHES}, environment={})

    @cached_property
    def built(self) -> BuiltTopology:
        """The topology as plain data, not redirected."""
        return built_topology(self.topology, self.application_id)

    def redirection(self, topics: Mapping[str, int], **changes: Any) -> Redirection:
        """Return the redirection of this version. topics: the partitions of the topics of the brokers."""
        return Redirection(self.application_id, self.given, topics, **changes)

    def check(self, redirection: Redirection, allows_effects: bool) -> BuiltTopology:
        """Return the topology with the topics of its patterns; raises StreamsError if it cannot be compared."""
        if not allows_effects:
            check_no_effects(self.name, self.built)
        return redirection.resolved(self.built)

    def restore(self, savepoint: str) -> None:
        """Create the checkpoint from a savepoint."""
        savepoints.restore(savepoint, self.config)

    def redirected(self, redirection: Redirection) -> Topology:
        """Return the topology to run."""
        return RedirectedTopology(self.topology, redirection)

    def held_topics(self, topics: Mapping[str, int]) -> set[str]:
        """Return the topics that a comparison creates; those that a function of the program may choose included."""
        sinks = (node for part in self.built.subtopologies for node in part.nodes if isinstance(node, SinkSpec))
        is_any_chosen = any(sink.topic_extractor is not None for sink in sinks)
        chosen = {output_prefix(self.application_id) + topic for topic in topics} if is_any_chosen else set()
        return chosen | self._outputs(topics).keys() | set(self.internal_topics())

    def create_outputs(self, admin: Admin, topics: Mapping[str, int]) -> None:
        """Create the redirected topics with the partitions of the topics of the program.

        Also those for tables of a lake and functions of DataFrames, which their receivers would create.
        """
        create_redirected(admin, self._outputs(topics))

    def _outputs(self, topics: Mapping[str, int]) -> dict[str, int]:
        """Return the topics that the comparison creates before a run, with their numbers of partitions."""
        built, default = self.built, self.given["num.partitions"]
        internal, prefix = own_topics(built), output_prefix(self.application_id)
        named = [topic for topic in written_topics(built, self.given) if topic not in internal]
        received = {topic: each.partitions or default for topic, each in built.lake_sinks.items()}
        received |= {topic: each.partitions or default for topic, each in built.data_frame_sinks.items()}
        return {**{prefix + topic: topics.get(topic, default) for topic in named}, **received}

    def output_topics(self, admin: Admin) -> dict[str, str]:
        """Return the topics with the output of this version, by their names in the program.

        Topics for tables of a lake and functions of DataFrames are named without the application.id.
        """
        prefix, internal = output_prefix(self.application_id), f"{self.application_id}-"
        existing = admin.topics()
        found = {topic.removeprefix(prefix): topic for topic in existing if topic.startswith(prefix)}
        outside = (*self.built.lake_topics, *self.built.data_frame_topics)
        return {**found, **{topic.removeprefix(internal): topic for topic in outside if topic in existing}}

    def sinks_of(self, topic: str) -> list[SinkSpec]:
        """Return the sinks that may write to a topic, by its name in the program."""
        sinks = [node for part in self.built.subtopologies for node in part.nodes if isinstance(node, SinkSpec)]
        named = [node for node in sinks if node.topic in (topic, f"{self.application_id}-{topic}")]
        return named or [node for node in sinks if node.topic_extractor is not None]

    def places_of(self, topic: str) -> tuple[ProgramPlace, ...]:
        """Return the sinks that may write to a topic, with their lines."""
        lines = self.built.node_lines
        return tuple(
            ProgramPlace(node.name, lines.get(node.name) or lines.get(node.parents[0])) for node in self.sinks_of(topic)
        )

    def serdes_of(self, topic: str) -> tuple[Serde | None, Serde | None]:
        """Return the serdes of the keys and values of an output topic, None if unknown."""
        config = self.given.overridden(self.built.config_overrides)
        for sink in self.sinks_of(topic):
            return node_serde(sink, "key", config), node_serde(sink, "value", config)
        return None, None

    def internal_topics(self) -> list[str]:
        """Return the names of the internal topics."""
        return sorted(own_topics(self.built))

    def existing_parts(self, admin: ConfluentAdmin) -> list[str]:
        """Return the topics, the group and the checkpoint of an application with the application.id of this version."""
        topics = {*self.internal_topics(), commits_topic(self.application_id)}
        parts = [f"topic {topic}" for topic in sorted(topics & admin.topics().keys())]
        if admin.describe_group(self.application_id).exists:
            parts.append(f"group {self.application_id}")
        checkpoint = Checkpoint(self.config.checkpoint_directory())
        if checkpoint.exists():
            parts.append(f"checkpoint {checkpoint.uri}")
        return parts

    def has_outputs(self, admin: Admin) -> bool:
        """Return whether the brokers have redirected topics of a comparison."""
        prefix = output_prefix(self.application_id)
        return any(topic.startswith(prefix) for topic in admin.topics())

    def await_end(self, admin: ConfluentAdmin) -> None:
        """Wait for the end of the group members of a killed comparison, for as long as their session lasts by default.

        `delete_state` reports members that are still there.
        """
        deadline = elapsed_milliseconds() + _SESSION_MS
        while admin.describe_group(self.application_id).members and elapsed_milliseconds() < deadline:
            time.sleep(_LOOK_SECONDS)

    def delete_state(self) -> None:
        """Delete positions, state and internal topics. Raises KafkaError or LockError if this version still runs."""
        open_host(self.built, self.config).reset()
        if self.given[_CHECKPOINT] is not None:
            own_directory = Checkpoint(self.config.checkpoint_directory()).local_path
            if own_directory is not None:  # the reset leaves its lock
                shutil.rmtree(own_directory, ignore_errors=True)

    def delete_outputs(self, admin: Admin) -> None:
        """Delete the redirected topics."""
        prefix = output_prefix(self.application_id)
        delete_existing(admin, (topic for topic in admin.topics() if topic.startswith(prefix)))
