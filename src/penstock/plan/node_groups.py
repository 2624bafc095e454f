"""Node groups: which nodes of a topology run together, found by union-find. Knows names only, no nodes.

Rule: nodes that are parent and child, or that share a store, are in one group; groups are numbered in the order in
which their first node was added.
"""

from __future__ import annotations

from collections.abc import Iterable


class QuickUnion:
    """Sets of names that are united pair by pair, with path splitting (Kafka class: QuickUnion)."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add `name` as a new set."""
        self._parents[name] = name

    def root(self, name: str) -> str:
        """Return the name that stands for the set of `name`; raises KeyError for a name that was not added."""
        parents = self._parents
        current, parent = name, parents[name]
        while parent != current:
            grandparent = parents[parent]
            parents[current] = grandparent
            current, parent = parent, grandparent
        return current

    def unite(self, name: str, others: Iterable[str]) -> None:
        """Make one set of the set of `name` and those of `others`; raises KeyError for a name that was not added."""
        for other in others:
            self._parents[self.root(name)] = self.root(other)


def node_groups(names: Iterable[str], union: QuickUnion) -> list[list[str]]:
    """Return the groups of `names`; the index of a group is the id of its sub-topology, and names keep their order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(union.root(name), []).append(name)
    return list(groups.values())
