"""Topics that must not be read by an operator whose records they receive: the records would come back for ever.

One rule for the records that an operator drops, and for those on which its function fails.
"""

from __future__ import annotations

from penstock.dsl.graph import Graph
from penstock.plan import nodes
from penstock.plan.dead_letters import returning_records_error
from penstock.plan.user_lines import made_at


def check_no_return(graph: Graph, id: nodes.NodeId, topic: str, writes: str, ends: str) -> None:
    """Raise TopologyError if records of `topic` reach a node.

    Args:
        graph: the graph.
        id: the node, or the one above it.
        topic: the name of the topic.
        writes: the writing of its records, as the subject and the verb of the message.
        ends: the repeated end of each record, as a verb: "be dropped".
    """
    waiting, seen = [id], set[nodes.NodeId]()
    while waiting:
        above = waiting.pop()
        if above in seen:
            continue
        seen.add(above)
        node = graph.node(above)
        if _reads(node, topic):
            raise returning_records_error(writes, topic, f"{node.name}{made_at(node.line)}", ends)
        waiting.extend(_parents_of_records(node))


def _reads(node: nodes.GraphNode, topic: str) -> bool:
    match node:
        case nodes.StreamSourceNode(pattern=None, topics=topics):
            return topic in topics
        case nodes.StreamSourceNode(pattern=pattern):
            return pattern is not None and pattern.fullmatch(topic) is not None
        case nodes.TableSourceNode():
            return node.topic == topic
        case _:
            return False


def _parents_of_records(node: nodes.GraphNode) -> tuple[nodes.NodeId, ...]:
    """Return the parents whose records `node` passes on: not the table of a stream's join."""
    match node:
        case nodes.StreamTableJoinNode() | nodes.StreamGlobalTableJoinNode():
            return node.parents[:1]
        case _:
            return node.parents
