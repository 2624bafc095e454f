"""The final content of stores as `stores` of a case shows it (FORMAT.md section 2), read beneath the record cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock import VersionedRecord
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.session_store import TypedSessionStore
from penstock.state.typed_store import TypedStore
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from penstock.state.window_store import TypedWindowStore
from tests.oracle.interpreter.values import to_json


def content(store: Any, case: Mapping[str, Any]) -> dict[str, Any]:
    """Return kind and entries of a store; those that cannot be listed are asked for the keys and times of the case."""
    store = store.beneath_cache() if isinstance(store, TypedStore) else store
    match store:
        case TypedVersionedKeyValueStore():
            return {"kind": "versioned", "entries": _versions(store, case)}
        case TypedKeyValueStore():
            return {"kind": _timestamped("key_value", store), "entries": _rows(store.all())}
        case TypedWindowStore():
            return {"kind": _timestamped("window", store), "entries": _rows(store.all())}
        case TypedSessionStore():
            rows = [row for key in _keys(case) for row in _rows(store.fetch(key))]
            if store.with_headers:
                rows = [[key, value if isinstance(value, list) else [value, []]] for key, value in rows]
            return {"kind": "session", "entries": rows}
        case _:
            return {"kind": "other"}


def _timestamped(kind: str, store: TypedStore) -> str:
    return f"timestamped_{kind}" if store.timestamped and not store.with_headers else kind


def _rows(iterator: Any) -> list[list[Any]]:
    with iterator as entries:
        return [[to_json(key), to_json(value)] for key, value in entries]


def _versions(store: TypedVersionedKeyValueStore, case: Mapping[str, Any]) -> list[list[Any]]:
    times = sorted({step["ts"] for step in case["steps"] if step.get("ts", -1) >= 0})
    rows: list[list[Any]] = []
    for key in _keys(case):
        found: dict[int, VersionedRecord] = {}
        for version in (*(store.get(key, time) for time in times), store.get(key)):
            if version is not None:
                found[version.timestamp] = version
        rows += [[to_json(key), to_json(v.value), v.timestamp, v.valid_to] for _, v in sorted(found.items())]
    return rows


def _keys(case: Mapping[str, Any]) -> Iterable[str]:
    given = [step.get("key") for step in case["steps"]]
    values = [step.get("value") for step in case["steps"]]
    texts = [value for value in values if isinstance(value, str) and value]
    return sorted({*(key for key in given if isinstance(key, str)), *texts, *(value[0] for value in texts)})
