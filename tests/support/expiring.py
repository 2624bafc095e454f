"""Window and session stores, and a model of their expiring entries."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.state.api import StoreBuilder
from penstock.state.stores import Stores
from tests.support.stores import STRING

RETENTION, INTERVAL, SIZE = 100_000, 60_000, 10
KEYS = ("a", "a\0", "ab", "b")
TIMES = st.integers(0, 15).map(lambda tick: tick * 20_000) | st.sampled_from([1, 59_999, 100_001])


def window_builder(in_memory: bool = False, duplicates: bool = False) -> StoreBuilder:
    """Return the builder of a window store "w"."""
    make = Stores.in_memory_window_store if in_memory else Stores.persistent_window_store
    return Stores.window_store_builder(make("w", RETENTION, SIZE, duplicates), STRING, STRING)


class Model:
    """The entries of a store without a cache: id -> value; an id is a key, its time and the rest of the window."""

    def __init__(self, in_memory: bool) -> None:
        self.in_memory = in_memory
        self.entries: dict[tuple[str, int, int], str] = {}
        self.clock = -1
        self.dropped = 0

    def put(self, id_: tuple[str, int, int], value: str | None) -> None:
        """Write or delete an entry unless it comes too late."""
        self.clock = max(self.clock, id_[1])
        limit = self.clock - RETENTION
        late = id_[1] <= limit if self.in_memory else id_[1] // INTERVAL < max(limit, 0) // INTERVAL
        if late:
            self.dropped += 1
        elif value is None:
            self.entries.pop(id_, None)
        else:
            self.entries[id_] = value

    def live(self) -> list[tuple[tuple[str, int, int], str]]:
        """Return the entries that have not expired, in the order of the store."""
        found = [(id_, value) for id_, value in self.entries.items() if id_[1] > self.clock - RETENTION]
        if self.in_memory:
            return sorted(found, key=lambda entry: (entry[0][1], entry[0][0], -entry[0][2]))  # the latest start first
        return sorted(found, key=lambda entry: (entry[0][1] // INTERVAL, *_disk_order(entry[0])))


def _disk_order(id_: tuple[str, int, int]) -> tuple[bytes, ...]:
    key, time, other = id_
    return (key.encode() + time.to_bytes(8, "big") + other.to_bytes(8, "big"),)


def session_builder(in_memory: bool = False) -> StoreBuilder:
    """Return the builder of a session store "s"."""
    make = Stores.in_memory_session_store if in_memory else Stores.persistent_session_store
    return Stores.session_store_builder(make("s", RETENTION), STRING, STRING)
