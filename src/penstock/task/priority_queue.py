"""A queue by priority that gives equal items out in the order of java.util.PriorityQueue.

Kafka keeps punctuations, and the partitions of a task, in one: where times are equal its order shows in the results, so
it is the order here too. (The heapq of Python sifts otherwise, and would give another one.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class PriorityQueue(Generic[T]):
    """A binary heap; an item's key must not change while it is in the queue."""

    def __init__(self, key: Callable[[T], int]) -> None:
        """Order items by `key`, smallest first."""
        self._key = key
        self._heap: list[T] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[T]:
        """Yield the items in an order in which an empty queue, offered them, becomes this one."""
        return iter(self._heap)

    def peek(self) -> T | None:
        """Return the first item without taking it, None if there is none."""
        return self._heap[0] if self._heap else None

    def offer(self, item: T) -> None:
        """Put `item` in."""
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
        """Take and return the first item, None if there is none."""
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
