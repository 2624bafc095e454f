"""What every node of a plan has."""

from __future__ import annotations

from dataclasses import dataclass, field

NodeId = int
"""Identifies a node within one plan."""


@dataclass(frozen=True, kw_only=True)
class BaseNode:
    """Name and parents of a node. line: where in the user's program it was made."""

    name: str
    parents: tuple[NodeId, ...] = ()
    line: str | None = field(default=None, compare=False, repr=False)
