"""The stores of a join of two streams: names, settings, stores of the user."""

from __future__ import annotations

import pytest

from penstock import JoinWindows, Stores, StreamJoined, StreamsBuilder
from penstock.dsl.join_stores import StreamJoinStores
from penstock.errors import StreamsError
from penstock.processor.joiner import JoinType
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


WINDOWS = JoinWindows(before_ms=10, after_ms=4, grace_period_ms=5)


def test_a_store_keeps_records_as_long_as_others_may_meet_them() -> None:
    store = StreamJoinStores(StreamJoined(), WINDOWS).this("KSTREAM-JOINTHIS-0000000004", "-this-join")
    supplier = store.supplier
    assert isinstance(supplier, WindowBytesStoreSupplier)
    assert (supplier.retention_ms, supplier.window_size_ms, supplier.retain_duplicates) == (19, 14, True)
    assert store.name == "KSTREAM-JOINTHIS-0000000004-store"


@pytest.mark.parametrize(
    ("type", "options", "name"),
    [
        (JoinType.LEFT, StreamJoined(), "KSTREAM-OUTERSHARED-0000000004-store"),
        (JoinType.OUTER, StreamJoined(), "KSTREAM-OUTERSHARED-0000000004-store"),
        (JoinType.LEFT, StreamJoined.as_("kept"), "kept-left-shared-join-store"),
        (JoinType.OUTER, StreamJoined.as_("kept"), "kept-outer-shared-join-store"),
        (JoinType.OUTER, StreamJoined(this_store_supplier=window_store("own")), "own-outer-shared-join-store"),
    ],
)
def test_the_store_of_waiting_records_is_named_after_the_join(type: JoinType, options: StreamJoined, name: str) -> None:
    prefix = "KSTREAM-OUTERTHIS" if type is JoinType.OUTER else "KSTREAM-JOINTHIS"
    store = StreamJoinStores(options, WINDOWS).outer(type, f"{prefix}-0000000004")
    assert store is not None
    assert store.name == name
    assert store.supplier.in_memory == (True if options.this_store_supplier else None)


def test_an_inner_join_has_no_store_of_waiting_records() -> None:
    assert StreamJoinStores(StreamJoined(), WINDOWS).outer(JoinType.INNER, "KSTREAM-JOINTHIS-0000000004") is None


@pytest.mark.parametrize(("type", "in_memory"), [("in_memory", True), ("rocksdb", False), (None, None)])
def test_all_stores_follow_the_options(type: str | None, in_memory: bool | None) -> None:
    options = StreamJoined(store_type=type, logging=False)
    stores = StreamJoinStores(options, WINDOWS)
    outer = stores.outer(JoinType.OUTER, "KSTREAM-OUTERTHIS-0000000004")
    assert outer is not None
    for store in (stores.this("T", "-this-join"), stores.other("O", "-other-join"), outer):
        assert (store.supplier.in_memory, store.logging, store.changelog_config) == (in_memory, False, {})
