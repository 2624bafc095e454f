"""Timers that a test moves, for coordinators without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from penstock_broker.common.clock import MockClock
from penstock_broker.groups.timers import Timers


class ManualTimers(Timers):
    """Timers that run when the test lets time pass.

    Args:
        clock: moved together with the timers.
    """

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self._due: dict[Hashable, tuple[int, int, Callable[[], None]]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._due)

    def schedule(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action when that much time has passed."""
        self._number += 1
        self._due[key] = (self.clock.milliseconds() + delay_ms, self._number, action)

    def cancel(self, key: Hashable) -> None:
        """Drop the action of a key."""
        self._due.pop(key, None)

    def advance(self, milliseconds: int) -> None:
        """Let time pass and run what is due, in order."""
        end = self.clock.milliseconds() + milliseconds
        while self._due:
            key = min(self._due, key=lambda each: self._due[each][:2])
            at, _, action = self._due[key]
            if at > end:
                break
            del self._due[key]
            self.clock.advance(max(at - self.clock.milliseconds(), 0))
            action()
        self.clock.advance(end - self.clock.milliseconds())
