"""A priority queue that returns equal items in the order of java.util.PriorityQueue.

Kafka keeps punctuations, and the partitions of a task, in one: with equal times its order affects the results, so it is
the order here too. (Python's heapq sifts differently, and would return another order.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class PriorityQueue(Generic[T]):
    """A binary heap; an item's key must not change while it is in the queue.

    Args:
        key: the key of an item; the smallest is first.
    """

    def __init__(self, key: Callable[[T], int]) -> None:
        self._key = key
        self._heap: list[T] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[T]:
        """Yield the items in an order that, offered to an empty queue, recreates this one."""
        return iter(self._heap)

    def peek(self) -> T | None:
        """Return the first item without removing it, or None if empty."""
        return self._heap[0] if self._heap else None

    def offer(self, item: T) -> None:
        """Add `item`."""
        heap, key = self._heap, self._key
        heap.append(item)
        at, wanted = len(heap) - 1, key(item)
        while at > 0:
            parent = (at - 1) // 2
            if wanted >= key(heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = item

    def poll(self) -> T | None:
        """Remove and return the first item, or None if empty."""
        heap, key = self._heap, self._key
        if not heap:
            return None
        first, last = heap[0], heap.pop()
        if not heap:
            return first
        at, wanted = 0, key(last)
        while (child := 2 * at + 1) < len(heap):
            right = child + 1
            if right < len(heap) and key(heap[child]) > key(heap[right]):
                child = right
            if wanted <= key(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        return first
