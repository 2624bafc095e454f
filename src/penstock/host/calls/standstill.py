"""Notices that a process stood still, such as one that was stopped, or whose container was frozen.

A coroutine function that blocks its loop looks the same, since the loop of the calls makes the looks.
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
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen = now()
        self._until = self._seen

    def look(self) -> float:
        """Return the seconds until attempts may start, 0 if they may now; called at least every LOOK_SECONDS."""
        now = self._now()
        if now - self._seen > LONGEST_SECONDS:
            self._until = now + HOLD_SECONDS
            _log.warning(
                "The process stood still for %d ms, or a coroutine function of Calls blocked its loop. No call starts "
                "for %d ms, as another process may have its tasks. A coroutine function must not block: write def in "
                "place of async def, and give Calls threads=.",
                round((now - self._seen) * 1000),
                round(HOLD_SECONDS * 1000),
            )
        self._seen = now
        return max(self._until - now, 0.0)

    def check(self) -> None:
        """Raise StandstillError while attempts may not start."""
        if self.look() > 0:
            raise StandstillError
