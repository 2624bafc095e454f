"""The sources of a topology in error messages, with the lines of the user's program."""

from __future__ import annotations

from penstock.errors import TopologyError
from penstock.plan.subtopology import BuiltTopology, SourceSpec


def source_of(topology: BuiltTopology, topic: str) -> str:
    """Return the name of the source that reads `topic`, with the line that created it."""
    sources = (node for spec in topology.subtopologies for node in spec.nodes if isinstance(node, SourceSpec))
    name = next(node.name for node in sources if topic in node.topics)
    line = topology.node_lines.get(name)
    return f"source {name}" if line is None else f"source {name}, created at {line}"


def check_no_history(topology: BuiltTopology) -> None:
    """Raise TopologyError if a topic of `topology` has a history, for hosts that read only topics."""
    for topic in topology.histories:
        raise TopologyError(
            f"Topic {topic} has a history ({source_of(topology, topic)}), which only the Spark host reads: set "
            f"penstock.host=spark. After the history, or without it, use stream({topic!r})."
        )
