"""Rules for automatic restarts after errors: pure, without a clock."""

from __future__ import annotations

from penstock.config import StreamsConfig
from penstock.errors import CorruptedBaseError, RetriableError


class Restarts:
    """The number of restarts of an application after errors, and the waits before them.

    The wait doubles with each restart in a row, up to a maximum. A commit since the last restart ends the row. The
    number of restarts in a row is limited.

    Args:
        most: maximum number of restarts in a row, 0 for no restarts.
        backoff_ms: wait (ms) before the first restart of a row.
        backoff_max_ms: maximum wait (ms).
    """

    def __init__(self, most: int, backoff_ms: int, backoff_max_ms: int) -> None:
        self._most = most
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._in_a_row = 0
        self._commit: int | None = None

    @staticmethod
    def of(config: StreamsConfig) -> Restarts:
        """Return the rules configured by `penstock.restart.*` in `config`."""
        return Restarts(
            config["penstock.restart.max.attempts"],
            config["penstock.restart.backoff.ms"],
            config["penstock.restart.backoff.max.ms"],
        )

    def next_wait_ms(self, commit: int) -> int | None:
        """Return the wait (ms) before a restart, None if the limit is reached.

        commit: the number of the last commit; a higher one than at the last restart begins a new row.
        """
        if self._commit is not None and commit > self._commit:
            self._in_a_row = 0
        self._commit = commit
        if self._in_a_row >= self._most:
            return None
        wait = min(self._backoff_ms << min(self._in_a_row, 30), self._backoff_max_ms)
        self._in_a_row += 1
        return wait


class TaskTimeout:
    """The time during which an application retries errors without its exception handler (task.timeout.ms).

    These are errors of unavailable brokers, and of a damaged base, which is rebuilt.

    Args:
        timeout_ms: the time (ms); 0 disables retries, other values allow one at least.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._until: int | None = None

    def allows(self, error: BaseException, now_ms: int) -> bool:
        """Return whether to retry after `error` at `now_ms`; the time begins with the first error."""
        if not isinstance(error, RetriableError | CorruptedBaseError):
            return False
        until = now_ms + self._timeout_ms if self._until is None else self._until
        is_left = now_ms < until
        self._until = until if is_left else None
        return is_left

    def succeeded(self) -> None:
        """Restart the time with the next error."""
        self._until = None
