"""The base of all nodes of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

NodeId = int
"""The id of a node within one plan."""


@dataclass(frozen=True, kw_only=True)
class BaseNode:
    """Name and parents of a node.

    Args:
        name: the node's name in the topology.
        parents: the ids of its parents.
        line: the line of the user's program that made it, None if unknown.
    """

    name: str
    parents: tuple[NodeId, ...] = ()
    line: str | None = field(default=None, compare=False, repr=False)
