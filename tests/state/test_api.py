"""Descriptions of stores: plain data with layout and settings."""

from __future__ import annotations

import pickle

import pytest

from penstock.serdes import Serdes
from penstock.state import api
from penstock.state.api import StoreBuilder
from penstock.state.custom import CustomStore
from penstock.state.guarded import GuardedReads
from penstock.state.key_value_store import TypedTimestampedKeyValueStore
from penstock.state.lmdb import LmdbBase, LmdbSnapshot
from penstock.state.lmdb.shared import SharedLmdbBase
from penstock.state.memory import MemoryBase
from penstock.state.query.composite import CompositeKeyValueIterator, CompositeReadOnlyKeyValueStore
from penstock.state.read_only import ReadOnlyKeyValueView
from penstock.state.rocksdb import RocksDBBase
from penstock.state.stores import Stores
from penstock.state.time_ordered_buffer import TimeOrderedChangeBuffer
from penstock.state.typed_store import TypedIterator
from tests.support.custom_stores import DictStore, DictStoreSupplier
from tests.support.expiring import session_builder, window_builder
from tests.support.protocols import differences
from tests.support.stores import STRING, text_store


def test_a_builder_is_plain_data() -> None:
    builder = text_store().with_caching_enabled().with_logging_enabled({"retention.ms": "5"})
    assert (builder.caching, builder.logging, builder.changelog_config) == (True, True, {"retention.ms": "5"})
    again = pickle.loads(pickle.dumps(builder)).with_logging_disabled().with_caching_disabled()
    assert (again.caching, again.logging, dict(again.changelog_config)) == (False, False, {})


def test_versions_are_not_cached() -> None:
    supplier = Stores.persistent_versioned_key_value_store("s", 100)
    builder = Stores.versioned_key_value_store_builder(supplier, Serdes.string(), Serdes.string())
    with pytest.raises(RuntimeError, match="Versioned stores do not support caching"):
        builder.with_caching_enabled()


def test_the_layout_of_a_store_says_how_long_its_segments_are() -> None:
    assert window_builder().layout == "window, in segments of 60000 ms"
    assert session_builder(in_memory=True).layout == "session, in memory, in segments of 60000 ms"
    longer = Stores.window_store_builder(Stores.persistent_window_store("w", 200_000, 10, False), STRING, STRING)
    assert longer.layout == "window, in segments of 100000 ms"


class NamelessSupplier(DictStoreSupplier):
    def __init__(self) -> None:
        self.kind_of_store = DictStore


def test_a_supplier_whose_base_was_not_initialised_is_refused_where_it_is_used() -> None:
    with pytest.raises(TypeError, match=r"NamelessSupplier has no name: call super\(\).__init__\(name\)"):
        StoreBuilder(NamelessSupplier())


def test_there_is_no_cache_before_a_store_of_a_users_own() -> None:
    with pytest.raises(RuntimeError, match="Store 's' is of your own kind"):
        StoreBuilder(DictStoreSupplier("s")).with_caching_enabled()


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        (api.KeyValueIterator, TypedIterator),
        (api.KeyValueIterator, CompositeKeyValueIterator),
        (api.ReadOnlyKeyValueStore, CompositeReadOnlyKeyValueStore),
        (api.KeyValueStore, ReadOnlyKeyValueView),
        (api.EngineTimestampedKeyValueStore, TypedTimestampedKeyValueStore),
        (api.EngineStore, CustomStore),
        (api.EngineStore, TimeOrderedChangeBuffer),
        (api.DiskBase, LmdbBase),
        (api.DiskBase, RocksDBBase),
        (api.SnapshotBase, LmdbBase),
        (api.SnapshotBase, SharedLmdbBase),
        (api.BaseSnapshot, LmdbSnapshot),
        (api.Base, MemoryBase),
        (api.BaseView, GuardedReads),
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_class_has_the_methods_of_its_protocol(protocol: type, implementation: type) -> None:
    assert differences(protocol, implementation) == []


def test_the_layout_of_a_table_says_that_its_supplier_keeps_no_timestamps() -> None:
    plain = Stores.persistent_key_value_store("s")
    assert StoreBuilder(plain, timestamped=True).layout == "timestamped_key_value, without timestamps"
    assert StoreBuilder(plain).layout == "key_value"
