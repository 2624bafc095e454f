"""What every node of a plan has."""

from __future__ import annotations

from dataclasses import dataclass

NodeId = int
"""Identifies a node within one plan."""


@dataclass(frozen=True, kw_only=True)
class BaseNode:
    """Name and parents of a node."""

    name: str
    parents: tuple[NodeId, ...] = ()
