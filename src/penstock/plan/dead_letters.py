"""An application that reads its own dead letters fails on them again and writes them again, for ever: patterns leave
their topic out, and sources that name it are refused, unless `penstock.read.dead.letters` is set."""

from __future__ import annotations

import logging

from penstock.config import StreamsConfig
from penstock.errors import TopologyError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.plan.subtopology import BuiltTopology, SourceSpec
from penstock.plan.user_lines import made_at

_log = logging.getLogger(__name__)

READ_DEAD_LETTERS = "penstock.read.dead.letters"
"""The configuration that lets sources read the topic."""


def unread_dead_letters(config: StreamsConfig) -> frozenset[str]:
    """Return the topic of dead letters if the application must not read it; nothing otherwise."""
    topic = config[DEAD_LETTER_QUEUE_TOPIC]
    return frozenset() if topic is None or config[READ_DEAD_LETTERS] else frozenset([topic])


def check_dead_letters(built: BuiltTopology, config: StreamsConfig) -> None:
    """Raise TopologyError if a source names the topic of dead letters, and warn of patterns that match it; global
    stores, whose records no handler writes there, may read it."""
    config = config.overridden(built.config_overrides)
    for topic in unread_dead_letters(config):
        for node in (node for part in built.subtopologies for node in part.nodes if isinstance(node, SourceSpec)):
            source = f"{node.name}{made_at(built.node_lines.get(node.name))}"
            if topic in node.topics:
                raise TopologyError(
                    f"{source} reads {topic}, to which this application writes its dead letters "
                    f"({DEAD_LETTER_QUEUE_TOPIC}): a record that fails would come back for ever. Read them in another "
                    f"application, or set {READ_DEAD_LETTERS}=true if no record of the topic can fail."
                )
            if node.pattern is not None and node.pattern.fullmatch(topic):
                _log.warning(
                    "The pattern %s of %s matches %s, to which this application writes its dead letters. It does not "
                    "read that topic, since a record that fails would come back for ever; set %s=true to read it.",
                    node.pattern.pattern,
                    source,
                    topic,
                    READ_DEAD_LETTERS,
                )
