"""State stores of a case: their descriptions (FORMAT.md section 6) as suppliers and store builders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock import Serde, StoreBuilder, Stores, ValueAndTimestamp
from tests.oracle.interpreter.serdes import SERDES
from tests.oracle.interpreter.vocabulary import PLAIN, Choice, Fields, Reader


def _window(name: str, in_memory: bool, retention: int, window_size: int, retain_duplicates: bool = False) -> Any:
    make = Stores.in_memory_window_store if in_memory else Stores.persistent_window_store
    return make(name, retention, window_size, retain_duplicates)


def _session(name: str, in_memory: bool, retention: int) -> Any:
    return (Stores.in_memory_session_store if in_memory else Stores.persistent_session_store)(name, retention)


def _key_value(name: str, in_memory: bool) -> Any:
    return (Stores.in_memory_key_value_store if in_memory else Stores.persistent_key_value_store)(name)


def _timestamped_key_value(name: str, in_memory: bool) -> Any:
    return (Stores.in_memory_key_value_store if in_memory else Stores.persistent_timestamped_key_value_store)(name)


def _versioned(name: str, in_memory: bool, history: int, segment_interval: int | None = None) -> Any:
    return Stores.persistent_versioned_key_value_store(name, history, segment_interval)


_SUPPLIERS: Mapping[str, Callable[..., Any]] = {
    "key_value": _key_value,
    "timestamped_key_value": _timestamped_key_value,
    "lru": lambda name, in_memory, max_entries: Stores.lru_map(name, max_entries),
    "versioned": _versioned,
    "window": _window,
    "timestamped_window": _window,
    "session": _session,
}
_BUILDERS: Mapping[str, Callable[..., StoreBuilder]] = {
    "key_value": Stores.key_value_store_builder,
    "timestamped_key_value": Stores.timestamped_key_value_store_builder,
    "lru": Stores.key_value_store_builder,
    "versioned": Stores.versioned_key_value_store_builder,
    "window": Stores.window_store_builder,
    "timestamped_window": Stores.timestamped_window_store_builder,
    "session": Stores.session_store_builder,
}
KINDS = Choice("store", tuple(_SUPPLIERS))

SERDE_FIELDS: Mapping[str, Reader] = {"key_serde": SERDES, "value_serde": SERDES}
SUPPLIER_FIELDS: Mapping[str, Reader] = {
    "kind": KINDS,
    **dict.fromkeys(
        (
            "name",
            "in_memory",
            "max_entries",
            "history",
            "segment_interval",
            "retention",
            "window_size",
            "retain_duplicates",
        ),
        PLAIN,
    ),
}


def _supplier(kind: str, name: str, in_memory: bool = False, **numbers: Any) -> Any:
    return _SUPPLIERS[kind](name, in_memory, **numbers)


def _builder(
    kind: str,
    key_serde: Serde | None = None,
    value_serde: Serde | None = None,
    caching: bool | None = None,
    logging: bool | None = None,
    **supplier: Any,
) -> StoreBuilder:
    result = _BUILDERS[kind](_supplier(kind, **supplier), key_serde, value_serde)
    if caching is not None:
        result = result.with_caching_enabled() if caching else result.with_caching_disabled()
    if logging is not None:
        result = result.with_logging_enabled({}) if logging else result.with_logging_disabled()
    return result


STORE_SUPPLIER = Fields("store", SUPPLIER_FIELDS, _supplier, decisive="kind")
STORE_BUILDER = Fields(
    "store", {**SUPPLIER_FIELDS, **SERDE_FIELDS, "caching": PLAIN, "logging": PLAIN}, _builder, decisive="kind"
)


def is_timestamped(store: Any) -> bool:
    """Return whether the values of a store are ValueAndTimestamp."""
    timestamped: bool = store.timestamped
    return timestamped


def plain(value: Any) -> Any:
    """Return the value without a timestamp around it."""
    return value.value if isinstance(value, ValueAndTimestamp) else value
