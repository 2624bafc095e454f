"""The figures of one operator's calls. The loop writes, any thread may take them."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.metrics.measurements import NOTHING, Measurement, measured_once

_KEPT_ATTEMPTS: Final = 1_000
"""Number of last attempts whose durations are kept."""


class CallFigures(NamedTuple):
    """The calls of one operator in one process.

    Args:
        in_flight: the number of attempts that run now.
        waiting: the number of records that wait for their answers now, those in flight included.
        answered: the number of answers since the last figures, failures included.
        failed: the number of failures among them.
        retries: the number of attempts that followed a failed one, since the last figures.
        latency: the durations of the attempts that ended since the last figures, in ms.
        percentiles: the durations that 50 % and 99 % of the last 1,000 attempts had at most, in ms; None without any.
    """

    in_flight: int = 0
    waiting: int = 0
    answered: int = 0
    failed: int = 0
    retries: int = 0
    latency: Measurement = NOTHING
    percentiles: tuple[float, float] | None = None


class CallCounters:
    """Counts the calls of one operator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = self._waiting = 0
        self._answered = self._failed = self._retries = 0
        self._latency = NOTHING
        self._last: deque[float] = deque(maxlen=_KEPT_ATTEMPTS)

    def set(self, in_flight: int, waiting: int) -> None:
        """Note the current numbers."""
        with self._lock:
            self._in_flight, self._waiting = in_flight, waiting

    def attempted(self, milliseconds: float) -> None:
        """Add an attempt that has ended."""
        with self._lock:
            self._latency = self._latency.plus(measured_once(milliseconds))
            self._last.append(milliseconds)

    def retried(self) -> None:
        """Add an attempt that follows a failed one."""
        with self._lock:
            self._retries += 1

    def answered(self, failures: int) -> None:
        """Add an answer. failures: 1 for a failure, else 0."""
        with self._lock:
            self._answered += 1
            self._failed += failures

    def take(self) -> CallFigures:
        """Return the figures since the last call."""
        with self._lock:
            counted = (self._answered, self._failed, self._retries, self._latency)
            taken = CallFigures(self._in_flight, self._waiting, *counted)
            self._answered = self._failed = self._retries = 0
            self._latency = NOTHING
            last = sorted(self._last)
        return taken._replace(percentiles=(_at_share(last, 0.5), _at_share(last, 0.99)) if last else None)


def _at_share(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values, from 0 to 1, does not exceed."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]
