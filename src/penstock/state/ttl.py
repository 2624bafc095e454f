"""The time to live of a store's entries, as the user sets it.

An entry expires a time after its timestamp, as records of a topic do after `retention.ms`. `expiry` decides which
entries of a store have expired; this module only checks and holds the options.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    SessionBytesStoreSupplier,
    StoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock_broker.common.durations import LATEST_MS, Duration, milliseconds

SWEEPS = 10
"""Number of sweeps in one time to live."""

RENEWALS = 10
"""Maximum number of renewals of an entry by reads in one time to live; each of them is a write."""

SHORTEST_WAIT_MS = 1_000
"""The shortest time between two sweeps by the wall clock, which wake an idle task."""


class TtlClock(Enum):
    """The clock that measures the time to live of entries.

    STREAM_TIME is the largest timestamp of the task's records. WALL_CLOCK_TIME is the time of the system; on Spark, the
    planned time of the epoch.
    """

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class TtlRenewal(Enum):
    """The calls that begin the time to live of an entry again.

    WRITES are writes only. READS_AND_WRITES are also reads by key while a processor processes a record: such a read
    sets the timestamp of the entry to the time of the clock.
    """

    WRITES = "writes"
    READS_AND_WRITES = "reads and writes"


class OnExpiry(Enum):
    """The effect of an expired entry on the operators below its table.

    FORWARD_DELETE forwards an update to None, so that aggregations of the table subtract the entry. DROP forwards
    nothing.
    """

    FORWARD_DELETE = "forward a delete"
    DROP = "forward nothing"


@dataclass(frozen=True)
class Ttl:
    """The time to live of the entries of a store.

    Args:
        duration_ms: the lifetime (ms) of an entry, from its timestamp; at least 1.
        clock: the clock of the lifetime.
        on_expiry: the effect on the operators below; without one for stores of processors.
        renewal: the calls that renew an entry; reads do so in stores of processors only.
    """

    duration_ms: int
    clock: TtlClock = TtlClock.STREAM_TIME
    on_expiry: OnExpiry = OnExpiry.FORWARD_DELETE
    renewal: TtlRenewal = TtlRenewal.WRITES

    @property
    def sweep_interval_ms(self) -> int:
        """Time (ms) between two sweeps, each of which deletes some expired entries."""
        shortest = SHORTEST_WAIT_MS if self.clock is TtlClock.WALL_CLOCK_TIME else 1
        return max(self.duration_ms // SWEEPS, shortest)

    @property
    def renewal_interval_ms(self) -> int:
        """Shortest time (ms) between the timestamp of an entry and its renewal by a read."""
        return max(self.duration_ms // RENEWALS, 1)


def checked_ttl(ttl: Duration, clock: Any, on_expiry: Any, renewal: Any = TtlRenewal.WRITES) -> Ttl:
    """Return the user's options of `with_ttl`.

    Raises TypeError for a value of another type, ValueError for a lifetime below 1 ms or of more than 63 bits.
    """
    duration_ms = milliseconds(ttl, "the time to live")
    if not 1 <= duration_ms <= LATEST_MS:
        raise ValueError(f"The time to live of entries must be at least 1 ms, and have at most 63 bits, not {ttl!r}.")
    for name, given, expected in (
        ("clock", clock, TtlClock),
        ("on_expiry", on_expiry, OnExpiry),
        ("renewal", renewal, TtlRenewal),
    ):
        if not isinstance(given, expected):
            listed = " or ".join(map(str, expected))
            raise TypeError(f"Expected {listed} as {name} of with_ttl(), got {given!r}.")
    return Ttl(duration_ms, clock, on_expiry, renewal)


def check_has_timestamps(supplier: StoreSupplier, timestamped: bool) -> None:
    """Raise TypeError unless the entries of a store have timestamps and can expire one by one."""
    if timestamped and isinstance(supplier, KeyValueBytesStoreSupplier) and supplier.keeps_timestamps:
        return
    match supplier:
        case WindowBytesStoreSupplier() | SessionBytesStoreSupplier():
            why = "its windows expire after its retention: set that, as in Materialized.with_retention(...)"
        case VersionedBytesStoreSupplier():
            why = "its old versions expire after its history retention, and the latest one stays"
        case LruMapBytesStoreSupplier():
            why = "it evicts its least recently used entries: use a key-value store"
        case KeyValueBytesStoreSupplier():
            why = (
                "its entries have no timestamps, from which the time counts: use "
                f"Stores.persistent_timestamped_key_value_store({supplier.name!r}), or the in-memory one, and for a "
                "processor Stores.timestamped_key_value_store_builder(...)"
            )
        case _:
            why = "only key-value stores with timestamps can have one"
    raise TypeError(f"Store {supplier.name!r} cannot have a time to live (with_ttl): {why}.")
