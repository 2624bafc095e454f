"""Stores of each kind and format of values, for queries."""

from __future__ import annotations

from typing import Any

from penstock.record import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders
from penstock.state.api import StoreBuilder
from penstock.state.stores import Stores
from penstock.state.suppliers import WindowBytesStoreSupplier
from penstock.windows import SessionWindow, Windowed
from tests.support.stores import STRING, build

HEADERS = (("h", b"1"),)
SESSION = Windowed("a", SessionWindow(1, 2))


def key_values(*keys: str) -> Any:
    """Return a store "s" with keys of their upper case, without timestamps."""
    store = build(Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), STRING, STRING))
    for key in keys:
        store.put(key, key.upper())
    return store


def timestamped(*keys: str) -> Any:
    """Return a store "s" like `key_values`, with timestamps of 5."""
    supplier = Stores.persistent_timestamped_key_value_store("s")
    store = build(Stores.timestamped_key_value_store_builder(supplier, STRING, STRING))
    for key in keys:
        store.put(key, ValueAndTimestamp(key.upper(), 5))
    return store


def with_headers(*keys: str) -> Any:
    """Return a store "s" like `timestamped`, with headers."""
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
    store = build(Stores.timestamped_key_value_store_with_headers_builder(supplier, STRING, STRING))
    for key in keys:
        store.put(key, ValueTimestampHeaders(key.upper(), 5, HEADERS))
    return store


def windows(*keys: str) -> Any:
    """Return a timestamped store "s" with a window of each key at 0."""
    supplier = Stores.persistent_timestamped_window_store("s", 100, 10, False)
    store = build(Stores.timestamped_window_store_builder(supplier, STRING, STRING))
    for key in keys:
        store.put(key, ValueAndTimestamp(key.upper(), 5), 0)
    return store


def windows_with_headers(*keys: str) -> Any:
    """Return a store "s" like `windows`, with headers."""
    supplier = Stores.persistent_timestamped_window_store_with_headers("s", 100, 10, False)
    store = build(Stores.timestamped_window_store_with_headers_builder(supplier, STRING, STRING))
    for key in keys:
        store.put(key, ValueTimestampHeaders(key.upper(), 5, HEADERS), 0)
    return store


def join_windows(*keys: str) -> Any:
    """Return a store "s" of a join of streams that keeps headers, with a window of each key at 0."""
    supplier = WindowBytesStoreSupplier("s", 100, 10, retain_duplicates=True, in_memory=True)
    store = build(StoreBuilder(supplier, STRING, STRING, logs_headers=True))
    for key in keys:
        store.put(key, key.upper(), 0)
    return store


def sessions(*keys: str) -> Any:
    """Return a store "s" with headers that has a session of each key from 1 to 2."""
    supplier = Stores.persistent_session_store_with_headers("s", 100)
    store = build(Stores.session_store_with_headers_builder(supplier, STRING, STRING))
    for key in keys:
        store.put(Windowed(key, SESSION.window), AggregationWithHeaders(key.upper(), HEADERS))
    return store


def versions(*keys: str) -> Any:
    """Return a versioned store "s" with versions of each key from 5 to 7 and from 7 on."""
    supplier = Stores.persistent_versioned_key_value_store("s", 100)
    store = build(Stores.versioned_key_value_store_builder(supplier, STRING, STRING))
    for key in keys:
        store.put(key, "old", 5)
        store.put(key, key.upper(), 7)
    return store
