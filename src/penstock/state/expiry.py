"""The expiry of the entries of one store with a time to live.

Rules:
- An entry expires when the clock reaches its timestamp plus the time to live. One without a timestamp, -1, never does.
- There is no index: the entries have their timestamps, so state from any source expires alike. A sweep looks through
  the entries in key order, a limited number at a time, and the next sweep continues there.
- A sweep looks at twice as many entries as were written since the last one, and at least ENTRIES_PER_SWEEP. So while a
  store is written at a steady rate, at most half of its entries are expired ones, whatever its size.
- A read that renews an entry writes it with the time of the clock, at most RENEWALS times in a time to live. So
  changelogs and checkpoints have the renewals, and copies of the state agree.
- The clock as of a commit is metadata of the store: readers of committed state take it from there.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from itertools import islice
from typing import Final, Protocol

from penstock.record import NO_TIMESTAMP
from penstock.state.api import RecordContext
from penstock.state.bytes_store import BytesStore
from penstock.state.ttl import OnExpiry, Ttl, TtlClock, TtlRenewal
from penstock.state.value_times import ValueTimes

ENTRIES_PER_SWEEP: Final = 10_000
"""Number of entries at which a sweep looks after few writes."""


class ExpiryServices(Protocol):
    """The services of a task to its stores with a time to live."""

    @property
    def cursors(self) -> MutableMapping[str, bytes]:
        """The key at which the next sweep of a store starts, by store; absent for the first key."""
        ...

    @property
    def is_processing(self) -> bool:
        """Whether the task processes a record now: its reads may renew entries."""
        ...

    def now_ms(self, clock: TtlClock) -> int:
        """Return the time of the task (ms)."""
        ...

    def add(self, store_name: str, ttl: Ttl, sweep: Callable[[], None]) -> None:
        """Call `sweep` at the intervals of `ttl`, once the task runs."""
        ...


class Expiry:
    """Decides which entries of a store have expired.

    Args:
        store_name: the name of the store.
        ttl: the time to live.
        times: reads and replaces the timestamp (ms) in the bytes of a value.
        metadata: the stores' persistent values besides entries.
        services: of the task; None for readers of committed state, whose time is that of the commit.
    """

    def __init__(
        self,
        store_name: str,
        ttl: Ttl,
        times: ValueTimes,
        metadata: MutableMapping[str, int],
        services: ExpiryServices | None,
    ) -> None:
        self.on_expiry = ttl.on_expiry
        self._store_name = store_name
        self._ttl = ttl
        self._times = times
        self._timestamp_of = times.timestamp_of
        self._metadata = metadata
        self._services = services
        self._clock = f"{store_name}/ttl_{ttl.clock.name.lower()}"
        self._written = f"{store_name}/ttl_writes"

    # ---------- time

    def now_ms(self) -> int:
        """Return the time (ms): of the task, or of the commit for readers of committed state."""
        if self._services is None:
            return self._metadata.get(self._clock, NO_TIMESTAMP)
        return self._services.now_ms(self._ttl.clock)

    def commit_time(self) -> None:
        """Store the time for readers of committed state."""
        if self._services is not None:
            self._metadata[self._clock] = self.now_ms()

    def latest_expired(self) -> int:
        """Return the largest timestamp (ms) of entries that have expired now."""
        return self.now_ms() - self._ttl.duration_ms

    def has_expired(self, value: bytes, latest: int) -> bool:
        """Return whether an entry has expired; `latest` is a `latest_expired`."""
        return 0 <= self._timestamp_of(value) <= latest

    def unexpired(self, value: bytes | None) -> bytes | None:
        """Return the value of an entry, None if it has expired."""
        return None if value is None or self.has_expired(value, self.latest_expired()) else value

    def renewed(self, value: bytes) -> bytes | None:
        """Return the value of an unexpired entry renewed by a read; None if the read does not renew it."""
        if self._services is None or self._ttl.renewal is TtlRenewal.WRITES or not self._services.is_processing:
            return None
        now = self.now_ms()
        if not 0 <= self._timestamp_of(value) <= now - self._ttl.renewal_interval_ms:
            return None
        return self._times.with_timestamp(value, now)

    def delete_context(self, value: bytes) -> RecordContext:
        """Return the context of the delete of an expired entry: its timestamp is the time of the expiry."""
        return RecordContext(self._timestamp_of(value) + self._ttl.duration_ms, ())

    def outgoing(
        self, values: list[bytes | None], contexts: list[RecordContext]
    ) -> tuple[list[bytes | None], list[RecordContext]]:
        """Return entries that leave a record cache: the expired ones as deletes, if operators receive deletes.

        A later sweep would delete them only when the clock has advanced.
        """
        if self.on_expiry is OnExpiry.DROP:
            return values, contexts
        latest = self.latest_expired()
        unexpired: list[bytes | None] = []
        left: list[RecordContext] = []
        for value, context in zip(values, contexts, strict=True):
            is_expired = value is not None and self.has_expired(value, latest)
            unexpired.append(None if is_expired else value)
            left.append(self.delete_context(value) if value is not None and is_expired else context)
        return unexpired, left

    # ---------- sweeps

    def count_writes(self, number: int) -> None:
        """Count writes, which lengthen the next sweep."""
        if self._services is not None:
            self._metadata[self._written] = self._metadata.get(self._written, 0) + number

    def schedule(self, sweep: Callable[[], None]) -> None:
        """Ask the task for regular calls of `sweep`."""
        if self._services is not None:
            self._services.add(self._store_name, self._ttl, sweep)

    def take_expired(self, entries: BytesStore) -> list[tuple[bytes, bytes]]:
        """Return the expired entries among the next ones of a sweep, which reads a limited number.

        entries: the store.
        """
        if self._services is None:
            return []
        cursors, latest = self._services.cursors, self.latest_expired()
        left = max(ENTRIES_PER_SWEEP, 2 * self._metadata.pop(self._written, 0))
        rest = entries.range(cursors.pop(self._store_name, None), None, False)
        expired = [(key, value) for key, value in islice(rest, left) if self.has_expired(value, latest)]
        following = next(rest, None)
        if following is not None:
            cursors[self._store_name] = following[0]
        return expired

    def expired_among(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[tuple[bytes, bytes]]:
        """Return the keys with expired values."""
        latest = self.latest_expired()
        pairs = zip(keys, values, strict=True)
        return [(key, value) for key, value in pairs if value is not None and self.has_expired(value, latest)]
