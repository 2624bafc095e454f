"""Topologies of the papers, and their runners and configurations.

A builder of named nodes (second draft), and classes whose `build` creates the nodes or the streams (first draft). The
runners and configurations are KafkaStreams and StreamsConfig under other names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from penstock import KafkaStreams, StreamsConfig, Topology
from penstock.kip28.processors import AdaptedSupplier, KafkaProcessor, ProcessorDefLike, adapted, name_of
from penstock.kip28.streams import KStream, KStreamBuilder
from penstock.serdes import Serde


class TopologyBuilder:
    """Sources, processors and sinks by name; every method returns the builder (second draft)."""

    def __init__(self) -> None:
        self._topology = Topology()

    def add_source(self, name: str, *topics: str) -> TopologyBuilder:
        """Add a source for the records of `topics`."""
        self._topology.add_source(name, *topics)
        return self

    def add_processor(self, name: str, definition: ProcessorDefLike, *parents: str) -> TopologyBuilder:
        """Add a processor created by `definition`, below `parents`."""
        self._topology.add_processor(name, adapted(definition), *parents)
        return self

    def add_sink(self, name: str, topic: str, *parents: str) -> TopologyBuilder:
        """Add a sink that writes the output of `parents` to `topic`."""
        self._topology.add_sink(name, topic, *parents)
        return self

    def build(self) -> Topology:
        """Return the topology."""
        return self._topology


@dataclass(frozen=True)
class Source:
    """A source of a PTopology, used as a parent."""

    name: str


class PTopology:
    """A topology as a class: override `build`, which calls `add_source` and `add_processor` (first draft).

    The class is instantiated for each processor of each task, so `build` must be deterministic, and its processors
    cannot share objects.
    """

    @cached_property
    def _sources(self) -> dict[str, tuple[Serde | None, Serde | None, tuple[str, ...]]]:
        return {}

    @cached_property
    def _processors(self) -> dict[str, tuple[KafkaProcessor, tuple[str, ...]]]:
        return {}

    @abstractmethod
    def build(self) -> None:
        """Add the sources and processors."""
        raise NotImplementedError(f"{type(self).__name__} must define build(self).")

    def add_source(self, key_serde: Serde | None, value_serde: Serde | None, *topics: str) -> Source:
        """Add a source of `topics`; returns it for use as a parent."""
        name = f"source-{len(self._sources)}"
        self._sources[name] = (key_serde, value_serde, topics)
        return Source(name)

    def add_processor(self, processor: KafkaProcessor, *parents: KafkaProcessor | Source) -> None:
        """Add `processor` below `parents`."""
        names = tuple(parent.name if isinstance(parent, Source) else name_of(parent) for parent in parents)
        self._processors[name_of(processor)] = (processor, names)

    @classmethod
    def topology(cls) -> Topology:
        """Return the topology created by `build`."""
        plan = cls._built()
        topology = Topology()
        for name, (key_serde, value_serde, topics) in plan._sources.items():
            topology.add_source(name, *topics, key_serde=key_serde, value_serde=value_serde)
        for name, (_, parents) in plan._processors.items():
            topology.add_processor(name, AdaptedSupplier(partial(cls._processor, name)), *parents)
        return topology

    @classmethod
    def _processor(cls, name: str) -> KafkaProcessor:
        return cls._built()._processors[name][0]

    @classmethod
    def _built(cls) -> PTopology:
        plan = cls()
        plan.build()
        return plan


class KStreamTopology:
    """A topology of streams as a class: override `build`, which calls `from_` (first draft)."""

    @cached_property
    def _builder(self) -> KStreamBuilder:  # not in __init__, which a subclass may override without calling it
        return KStreamBuilder()

    @abstractmethod
    def build(self) -> None:
        """Create the streams."""
        raise NotImplementedError(f"{type(self).__name__} must define build(self).")

    def from_(self, key_serde: Serde | None, value_serde: Serde | None, topic: str) -> KStream:
        """Return the stream of `topic`."""
        return self._builder.from_(topic, key_serde, value_serde)

    @classmethod
    def topology(cls) -> Topology:
        """Return the topology created by `build`."""
        plan = cls()
        plan.build()
        return plan._builder.build()


class StreamingConfig(StreamsConfig):
    """The configuration (second draft)."""


class ProcessorProperties(StreamsConfig):
    """The configuration (first draft)."""


class _Runner:
    """Starts and stops a topology."""

    def __init__(self, topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> None:
        self._streams = KafkaStreams(topology, config)

    def start(self) -> None:
        """Start in the background; see `KafkaStreams.start`."""
        self._streams.start()

    def shutdown(self) -> None:
        """Commit and stop; see `KafkaStreams.close`."""
        self._streams.close()


class KafkaStreaming(_Runner):
    """Runs the topology of a builder (second draft); nothing runs before `start`."""

    def __init__(self, builder: TopologyBuilder | KStreamBuilder, config: StreamsConfig | Mapping[str, Any]) -> None:
        super().__init__(builder.build(), config)


class KafkaProcess(_Runner):
    """Runs a topology class (first draft); nothing runs before `start`."""

    def __init__(self, topology: type[PTopology], config: StreamsConfig | Mapping[str, Any]) -> None:
        super().__init__(topology.topology(), config)


class KStreamProcess(_Runner):
    """Runs a topology class of streams (first draft); nothing runs before `start`."""

    def __init__(self, topology: type[KStreamTopology], config: StreamsConfig | Mapping[str, Any]) -> None:
        super().__init__(topology.topology(), config)
