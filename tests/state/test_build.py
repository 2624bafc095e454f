"""Stores are built from descriptions, and restored from changelog records."""

from __future__ import annotations

import gc
import sys
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.record import Change
from penstock.serdes import Serdes
from penstock.state.api import StoreBuilder
from penstock.state.build import build_store, restore_store
from penstock.state.changelog_format import ChangelogRecord
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.stores import Stores
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    SessionBytesStoreSupplier,
    TimeOrderedBufferBytesStoreSupplier,
)
from tests.support.stores import (
    CONFIG,
    CONTEXT,
    STRING,
    build,
    changelog_batch,
    entries_as_records,
    logged,
    restored,
    taken,
    text_store,
)


def test_serdes_of_none_are_the_defaults_or_an_error() -> None:
    builder = StoreBuilder(KeyValueBytesStoreSupplier("s", True))
    with pytest.raises(ConfigError, match=r"Store 's' has no key serde.*default.key.serde"):
        build(builder)
    config = StreamsConfig({"default.key.serde": Serdes.string(), "default.value.serde": Serdes.long()}, environment={})
    store = build_store(builder, config, MemoryBase().view("s"), RecordCache(0), lambda: CONTEXT, {})
    store.put("a", 5)
    assert store.changes() == {b"a": (5).to_bytes(8, "big")}


@pytest.mark.parametrize(
    "builder",
    [
        Stores.timestamped_key_value_store_builder(Stores.persistent_timestamped_key_value_store("s"), STRING, STRING),
        Stores.timestamped_window_store_builder(
            Stores.persistent_timestamped_window_store("s", 5_000, 1_000, False), STRING, STRING
        ),
        Stores.window_store_builder(Stores.persistent_window_store("s", 5_000, 1_000, True), STRING, STRING),
        Stores.session_store_builder(Stores.persistent_session_store("s", 5_000), STRING, STRING),
    ],
    ids=["key value", "window", "duplicates", "session"],
)
def test_a_store_that_is_let_go_leaves_its_base_at_once(builder: StoreBuilder) -> None:
    view = MemoryBase().view("s")
    held = sys.getrefcount(view)
    gc.collect()
    gc.disable()
    try:
        built = build_store(builder, CONFIG, view, RecordCache(0), lambda: CONTEXT, {})
        assert sys.getrefcount(view) > held
        del built
        assert sys.getrefcount(view) == held
    finally:
        gc.enable()


def test_an_unknown_kind_is_refused() -> None:
    class Lists(NamedTuple):
        name: str
        kind: str
        in_memory: bool

    with pytest.raises(ConfigError, match=r"unknown kind 'lists'.*a supplier of `Stores`"):
        build(StoreBuilder(Lists("s", "lists", True), Serdes.string(), Serdes.string()))


def test_without_cache_bytes_a_store_is_not_cached() -> None:
    assert build(text_store(caching=True)).cached
    assert not build(text_store(caching=True), cache=RecordCache(0)).cached


@pytest.mark.parametrize(
    ("supplier", "headers"),
    [
        (Stores.persistent_session_store_with_headers("s", 100), True),
        (Stores.persistent_session_store("s", 100), False),
        (SessionBytesStoreSupplier("s", 100, True, keeps_headers=None), False),
        (SessionBytesStoreSupplier("s", 100, False, keeps_headers=None), True),
    ],
)
def test_the_supplier_of_an_operator_says_whether_headers_are_kept(
    supplier: SessionBytesStoreSupplier, headers: bool
) -> None:
    builder = StoreBuilder(supplier, STRING, STRING, with_headers=None)
    assert build(builder, **{"dsl.store.format": "headers"}).with_headers is headers


PUTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.text(max_size=3), st.integers(0, 200)), min_size=1, max_size=20
)


@given(PUTS)
def test_versions_come_back_from_the_changelog(puts: list[tuple[str, str | None, int]]) -> None:
    supplier = Stores.persistent_versioned_key_value_store("s", 100)
    builder = Stores.versioned_key_value_store_builder(supplier, STRING, STRING)
    store, log = logged(builder, {})
    for key, value, timestamp in puts:
        store.put(key, value, timestamp)
    written = taken(log)
    for records in (written, entries_as_records(builder, CONFIG, written)):
        again = restored(builder, CONFIG, records)
        for key in "abc":
            assert again.get(key) == store.get(key)
            for time in range(0, 201, 10):
                assert again.get(key, time) == store.get(key, time)


@given(PUTS)
def test_duplicates_come_back_from_their_entries_and_count_on(puts: list[tuple[str, str | None, int]]) -> None:
    builder = Stores.window_store_builder(Stores.persistent_window_store("s", 600_000, 10, True), STRING, STRING)
    store, log = logged(builder, {})
    for key, value, start in puts:
        store.put(key, value, start)
    metadata: dict[str, int] = {}
    view = MemoryBase().view("s")
    restored = MemoryBase()
    written = entries_as_records(builder, CONFIG, taken(log))
    restored.apply({"s": restore_store(builder, CONFIG, view, metadata, changelog_batch(written))}, b"")
    again = build_store(builder, CONFIG, restored.view("s"), RecordCache(0), lambda: CONTEXT, metadata)
    again.put("a", "next", 5)  # type: ignore[attr-defined]  # a window store
    store.put("a", "next", 5)
    assert list(again.all()) == list(store.all())  # type: ignore[attr-defined]  # a window store


def test_an_update_that_left_a_buffer_leaves_the_restored_one() -> None:
    builder = StoreBuilder(TimeOrderedBufferBytesStoreSupplier("s"), STRING, STRING)
    store, log = logged(builder, {})
    for key, time in (("a", 3), ("b", 1), ("c", 2)):
        store.put(time, key, Change(key * 2, None), CONTEXT)
    store.changes()
    written = taken(log)
    assert [record.key for record in written] == [b"a", b"b", b"c"]
    store.evict_while(lambda: store.min_timestamp < 2, lambda eviction: None)
    assert taken(log) == [ChangelogRecord(b"b", None, None)]
    again = restored(builder, CONFIG, [*written, ChangelogRecord(b"b", None, None)])
    assert (again.num_records, again.buffer_size) == (store.num_records, store.buffer_size)
    evicted: list[Any] = []
    again.evict_while(lambda: True, evicted.append)
    assert [(eviction.key, eviction.change) for eviction in evicted] == [
        ("c", Change("cc", None)),
        ("a", Change("aa", None)),
    ]


def test_expired_entries_leave_no_delete_in_the_changelog() -> None:
    store, log = logged(
        Stores.window_store_builder(Stores.persistent_window_store("s", 600_000, 10, False), STRING, STRING), {}
    )
    store.put("a", "old", 0)
    store.put("a", "new", 10_000_000)
    taken(log)
    store.flush()
    assert any(value is None for value in store.changes().values())
    assert taken(log) == []
