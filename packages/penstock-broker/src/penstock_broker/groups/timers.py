"""Actions that are due after a time, such as the end of a member's session."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable


class Timers(ABC):
    """Actions by key; one key has at most one action."""

    @abstractmethod
    def schedule(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action after a time; it replaces the earlier action of the key.

        Args:
            key: what the action is about.
            delay_ms: the time from now, in ms.
            action: what to do.
        """

    @abstractmethod
    def cancel(self, key: Hashable) -> None:
        """Drop the action of a key, if it has one."""


class LoopTimers(Timers):
    """Actions that the event loop runs."""

    def __init__(self) -> None:
        self._handles: dict[Hashable, asyncio.TimerHandle] = {}

    def schedule(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action after a time; it replaces the earlier action of the key."""
        self.cancel(key)

        def run() -> None:
            del self._handles[key]
            action()

        self._handles[key] = asyncio.get_running_loop().call_later(delay_ms / 1000, run)

    def cancel(self, key: Hashable) -> None:
        """Drop the action of a key, if it has one."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()
