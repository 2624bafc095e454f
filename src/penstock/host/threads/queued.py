"""A thread that does one thing after the other, as they are given to it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class QueuedThread(Generic[T]):
    """Calls a function with each item of a queue, in its own thread."""

    def __init__(self, name: str, do: Callable[[T], None]) -> None:
        """Start. do: must not raise."""
        self._do = do
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Give the thread an item; from any thread."""
        self._queue.put(item)

    def close(self, seconds: float) -> bool:
        """End behind what was given; return whether it has ended in time."""
        self._queue.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._do(item)
