"""The waiting times between the attempts of a retry."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_broker.common.durations import Duration, milliseconds

_LONGEST_MS = 366 * 24 * 3_600_000


@dataclass(frozen=True)
class Backoff:
    """The waiting times between the attempts of a retry, which grow up to a limit.

    Args:
        initial: the wait after the first failure, at least 1 ms (ms, or a timedelta).
        factor: how much longer each wait is than the one before, at least 1.
        limit: the longest wait, at least `initial` and at most a year (ms, or a timedelta).

    Raises:
        TypeError: an argument has another type.
        ValueError: an argument is out of range.
    """

    initial: Duration
    factor: float = 2
    limit: Duration = 3_600_000

    def __post_init__(self) -> None:
        initial = milliseconds(self.initial, "the initial wait of Backoff")
        limit = milliseconds(self.limit, "the limit of Backoff")
        if type(self.factor) not in (int, float):
            raise TypeError(f"Expected the factor of Backoff as a number, such as 2, got {self.factor!r}.")
        if initial < 1:
            raise ValueError(f"The initial wait of Backoff must be at least 1 ms, got {self.initial!r}.")
        if not 1 <= self.factor < float("inf"):
            raise ValueError(f"The factor of Backoff must be at least 1, got {self.factor!r}.")
        if not initial <= limit <= _LONGEST_MS:
            raise ValueError(
                f"The limit of Backoff must be at least the initial wait, {initial} ms, and at most a year, got "
                f"{self.limit!r}."
            )

    @property
    def limit_ms(self) -> int:
        """The longest wait in ms."""
        return milliseconds(self.limit, "limit")

    def wait_ms(self, failures: int) -> int:
        """Return the wait in ms after this number of failures, 1 or more."""
        wait, limit = milliseconds(self.initial, "wait"), self.limit_ms
        for _ in range(failures - 1):
            wait = int(wait * self.factor)
            if wait >= limit or self.factor == 1:
                break
        return min(wait, limit)
