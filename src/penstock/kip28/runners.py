"""What runs the topologies of the papers, and their configurations: KafkaStreams and StreamsConfig by other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import KafkaStreams, StreamsConfig, Topology
from penstock.kip28.streams import KStreamBuilder
from penstock.kip28.topologies import KStreamTopology, PTopology, TopologyBuilder


class StreamingConfig(StreamsConfig):
    """The configuration (second draft)."""


class ProcessorProperties(StreamsConfig):
    """The configuration (first draft)."""


class _Runner:
    """Starts and shuts down what it was given."""

    def __init__(self, topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> None:
        self._streams = KafkaStreams(topology, config)

    def start(self) -> None:
        """Start in the background; see `KafkaStreams.start`."""
        self._streams.start()

    def shutdown(self) -> None:
        """Commit and stop; see `KafkaStreams.close`."""
        self._streams.close()


class KafkaStreaming(_Runner):
    """Runs what a builder has made (second draft)."""

    def __init__(self, builder: TopologyBuilder | KStreamBuilder, config: StreamsConfig | Mapping[str, Any]) -> None:
        """Build the topology; nothing runs before `start`."""
        super().__init__(builder.build(), config)


class KafkaProcess(_Runner):
    """Runs a topology class (first draft)."""

    def __init__(self, topology: type[PTopology], config: StreamsConfig | Mapping[str, Any]) -> None:
        """Build the topology; nothing runs before `start`."""
        super().__init__(topology.topology(), config)


class KStreamProcess(_Runner):
    """Runs a topology class of streams (first draft)."""

    def __init__(self, topology: type[KStreamTopology], config: StreamsConfig | Mapping[str, Any]) -> None:
        """Build the topology; nothing runs before `start`."""
        super().__init__(topology.topology(), config)
