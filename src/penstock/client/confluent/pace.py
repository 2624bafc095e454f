"""How fast brokers take records, and how long a transaction may be open that they take slowly: a client above its quota
is slowed down, and nothing fails for that.

Rule: no wait for records ends while brokers take some; a transaction that was too long for its time-out is tried again
with a longer one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError as Code
from confluent_kafka import Producer

from penstock.client.confluent.connection import ClientConnection, drained

LAG_SECONDS = 2.5
"""How long brokers may need for what a producer was given before what was sent should be committed."""

TIMED_OUT = frozenset((Code._TIMED_OUT, Code._TIMED_OUT_QUEUE, Code._MSG_TIMED_OUT))
"""Codes of what brokers did not do in time."""

PATIENT: Mapping[str, Any] = {"delivery.timeout.ms": 900_000}
"""Defaults of producers without transactions, whose waits end when brokers take nothing: librdkafka counts for each
record how long it waits behind others."""

_LOOK_SECONDS = 0.5
_SURE_SECONDS = 1.0
"""How long a producer has records waiting before that shows how fast brokers take them."""

_MOST_TIMEOUT_MS = 900_000
"""The default of `transaction.max.timeout.ms` of brokers."""

_MOST_IN_VAIN_MS = 60_000
"""The default of `transaction.timeout.ms` of Kafka's producer."""

_LONGEST_STEP = 8
"""How many times as long a time-out may become at once."""

_QUICK_COMMITS = 20
"""Commits within a quarter of the given time-out, after which it holds again."""


class Pace:
    """How fast brokers take the records of a producer."""

    def __init__(self) -> None:
        """Know of no record."""
        self._records = 0
        self._since = 0.0

    def give(self, records: int, waiting: int) -> None:
        """Take that a producer gets `records`, with `waiting` ones that brokers have not taken yet."""
        if not waiting:
            self._records, self._since = 0, time.monotonic()
        self._records += records

    def taken(self, waiting: int) -> int:
        """Return how many brokers have taken since there was none, with `waiting` ones left."""
        return max(self._records - waiting, 0)

    def seconds_left(self, waiting: int) -> float:
        """Return how long brokers will need for `waiting` records, 0 as long as that is not known."""
        elapsed = time.monotonic() - self._since
        return waiting * elapsed / max(self.taken(waiting), 1) if elapsed >= _SURE_SECONDS else 0.0


class TransactionTimeout:
    """`transaction.timeout.ms` of a producer, which is longer than given as long as its transactions need that."""

    def __init__(self, given_ms: int) -> None:
        """Begin with the value of the configuration (ms)."""
        self._given_ms = self.ms = given_ms
        self._most_ms = max(given_ms, _MOST_TIMEOUT_MS)
        self._quick = 0

    @property
    def seconds(self) -> float:
        """The time-out in seconds."""
        return self.ms / 1000

    def lengthen(self, seconds: float, waiting: int, taken: int) -> bool:
        """Return whether the next transaction has more time. seconds: how long this one was open, with `waiting`
        records that brokers have not taken and `taken` ones. If they have taken none, they may be away, and a long
        time-out would only hide it."""
        needed = 2 * max(self.ms, int(seconds * 1000)) * (1 + waiting / taken if taken else 1)
        longer = int(min(needed, _LONGEST_STEP * self.ms, self._most_ms if taken else _MOST_IN_VAIN_MS))
        is_longer, self.ms = longer > self.ms, max(longer, self.ms)
        return is_longer

    def refused(self) -> bool:
        """Take that brokers refuse so long a time-out; return whether there is a shorter one."""
        is_shorter = self.ms > self._given_ms
        self.ms = self._most_ms = max(self.ms // 2, self._given_ms)
        return is_shorter

    def committed(self, seconds: float) -> bool:
        """Take that a transaction was committed after `seconds`; return whether the given time-out holds again."""
        self._quick = self._quick + 1 if seconds * 1000 < self._given_ms / 4 else 0
        if self.ms == self._given_ms or self._quick < _QUICK_COMMITS:
            return False
        self.ms = self._given_ms
        return True


def drained_while_taken(
    connection: ClientConnection, producer: Producer, has_failed: Callable[[], bool] = lambda: False
) -> int:
    """Wait until brokers have answered all records, and return for how many they have not. It waits as long as they
    take some, or make this client wait, since it is above its quota; else for the timeout of `connection`. has_failed,
    errors: as for `drained`."""
    waiting, deadline = len(producer), time.monotonic() + connection.timeout
    while waiting and not has_failed():
        left = drained(producer, _LOOK_SECONDS, has_failed)
        now = time.monotonic()
        if left < waiting:
            deadline = now + connection.timeout
        if now >= max(deadline, connection.throttled_until + connection.timeout):
            return left
        waiting = left
    return waiting
