"""Topics that a chain of operators both reads and writes, so that their records return."""

from __future__ import annotations

import logging

from penstock.plan.subtopology import BuiltTopology, SinkSpec, SourceSpec
from penstock.plan.user_lines import made_at

_log = logging.getLogger(__name__)


def warn_of_topic_loops(built: BuiltTopology) -> None:
    """Log a warning for each sink that writes to an upstream source's topic.

    Kafka allows that: operators between them may end the loop. Patterns, topics chosen by functions, and repartition
    topics do not count.
    """
    for part in built.subtopologies:
        read: dict[str, dict[str, str]] = {}  # node -> topic -> the source above it
        for node in part.nodes:  # parents before children
            if isinstance(node, SourceSpec):
                read[node.name] = {} if node.is_internal else dict.fromkeys(node.topics, node.name)
                continue
            above = read[node.name] = {topic: at for name in node.parents for topic, at in read[name].items()}
            if isinstance(node, SinkSpec) and node.topic in above:
                source = above[node.topic]
                _log.warning(
                    "%s%s writes to %s, the topic that its source %s%s reads: its records come back, endlessly "
                    "unless an operator between them ends that. Write to another topic if you do not want this.",
                    node.name,
                    made_at(built.node_lines.get(node.name)),
                    node.topic,
                    source,
                    made_at(built.node_lines.get(source)),
                )
