"""StreamsBuilder: where a program begins and where its Topology comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.dsl.graph import Graph, Shells
from penstock.dsl.grouped import KGroupedStream
from penstock.dsl.options import Consumed
from penstock.dsl.stream import KStream
from penstock.dsl.table import KTable
from penstock.plan import names, nodes
from penstock.plan.lower import lower
from penstock.plan.optimize import optimizations, optimize
from penstock.plan.topology import Topology
from penstock.state.api import StoreBuilder


class StreamsBuilder:
    """Makes streams, tables and stores, and the Topology of all that was made of them (Kafka class: StreamsBuilder)."""

    def __init__(self) -> None:
        """Start with an empty program."""
        self._graph = Graph(Shells(stream=KStream, table=KTable, grouped_stream=KGroupedStream))

    def stream(self, topic: str | Iterable[str] | re.Pattern[str], consumed: Consumed | None = None) -> KStream:
        """Return the stream of the records of topics.

        Args:
            topic: a topic, several topics, or a compiled regular expression: all topics whose whole name matches.
            consumed: serdes, timestamp extractor, where to begin, name of the node.
        """
        options = consumed or Consumed()
        pattern = topic if isinstance(topic, re.Pattern) else None
        topics = () if isinstance(topic, re.Pattern) else (topic,) if isinstance(topic, str) else tuple(topic)
        node = nodes.StreamSource(
            name=self._graph.names.processor_name(options.name, names.STREAM_SOURCE),
            topics=topics,
            pattern=pattern,
            key_serde=options.key_serde,
            value_serde=options.value_serde,
            timestamp_extractor=options.timestamp_extractor,
            offset_reset=options.offset_reset,
        )
        return self._graph.stream(
            self._graph.add(node), options.key_serde, options.value_serde, repartition_required=False
        )

    def add_state_store(self, store_builder: StoreBuilder) -> StreamsBuilder:
        """Add a store, to be connected to processors by its name; returns this builder."""
        self._graph.add(nodes.AddStateStore(name=store_builder.name, store=store_builder))
        return self

    def build(self, config: Mapping[str, Any] | None = None) -> Topology:
        """Return the topology of all that was made so far, optimised as `topology.optimization` of `config` says.

        Raises TopologyError where it cannot be one, ConfigError for optimisations that do not exist.
        """
        return lower(optimize(self._graph.plan(), optimizations(config or {})))
