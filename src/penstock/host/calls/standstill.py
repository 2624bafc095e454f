"""Notices that a process stood still, such as one that was stopped, or whose container was frozen.

A coroutine function that blocks the loop looks the same, since the looks are made in it (`blocked_loop` finds it).
Other processes may have its tasks then, and have made their calls. The process learns of it soon after it goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""The interval of the looks while no call is made."""

LONGEST_SECONDS: Final = 4.0
"""The longest time between two looks of a process that runs; sessions of groups are longer."""

HOLD_SECONDS: Final = 5.0
"""The time in which a process learns that others have its tasks: that of a heartbeat and its answer."""


class StandstillError(Exception):
    """The process stood still between the start of an attempt and its call."""


class Standstill:
    """Holds back attempts for some time after the process stood still.

    Args:
        now: the clock, in seconds, which goes on while the process stands still.
        blocking_since: returns the function that has blocked the loop since a look at this time, None if no function.
    """

    def __init__(
        self, now: Callable[[], float], blocking_since: Callable[[float], str | None] = lambda seen: None
    ) -> None:
        self._now = now
        self._blocking_since = blocking_since
        self._until = self.seen = now()
        """The time of the last look."""

    def look(self) -> float:
        """Return the seconds until attempts may start, 0 if they may now; called at least every LOOK_SECONDS."""
        now = self._now()
        if now - self.seen > LONGEST_SECONDS:
            self._until = now + HOLD_SECONDS
            function = self._blocking_since(self.seen)
            _log.warning(
                "%s for %d ms. No call starts for %d ms, as another process may have its tasks.",
                "The process stood still" if function is None else f"{function} blocked the loop of all calls",
                round((now - self.seen) * 1000),
                round(HOLD_SECONDS * 1000),
            )
        self.seen = now
        return max(self._until - now, 0.0)

    def check(self) -> None:
        """Raise StandstillError while attempts may not start."""
        if self.look() > 0:
            raise StandstillError
