"""The iteration orders of Java's collections, where Kafka exposes them.

These are the nodes in `describe()` and the order of stores. Contains only the orders, not the collections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

_DEFAULT_CAPACITY = 16
_LOAD_FACTOR = 0.75


def string_hash(text: str) -> int:
    """Return the hash code of a text as an unsigned 32-bit number (Java: String.hashCode)."""
    code = 0
    units = text.encode("utf-16-be")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    return code


def _order(names: Iterable[str], capacity: int) -> list[str]:
    def bucket(name: str) -> int:
        code = string_hash(name)
        return (code ^ (code >> 16)) & (capacity - 1)

    return sorted(dict.fromkeys(names), key=bucket)


def hash_order(names: Collection[str]) -> list[str]:
    """Return `names` in the order of a HashSet, or of the keys of a HashMap.

    The order is that of a collection to which they were added one by one.
    """
    capacity = _DEFAULT_CAPACITY
    while len(set(names)) > capacity * _LOAD_FACTOR:
        capacity *= 2
    return _order(names, capacity)


def copied_hash_order(names: Collection[str]) -> list[str]:
    """Return `names` in the order of a HashSet that copies a collection.

    Such a set is sized before its elements are added.
    """
    wanted = max(int(len(names) / _LOAD_FACTOR) + 1, _DEFAULT_CAPACITY)
    return _order(names, 1 << (wanted - 1).bit_length())


class TreeOrder:
    """The order of a TreeSet of nodes whose sizes change after they are added.

    Kafka class: InternalTopologyBuilder.NodeComparator.

    Larger nodes come first, and nodes of equal size are sorted by name. As in Java, the size at the time of addition
    determines the place of a node, which never moves. The tree must therefore be balanced exactly like a TreeSet: the
    position of later nodes depends on the nodes they are compared with.

    Args:
        sizes: a live mapping from name to size.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._root: _Entry | None = None

    def __iter__(self) -> Iterator[str]:
        return _in_order(self._root)

    def add(self, name: str) -> None:
        """Add `name`, unless the search path already contains it."""
        parent, entry, before = None, self._root, False
        while entry is not None:
            if entry.name == name:
                return
            before = (-self._sizes[name], name) < (-self._sizes[entry.name], entry.name)
            parent, entry = entry, entry.left if before else entry.right
        added = _Entry(name, parent)
        if parent is None:
            self._root = added
        elif before:
            parent.left = added
        else:
            parent.right = added
        self._rebalance(added)

    def _rebalance(self, entry: _Entry) -> None:
        """Restore the rules of a red-black tree after the addition of `entry`, which is red."""
        while entry.parent is not None and entry.parent.red:
            parent = entry.parent
            grandparent = parent.parent
            if grandparent is None:
                break
            on_left = parent is grandparent.left
            uncle = grandparent.right if on_left else grandparent.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grandparent.red = True
                entry = grandparent
                continue
            if entry is (parent.right if on_left else parent.left):
                self._rotate(parent, to_left=on_left)
                entry, parent = parent, entry
            parent.red, grandparent.red = False, True
            self._rotate(grandparent, to_left=not on_left)
        if self._root is not None:
            self._root.red = False

    def _rotate(self, entry: _Entry, to_left: bool) -> None:
        """Replace `entry` by its right or left child, and make `entry` that child's child.

        The child is the right one if the rotation is `to_left`.
        """
        child = entry.right if to_left else entry.left
        assert child is not None
        moved = child.left if to_left else child.right
        if to_left:
            entry.right, child.left = moved, entry
        else:
            entry.left, child.right = moved, entry
        if moved is not None:
            moved.parent = entry
        child.parent = entry.parent
        if entry.parent is None:
            self._root = child
        elif entry.parent.left is entry:
            entry.parent.left = child
        else:
            entry.parent.right = child
        entry.parent = child


class _Entry:
    """A node in the tree of a TreeOrder."""

    __slots__ = ("left", "name", "parent", "red", "right")

    def __init__(self, name: str, parent: _Entry | None) -> None:
        self.name = name
        self.parent = parent
        self.left: _Entry | None = None
        self.right: _Entry | None = None
        self.red = True


def _in_order(entry: _Entry | None) -> Iterator[str]:
    if entry is not None:
        yield from _in_order(entry.left)
        yield entry.name
        yield from _in_order(entry.right)
