"""Protection against an application that reads its own dead letters.

Such an application fails on them again and writes them again, forever. Unless `penstock.read.dead.letters` is set,
patterns skip the dead letter topic, and sources that name it are refused.
"""

from __future__ import annotations

import logging

from penstock.config import StreamsConfig
from penstock.errors import TopologyError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.plan.subtopology import BuiltTopology, SourceSpec
from penstock.plan.user_lines import made_at

_log = logging.getLogger(__name__)

READ_DEAD_LETTERS = "penstock.read.dead.letters"
"""The configuration key that lets sources read the topic."""


def unread_dead_letters(config: StreamsConfig) -> frozenset[str]:
    """Return the dead letter topic if the application must not read it, else nothing."""
    topic = config[DEAD_LETTER_QUEUE_TOPIC]
    return frozenset() if topic is None or config[READ_DEAD_LETTERS] else frozenset([topic])


def check_dead_letters(built: BuiltTopology, config: StreamsConfig) -> None:
    """Raise TopologyError if a source names the dead letter topic.

    Logs a warning for each pattern that matches it. Global stores may read it: no handler writes their records there.
    """
    config = config.overridden(built.config_overrides)
    for topic in unread_dead_letters(config):
        for node in (node for part in built.subtopologies for node in part.nodes if isinstance(node, SourceSpec)):
            source = f"{node.name}{made_at(built.node_lines.get(node.name))}"
            if topic in node.topics:
                raise TopologyError(
                    f"{source} reads {topic}, to which this application writes its dead letters "
                    f"({DEAD_LETTER_QUEUE_TOPIC}): a record that fails would come back endlessly. Read them in another "
                    f"application, or set {READ_DEAD_LETTERS}=true if no record of the topic can fail."
                )
            if node.pattern is not None and node.pattern.fullmatch(topic):
                _log.warning(
                    "The pattern %s of %s matches %s, to which this application writes its dead letters. It does not "
                    "read that topic, since a record that fails would come back endlessly; set %s=true to read it.",
                    node.pattern.pattern,
                    source,
                    topic,
                    READ_DEAD_LETTERS,
                )


def returning_records_error(writes: str, topic: str, reader: str, ends: str) -> TopologyError:
    """Return the error of an operator that would receive the records that it drops, or on which it fails, for ever.

    Args:
        writes: the writing of these records, as the subject and the verb of the message.
        topic: the topic to which it writes them.
        reader: the source above the operator that reads this topic.
        ends: the repeated end of each record, as a verb: "be dropped".
    """
    return TopologyError(
        f"{writes} to topic {topic}, which {reader} reads: they would come back, {ends} again and so on without end. "
        "Name a topic of its own for them; `penstock redrive` writes its records back once."
    )
