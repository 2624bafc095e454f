"""Delayed actions, such as the end of a member's session."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable


class Timers(ABC):
    """Delayed actions by key; a key has at most one action."""

    @abstractmethod
    def schedule(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action after a delay, replacing the earlier action of the key.

        Args:
            key: the subject of the action.
            delay_ms: the delay in ms.
            action: the action.
        """

    @abstractmethod
    def cancel(self, key: Hashable) -> None:
        """Cancel the action of a key, if any."""


class LoopTimers(Timers):
    """Delayed actions on the event loop."""

    def __init__(self) -> None:
        self._handles: dict[Hashable, asyncio.TimerHandle] = {}

    def schedule(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action after a delay, replacing the earlier action of the key."""
        self.cancel(key)

        def run() -> None:
            del self._handles[key]
            action()

        self._handles[key] = asyncio.get_running_loop().call_later(delay_ms / 1000, run)

    def cancel(self, key: Hashable) -> None:
        """Cancel the action of a key, if any."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()
