"""The stores of a join of two streams: names, settings, stores of the user."""

from __future__ import annotations

import pytest

from penstock import JoinWindows, Stores, StreamJoined, StreamsBuilder
from penstock.errors import StreamsError
from penstock.state.suppliers import WindowBytesStoreSupplier
from tests.support.joins import pair


def window_store(name: str, retention_ms: int = 25, duplicates: bool = True) -> WindowBytesStoreSupplier:
    return Stores.in_memory_window_store(name, retention_ms, 20, duplicates)


def test_stores_of_the_users_own_must_fit_the_windows() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("a"), builder.stream("b")

    def join(this: WindowBytesStoreSupplier, other: WindowBytesStoreSupplier | None = None) -> None:
        options = StreamJoined.with_(this_store_supplier=this, other_store_supplier=other)
        left.join(right, pair, JoinWindows.of_time_difference_and_grace(10, 5), stream_joined=options)

    with pytest.raises(StreamsError, match="must set retainDuplicates=true"):
        join(window_store("s", duplicates=False))
    with pytest.raises(StreamsError, match="Window settings mismatch"):
        join(window_store("s", retention_ms=26))
    with pytest.raises(StreamsError, match="Both StoreSuppliers have the same name"):
        join(window_store("s"), window_store("s"))
