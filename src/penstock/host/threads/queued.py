"""A thread that does one thing after the other, as they are given to it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class QueuedThread(Generic[T]):
    """Calls a function with each item of a queue, in its own thread."""

    def __init__(self, name: str, do: Callable[[T], None], between: Callable[[], float | None] = lambda: None) -> None:
        """Start. do: must not raise. between: likewise; called when no item waits, and again after the seconds that it
        returns if none has come."""
        self._do = do
        self._between = between
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Give the thread an item; from any thread."""
        self._queue.put(item)

    def take_back(self) -> list[T]:
        """Return the items that have not begun; from any thread."""
        items: list[T] = []
        with suppress(queue.Empty):
            while (item := self._queue.get_nowait()) is not None:
                items.append(item)
        return items

    @property
    def ident(self) -> int | None:
        """The number of the thread, as Python knows it."""
        return self._thread.ident

    def close(self, seconds: float) -> bool:
        """End behind what was given; return whether it has ended in time."""
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
