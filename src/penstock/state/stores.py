"""The users' descriptions of stores: `Stores`, with Kafka's argument checks. Times are ms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    SessionBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock_broker.common.durations import Duration, milliseconds


class Stores:
    """Describes state stores for `add_state_store` and `Materialized.as_` (Kafka class: Stores).

    Every method raises TypeError for a None name or supplier, ValueError for a time or number out of range. A serde of
    None means the configured default.
    """

    # ---------- key-value stores

    @staticmethod
    def in_memory_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return the supplier of a store with its base in memory."""
        return KeyValueBytesStoreSupplier(_checked(name), in_memory=True)

    @staticmethod
    def persistent_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return the supplier of a store with its base on disk.

        A table loses its timestamps in it.
        """
        return KeyValueBytesStoreSupplier(_checked(name), in_memory=False, keeps_timestamps=False)

    @staticmethod
    def persistent_timestamped_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return the supplier of a store on disk, for values with timestamps."""
        return KeyValueBytesStoreSupplier(_checked(name), in_memory=False)

    @staticmethod
    def persistent_timestamped_key_value_store_with_headers(name: str) -> KeyValueBytesStoreSupplier:
        """Return the supplier of a store on disk, for values with timestamps and headers."""
        return KeyValueBytesStoreSupplier(_checked(name), in_memory=False, keeps_headers=True)

    @staticmethod
    def lru_map(name: str, max_cache_size: int) -> LruMapBytesStoreSupplier:
        """Return the supplier of an in-memory store of the `max_cache_size` most recently used keys."""
        _checked(name)
        if max_cache_size < 0:
            raise ValueError("maxCacheSize cannot be negative")
        return LruMapBytesStoreSupplier(name, max_cache_size)

    @staticmethod
    def persistent_versioned_key_value_store(
        name: str, history_retention_ms: Duration, segment_interval_ms: Duration | None = None
    ) -> VersionedBytesStoreSupplier:
        """Return the supplier of a store that keeps a value's versions for `history_retention_ms`.

        segment_interval_ms: time span (ms) of old versions that are dropped together; None for a fraction of the
        retention.
        """
        _checked(name)
        retention = milliseconds(history_retention_ms, "history retention")
        if retention < 0:
            raise ValueError("historyRetention cannot be negative")
        interval = (
            default_segment_interval_ms(retention)
            if segment_interval_ms is None
            else milliseconds(segment_interval_ms, "segment interval")
        )
        if interval < 1:
            raise ValueError("segmentInterval cannot be zero or negative")
        return VersionedBytesStoreSupplier(name, retention, interval)

    @staticmethod
    def key_value_store_builder(
        supplier: KeyValueBytesStoreSupplier | LruMapBytesStoreSupplier,
        key_serde: Serde | None,
        value_serde: Serde | None,
    ) -> StoreBuilder:
        """Return the builder of a KeyValueStore; a serde of None means the configured default."""
        return _builder(supplier, key_serde, value_serde, timestamped=False)

    @staticmethod
    def timestamped_key_value_store_builder(
        supplier: KeyValueBytesStoreSupplier | LruMapBytesStoreSupplier,
        key_serde: Serde | None,
        value_serde: Serde | None,
    ) -> StoreBuilder:
        """Return the builder of a store of ValueAndTimestamp.

        A serde of None means the configured default.
        """
        return _builder(supplier, key_serde, value_serde, timestamped=True)

    @staticmethod
    def timestamped_key_value_store_with_headers_builder(
        supplier: KeyValueBytesStoreSupplier | LruMapBytesStoreSupplier,
        key_serde: Serde | None,
        value_serde: Serde | None,
    ) -> StoreBuilder:
        """Return the builder of a store of ValueTimestampHeaders.

        A serde of None means the configured default.
        """
        return replace(_builder(supplier, key_serde, value_serde, timestamped=True), with_headers=True)

    @staticmethod
    def versioned_key_value_store_builder(
        supplier: VersionedBytesStoreSupplier, key_serde: Serde | None, value_serde: Serde | None
    ) -> StoreBuilder:
        """Return the builder of a VersionedKeyValueStore; a serde of None means the configured default."""
        return _builder(supplier, key_serde, value_serde, timestamped=False)

    # ---------- window stores

    @staticmethod
    def in_memory_window_store(
        name: str, retention_period_ms: Duration, window_size_ms: Duration, retain_duplicates: bool
    ) -> WindowBytesStoreSupplier:
        """Return the supplier of a window store with its base in memory.

        Args:
            name: the name of the store.
            retention_period_ms: lifetime of a window, from its start.
            window_size_ms: size of a window.
            retain_duplicates: whether to keep every value that is put for a window.
        """
        return _window_supplier(name, retention_period_ms, window_size_ms, retain_duplicates, in_memory=True)

    @staticmethod
    def persistent_window_store(
        name: str, retention_period_ms: Duration, window_size_ms: Duration, retain_duplicates: bool
    ) -> WindowBytesStoreSupplier:
        """Like `in_memory_window_store`, with the base on disk."""
        return _window_supplier(name, retention_period_ms, window_size_ms, retain_duplicates, in_memory=False)

    @staticmethod
    def persistent_timestamped_window_store(
        name: str, retention_period_ms: Duration, window_size_ms: Duration, retain_duplicates: bool
    ) -> WindowBytesStoreSupplier:
        """Like `persistent_window_store`, for values with timestamps."""
        return _window_supplier(name, retention_period_ms, window_size_ms, retain_duplicates, in_memory=False)

    @staticmethod
    def persistent_timestamped_window_store_with_headers(
        name: str, retention_period_ms: Duration, window_size_ms: Duration, retain_duplicates: bool
    ) -> WindowBytesStoreSupplier:
        """Like `persistent_window_store`, for values with timestamps and headers."""
        plain = _window_supplier(name, retention_period_ms, window_size_ms, retain_duplicates, in_memory=False)
        return replace(plain, keeps_headers=True)

    @staticmethod
    def window_store_builder(
        supplier: WindowBytesStoreSupplier, key_serde: Serde | None, value_serde: Serde | None
    ) -> StoreBuilder:
        """Return the builder of a WindowStore; a serde of None means the configured default."""
        return _builder(supplier, key_serde, value_serde, timestamped=False)

    @staticmethod
    def timestamped_window_store_builder(
        supplier: WindowBytesStoreSupplier, key_serde: Serde | None, value_serde: Serde | None
    ) -> StoreBuilder:
        """Return the builder of a window store of ValueAndTimestamp.

        A serde of None means the configured default.
        """
        return _builder(supplier, key_serde, value_serde, timestamped=True)

    @staticmethod
    def timestamped_window_store_with_headers_builder(
        supplier: WindowBytesStoreSupplier, key_serde: Serde | None, value_serde: Serde | None
    ) -> StoreBuilder:
        """Return the builder of a window store of ValueTimestampHeaders.

        A serde of None means the configured default.
        """
        return replace(_builder(supplier, key_serde, value_serde, timestamped=True), with_headers=True)

    # ---------- session stores

    @staticmethod
    def in_memory_session_store(name: str, retention_period_ms: Duration) -> SessionBytesStoreSupplier:
        """Return the supplier of a session store with its base in memory.

        retention_period_ms: lifetime of a session, from its end.
        """
        return _session_supplier(name, retention_period_ms, in_memory=True)

    @staticmethod
    def persistent_session_store(name: str, retention_period_ms: Duration) -> SessionBytesStoreSupplier:
        """Like `in_memory_session_store`, with the base on disk."""
        return _session_supplier(name, retention_period_ms, in_memory=False)

    @staticmethod
    def persistent_session_store_with_headers(name: str, retention_period_ms: Duration) -> SessionBytesStoreSupplier:
        """Like `persistent_session_store`, for aggregates with headers."""
        return replace(_session_supplier(name, retention_period_ms, in_memory=False), keeps_headers=True)

    @staticmethod
    def session_store_with_headers_builder(
        supplier: SessionBytesStoreSupplier, key_serde: Serde | None, value_serde: Serde | None
    ) -> StoreBuilder:
        """Return the builder of a session store of AggregationWithHeaders.

        A serde of None means the configured default.
        """
        return replace(_builder(supplier, key_serde, value_serde, timestamped=False), with_headers=True)

    @staticmethod
    def session_store_builder(
        supplier: SessionBytesStoreSupplier, key_serde: Serde | None, value_serde: Serde | None
    ) -> StoreBuilder:
        """Return the builder of a SessionStore; a serde of None means the configured default."""
        return _builder(supplier, key_serde, value_serde, timestamped=False)


def default_segment_interval_ms(history_retention_ms: int) -> int:
    """Return the default time span (ms) of old versions that are dropped together.

    Kafka class: RocksDbVersionedKeyValueBytesStoreSupplier.
    """
    for up_to_ms, parts, at_least_ms in ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000)):
        if history_retention_ms <= up_to_ms:
            return max(history_retention_ms // parts, at_least_ms)
    return max(history_retention_ms // 24, 300_000)


def _window_supplier(
    name: str, retention: Duration, size: Duration, retain_duplicates: bool, in_memory: bool
) -> WindowBytesStoreSupplier:
    _checked(name)
    retention_ms, size_ms = milliseconds(retention, "retention period"), milliseconds(size, "window size")
    if retention_ms < 0:
        raise ValueError("retentionPeriod cannot be negative")
    if size_ms < 0:
        raise ValueError("windowSize cannot be negative")
    if size_ms > retention_ms:
        raise ValueError(
            f"The retention period of the window store {name} must be no smaller than its window size. "
            f"Got size=[{size_ms}], retention=[{retention_ms}]"
        )
    return WindowBytesStoreSupplier(name, retention_ms, size_ms, retain_duplicates, in_memory)


def _session_supplier(name: str, retention: Duration, in_memory: bool) -> SessionBytesStoreSupplier:
    _checked(name)
    retention_ms = milliseconds(retention, "retention period")
    if retention_ms < 0:
        raise ValueError("retentionPeriod cannot be negative")
    return SessionBytesStoreSupplier(name, retention_ms, in_memory)


def _builder(supplier: Any, key_serde: Serde | None, value_serde: Serde | None, timestamped: bool) -> StoreBuilder:
    if supplier is None:
        raise TypeError("supplier cannot be null")
    if isinstance(supplier, str):
        raise TypeError(
            f"Expected the supplier of a store, got {supplier!r}: write "
            f"Stores.persistent_key_value_store({supplier!r}), or another method of Stores."
        )
    for what, serde in (("key", key_serde), ("value", value_serde)):
        if serde is not None and not isinstance(serde, Serde):
            raise TypeError(f"Expected a Serde of {what}s for store {supplier.name!r}, got {serde!r}.")
    builder = StoreBuilder(supplier, key_serde, value_serde, timestamped)
    if isinstance(supplier, WindowBytesStoreSupplier) and supplier.retain_duplicates:
        # duplicates are not versions of one value, so there is nothing to compact
        return builder.with_logging_enabled({"cleanup.policy": "delete"})
    return builder


def _checked(name: Any) -> str:
    if name is None:
        raise TypeError("name cannot be null")
    if not isinstance(name, str):
        raise TypeError(f"The name of a store must be a str, not {name!r}.")
    return name
