"""A thread that processes queued items one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class QueuedThread(Generic[T]):
    """Calls a function with each item of a queue, in its own thread.

    Args:
        name: of the thread.
        do: the function; must not raise.
        between: called when the queue is empty, and again if no item arrives within the seconds that it returns; must
            not raise.
    """

    def __init__(self, name: str, do: Callable[[T], None], between: Callable[[], float | None] = lambda: None) -> None:
        self._do = do
        self._between = between
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Queue an item; from any thread."""
        self._queue.put(item)

    def take_next(self) -> T | None:
        """Remove and return the next item without waiting, None if there is none; for the function, in the thread."""
        if self._queue.empty():
            return None
        item = self._queue.get_nowait()
        if item is None:  # the end, which the thread itself has to see
            self._queue.put(None)
        return item

    def take_back(self) -> list[T]:
        """Remove and return the items that have not begun; from any thread."""
        items: list[T] = []
        with suppress(queue.Empty):
            while (item := self._queue.get_nowait()) is not None:
                items.append(item)
        return items

    @property
    def ident(self) -> int | None:
        """The Python identifier of the thread."""
        return self._thread.ident

    def close(self, seconds: float) -> bool:
        """End after all queued items; return whether the thread has ended in time."""
        self._queue.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                try:
                    item = self._queue.get(timeout=self._between())
                except queue.Empty:
                    continue
            if item is None:
                return
            self._do(item)
