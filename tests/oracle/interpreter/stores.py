"""State stores of a case: their descriptions (FORMAT.md section 6) as store builders, and their content for the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock import Serde, StoreBuilder, Stores, ValueAndTimestamp
from penstock.state.layers import MeteredTimestampedKeyValueStore
from tests.oracle.interpreter.serdes import SERDES
from tests.oracle.interpreter.values import to_json
from tests.oracle.interpreter.vocabulary import PLAIN, Choice, Fields, Reader

KINDS = Choice("store", ("key_value", "timestamped_key_value"))

SERDE_FIELDS: Mapping[str, Reader] = {"key_serde": SERDES, "value_serde": SERDES}
SUPPLIER_FIELDS: Mapping[str, Reader] = {"kind": KINDS, "name": PLAIN, "in_memory": PLAIN}


def _supplier(kind: str, name: str, in_memory: bool = False) -> Any:
    if in_memory:
        return Stores.in_memory_key_value_store(name)
    if kind == "timestamped_key_value":
        return Stores.persistent_timestamped_key_value_store(name)
    return Stores.persistent_key_value_store(name)


def _builder(
    kind: str,
    name: str,
    in_memory: bool = False,
    key_serde: Serde | None = None,
    value_serde: Serde | None = None,
    caching: bool | None = None,
    logging: bool | None = None,
) -> StoreBuilder:
    make: dict[str, Callable[..., StoreBuilder]] = {
        "key_value": Stores.key_value_store_builder,
        "timestamped_key_value": Stores.timestamped_key_value_store_builder,
    }
    result = make[kind](_supplier(kind, name, in_memory), key_serde, value_serde)
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
    return isinstance(store, MeteredTimestampedKeyValueStore)


def plain(value: Any) -> Any:
    """Return the value without a timestamp around it."""
    return value.value if isinstance(value, ValueAndTimestamp) else value


def content(store: Any) -> dict[str, Any]:
    """Return the entries of a key-value store, in its own order, as `stores` of a case shows them.

    It is read after a commit, so the record cache has nothing to add.
    """
    with store.all() as entries:
        rows = [[to_json(key), to_json(value)] for key, value in entries]
    return {"kind": "timestamped_key_value" if is_timestamped(store) else "key_value", "entries": rows}
