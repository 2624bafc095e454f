"""Descriptions of stores: plain data with layout and settings."""

from __future__ import annotations

import pickle

import pytest

from penstock.serdes import Serdes
from penstock.state.api import StoreBuilder
from penstock.state.stores import Stores
from tests.support.custom_stores import DictStore, DictStoreSupplier
from tests.support.expiring import session_builder, window_builder
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
