"""Where stores are described (`Stores`) and where their layers are put together (`build_store`, the only place that
names layers)."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.serdes import Serde
from penstock.state.api import BaseView, RecordContext, StoreBuilder
from penstock.state.cache import RecordCache
from penstock.state.caching import CachingKeyValueStore
from penstock.state.layers import MeteredKeyValueStore, MeteredTimestampedKeyValueStore
from penstock.state.uncommitted import InMemoryUncommittedStore, UncommittedStore

KEY_VALUE = "key_value"
TIMESTAMPED_KEY_VALUE = "timestamped_key_value"


@dataclass(frozen=True)
class KeyValueBytesStoreSupplier:
    """Name and base of a key-value store (Kafka class: KeyValueBytesStoreSupplier); in_memory: keep its base in
    memory."""

    name: str
    in_memory: bool


class Stores:
    """Describes state stores for `add_state_store` and `Materialized.as_` (Kafka class: Stores)."""

    @staticmethod
    def in_memory_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return the supplier of a store whose base is in memory; raises TypeError if `name` is no text."""
        return KeyValueBytesStoreSupplier(_checked(name), in_memory=True)

    @staticmethod
    def persistent_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return the supplier of a store whose base is on disk; raises TypeError if `name` is no text."""
        return KeyValueBytesStoreSupplier(_checked(name), in_memory=False)

    @staticmethod
    def persistent_timestamped_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return the supplier of a store whose base is on disk, for values with timestamps; raises TypeError if `name`
        is no text."""
        return KeyValueBytesStoreSupplier(_checked(name), in_memory=False)

    @staticmethod
    def key_value_store_builder(
        supplier: KeyValueBytesStoreSupplier, key_serde: Serde | None, value_serde: Serde | None
    ) -> StoreBuilder:
        """Return the builder of a KeyValueStore; a serde of None is the default of the configuration."""
        return StoreBuilder(supplier.name, KEY_VALUE, key_serde, value_serde, supplier.in_memory)

    @staticmethod
    def timestamped_key_value_store_builder(
        supplier: KeyValueBytesStoreSupplier, key_serde: Serde | None, value_serde: Serde | None
    ) -> StoreBuilder:
        """Return the builder of a store whose values are ValueAndTimestamp; a serde of None is the default of the
        configuration."""
        return StoreBuilder(supplier.name, TIMESTAMPED_KEY_VALUE, key_serde, value_serde, supplier.in_memory)


_STORES = {KEY_VALUE: MeteredKeyValueStore, TIMESTAMPED_KEY_VALUE: MeteredTimestampedKeyValueStore}


def build_store(
    builder: StoreBuilder,
    config: StreamsConfig,
    view: BaseView,
    cache: RecordCache,
    context: Callable[[], RecordContext],
    metadata: MutableMapping[str, int],
) -> MeteredKeyValueStore:
    """Put the layers of one store of a task together: metered, cached, uncommitted writes, base.

    view: the committed entries. cache: the record cache of the task; one of 0 bytes leaves the layer out, as in Kafka.
    context: gives the record that causes a write. metadata: what stores remember besides entries. Raises ConfigError if
    a serde is neither given nor a default, or the
    kind of the store is unknown.
    """
    make = _STORES.get(builder.kind)
    if make is None:
        raise ConfigError(
            f"Store {builder.name!r} is of unknown kind {builder.kind!r}: expected one of {', '.join(_STORES)}."
        )
    in_memory = config["dsl.store.suppliers.class"] == "in_memory" if builder.in_memory is None else builder.in_memory
    buffer = InMemoryUncommittedStore(view) if in_memory else UncommittedStore(view)
    cached = (
        CachingKeyValueStore(builder.name, buffer, cache, context) if builder.caching and cache.max_bytes > 0 else None
    )
    return make(
        builder.name,
        f"{config['application.id'] or ''}-{builder.name}-changelog",
        _serde(builder.key_serde, config, builder.name, "key"),
        _serde(builder.value_serde, config, builder.name, "value"),
        buffer,
        cached,
        persistent=not in_memory,
    )


def _serde(given: Serde | None, config: StreamsConfig, store_name: str, what: str) -> Serde:
    serde = given if given is not None else config[f"default.{what}.serde"]
    if serde is None:
        raise ConfigError(
            f"Store {store_name!r} has no {what} serde: name one where the store is made, such as Serdes.string(), "
            f"or set default.{what}.serde."
        )
    chosen: Serde = serde
    return chosen


def _checked(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"The name of a store must be a str, not {name!r}.")
    return name
