"""When an application goes on by itself after an error: pure rules, without a clock."""

from __future__ import annotations

from penstock.config import StreamsConfig
from penstock.errors import CorruptedBaseError, RetriableError


class Restarts:
    """How often an application restarts after errors, and how long it waits before that.

    The wait doubles from restart to restart in a row, up to a bound. A commit since the last restart ends the row. In
    one row there are no more restarts than the limit.
    """

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
        self._commit: int | None = None

    @staticmethod
    def of(config: StreamsConfig) -> Restarts:
        """Return the rule that `penstock.restart.*` of `config` set up."""
        return Restarts(
            config["penstock.restart.max.attempts"],
            config["penstock.restart.backoff.ms"],
            config["penstock.restart.backoff.max.ms"],
        )

    def next_wait_ms(self, commit: int) -> int | None:
        """Return how long (ms) to wait before the restart after an error, None if the limit is reached.

        commit: the number of the last one; a larger one than at the last restart begins a new row.
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
    """For how long an application tries again, without asking anybody, what brokers do not serve (task.timeout.ms), and
    what a damaged base prevents, which is made again."""

    def __init__(self, timeout_ms: int) -> None:
        """Have no error. timeout_ms: 0 tries nothing again; another value tries once at least."""
        self._timeout_ms = timeout_ms
        self._until: int | None = None

    def allows(self, error: BaseException, now_ms: int) -> bool:
        """Return whether to try again after `error` at `now_ms`; the time begins with the first one."""
        if not isinstance(error, RetriableError | CorruptedBaseError):
            return False
        until = now_ms + self._timeout_ms if self._until is None else self._until
        is_left = now_ms < until
        self._until = until if is_left else None
        return is_left

    def succeeded(self) -> None:
        """Let the next error begin the time again."""
        self._until = None
