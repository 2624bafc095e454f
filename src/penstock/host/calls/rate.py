"""The limit of the number of attempts per second."""

from __future__ import annotations

from typing import Final

_CATCH_UP_SECONDS: Final = 0.01
"""The time that a late timer may catch up, as a burst."""


class RateLimiter:
    """Limits the number of starts per second.

    In any time, it allows the starts of that time and of 10 ms more, and one.

    Args:
        rate: maximum number of starts per second, above 0.
    """

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self._next = float("-inf")

    def wait(self, now: float) -> float:
        """Return the seconds until the next start is allowed, 0 if it is now."""
        return max(self._next - now, 0.0)

    def start(self, now: float) -> None:
        """Note a start at `now`, in seconds."""
        self._next = max(self._next, now - _CATCH_UP_SECONDS) + self._interval
