"""Checks of a test's serdes for a topic of TopologyTestDriver."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from penstock.config import StreamsConfig
from penstock.dsl.arguments import serde_hint
from penstock.plan.serde_check import node_serde
from penstock.plan.subtopology import BuiltTopology, SinkSpec, SourceSpec
from penstock.plan.user_lines import calling_line, made_at
from penstock.serdes import Serde
from penstock.serdes.format import is_misread

_log = logging.getLogger(__name__)


class TopicSerdes:
    """Compares the serdes of tests with those of the topology.

    Args:
        built: the topology, with its sources and sinks.
        config: the configuration, without the topology's overrides.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig) -> None:
        self._built = built
        self._config = config.overridden(built.config_overrides)

    def check(self, topic: str, key_serde: Serde, value_serde: Serde, node_kind: type[SourceSpec | SinkSpec]) -> None:
        """Raise TypeError unless topic and serdes are given; warn of serdes that misread numbers.

        Args:
            topic: the name of the topic.
            key_serde: the test's serde of the keys.
            value_serde: the test's serde of the values.
            node_kind: whether the topology reads the topic or writes it.
        """
        given = {"key": key_serde, "value": value_serde}
        _check_given(topic, given)
        for node in self._nodes(topic, node_kind):
            for part, serde in given.items():
                own = node_serde(node, part, self._config)
                pair = (serde, own) if node_kind is SourceSpec else (own, serde)
                if is_misread(*pair):
                    _log.warning(
                        "%s uses %s for the %ss of topic %s, and %s uses %s, so tests do not see what is there.",
                        calling_line(),
                        type(serde).__name__,
                        part,
                        topic,
                        f"{node.name}{made_at(self._built.node_lines.get(node.name))}",
                        type(own).__name__,
                    )

    def _nodes(self, topic: str, kind: type[SourceSpec | SinkSpec]) -> Iterator[SourceSpec | SinkSpec]:
        for subtopology in self._built.subtopologies:
            for node in subtopology.nodes:
                if isinstance(node, kind) and topic in (node.topics if isinstance(node, SourceSpec) else (node.topic,)):
                    yield node


def _check_given(topic: str, serdes: dict[str, Serde]) -> None:
    if topic is None:
        raise TypeError("topic cannot be None")
    for part, given in serdes.items():
        if given is None:
            raise TypeError(f"{part}_serde cannot be None")
        if not isinstance(given, Serde):
            raise TypeError(f"Expected a Serde as {part}_serde of topic {topic!r}, got {given!r}{serde_hint(given)}.")
