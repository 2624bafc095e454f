"""Throughput of producers, and transaction timeouts that adapt to slow brokers.

Brokers throttle a client above its quota; throttling must not cause failures. Rules: no wait for records ends while
brokers accept some; a transaction that exceeded its timeout is tried again with a longer one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError as Code
from confluent_kafka import Producer

from penstock.client.confluent.connection import ClientConnection, drained

LAG_SECONDS = 2.5
"""Backlog (s) of a producer above which the records sent should be committed."""

TIMED_OUT = frozenset((Code._TIMED_OUT, Code._TIMED_OUT_QUEUE, Code._MSG_TIMED_OUT))
"""Error codes of timeouts."""

PATIENT: Mapping[str, Any] = {"delivery.timeout.ms": 900_000}
"""Default settings of producers without transactions, whose waits end when brokers accept no records.

librdkafka's timeout of a record includes its time in the queue.
"""

_LOOK_SECONDS = 0.5
_SURE_SECONDS = 1.0
"""Minimum time (s) with queued records before the throughput of brokers is estimated."""

_MOST_TIMEOUT_MS = 900_000
"""Default of the brokers' `transaction.max.timeout.ms`."""

_MOST_IN_VAIN_MS = 60_000
"""Default of `transaction.timeout.ms` of Kafka's producer."""

_LONGEST_STEP = 8
"""Maximum factor by which one step lengthens a timeout."""

_QUICK_COMMITS = 20
"""Number of quick commits in a row that restore the configured timeout.

A quick commit takes less than a quarter of that timeout.
"""


class Pace:
    """Throughput of a producer: how fast brokers accept its records."""

    def __init__(self) -> None:
        self._records = 0
        self._since = time.monotonic()

    def give(self, records: int, waiting: int) -> None:
        """Count `records` sent to a producer with `waiting` records in its queue."""
        if not waiting:
            self._records, self._since = 0, time.monotonic()
        self._records += records

    def taken(self, waiting: int) -> int:
        """Return the number of accepted records since the queue was last empty. `waiting` records are in it now."""
        return max(self._records - waiting, 0)

    def seconds_left(self, waiting: int) -> float:
        """Return the estimated time (s) for `waiting` records, 0 while the throughput is unknown."""
        elapsed = time.monotonic() - self._since
        return waiting * elapsed / max(self.taken(waiting), 1) if elapsed >= _SURE_SECONDS else 0.0


class TransactionTimeout:
    """`transaction.timeout.ms` of a producer, lengthened while its transactions need more time.

    Args:
        given_ms: the configured timeout (ms).
    """

    def __init__(self, given_ms: int) -> None:
        self._given_ms = self.ms = given_ms
        self._most_ms = max(given_ms, _MOST_TIMEOUT_MS)
        self._quick = 0

    @property
    def seconds(self) -> float:
        """The timeout in seconds."""
        return self.ms / 1000

    def lengthen(self, seconds: float, waiting: int, taken: int) -> bool:
        """Lengthen the timeout after a transaction exceeded it.

        Returns whether the next one has more time. If brokers accepted no records, they may be unavailable, and a long
        timeout would only hide that.

        Args:
            seconds: duration of the transaction.
            waiting: number of its records that brokers have not accepted.
            taken: number of its records that brokers have accepted.
        """
        needed = 2 * max(self.ms, int(seconds * 1000)) * (1 + waiting / taken if taken else 1)
        longer = int(min(needed, _LONGEST_STEP * self.ms, self._most_ms if taken else _MOST_IN_VAIN_MS))
        is_longer, self.ms = longer > self.ms, max(longer, self.ms)
        return is_longer

    def refused(self) -> bool:
        """Shorten the timeout after brokers refused it. Returns whether it was longer than configured."""
        is_shorter = self.ms > self._given_ms
        self.ms = self._most_ms = max(self.ms // 2, self._given_ms)
        return is_shorter

    def committed(self, seconds: float) -> bool:
        """Note a commit after `seconds`; return whether the configured timeout is restored."""
        self._quick = self._quick + 1 if seconds * 1000 < self._given_ms / 4 else 0
        if self.ms == self._given_ms or self._quick < _QUICK_COMMITS:
            return False
        self.ms = self._given_ms
        return True


def drained_while_taken(
    connection: ClientConnection, producer: Producer, has_failed: Callable[[], bool] = lambda: False
) -> int:
    """Wait until brokers have answered all records, and return the number of unanswered ones.

    The wait goes on while brokers accept records or throttle this client for its quota; otherwise it ends after the
    timeout of `connection`. has_failed and errors: as for `drained`.
    """
    connection.asks()
    waiting, deadline = len(producer), time.monotonic() + connection.timeout
    while waiting and not has_failed():
        left = drained(producer, _LOOK_SECONDS, has_failed)
        now = time.monotonic()
        if left < waiting:
            connection.asks()
            deadline = now + connection.timeout
        if now >= max(deadline, connection.throttled_until + connection.timeout):
            return left
        waiting = left
    return waiting
