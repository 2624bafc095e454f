"""How often an application is started again after errors, and how long it waits before: a pure rule, without a clock.

Rules: the wait doubles from restart to restart in a row, up to a bound; a commit since the last restart ends the row;
in one row there are no more restarts than the limit.
"""

from __future__ import annotations


class Restarts:
    """Counts the restarts in a row."""

    def __init__(self, most: int, backoff_ms: int, backoff_max_ms: int) -> None:
        """Begin a row.

        Args:
            most: restarts in a row, 0 for none.
            backoff_ms: wait (ms) before the first of a row.
            backoff_max_ms: longest wait (ms).
        """
        self._most = most
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._in_a_row = 0
        self._epoch: int | None = None

    def next_wait_ms(self, epoch: int) -> int | None:
        """Return how long (ms) to wait before the restart after an error, None if the limit is reached.

        epoch: the last that was committed; a larger one than at the last restart begins a new row.
        """
        if self._epoch is not None and epoch > self._epoch:
            self._in_a_row = 0
        self._epoch = epoch
        if self._in_a_row >= self._most:
            return None
        wait = min(self._backoff_ms << min(self._in_a_row, 30), self._backoff_max_ms)
        self._in_a_row += 1
        return wait
