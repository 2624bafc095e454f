"""Typed stores whose calls are measured, for a task whose `metrics.recording.level` asks for it (Kafka classes: the
Metered stores, StateStoreMetrics). Any other task has the stores as they are, and pays nothing.

A call that gives an iterator lasts until that is closed, or at its end, as in Kafka. The calls by which processors work
on columns count as one for each key, all of the same length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from penstock.metrics.host_metrics import operation_of
from penstock.metrics.measurements import Recorder
from penstock.record import KeyValue
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.session_store import TypedSessionStore
from penstock.state.typed_store import TypedIterator, TypedStore
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from penstock.state.window_store import TypedWindowStore

P = ParamSpec("P")
M = TypeVar("M", bound=TypedStore)

_CALLS: Final[Mapping[type[TypedStore], Mapping[str, Sequence[str]]]] = {
    TypedStore: {"flush": ["flush"]},
    TypedKeyValueStore: {
        "get": ["get"],
        "put": ["put"],
        "put-if-absent": ["put_if_absent"],
        "put-all": ["put_all"],
        "delete": ["delete"],
        "range": ["range", "reverse_range"],
        "all": ["all", "reverse_all"],
        "prefix-scan": ["prefix_scan"],
    },
    TypedWindowStore: {
        "put": ["put"],
        "fetch": [
            *("fetch", "fetch_range", "fetch_all", "all", "fetch_duplicates"),
            *("backward_fetch", "backward_fetch_range", "backward_fetch_all", "backward_all"),
        ],
    },
    TypedSessionStore: {
        "put": ["put"],
        "remove": ["remove"],
        "fetch": [
            *("fetch", "fetch_range", "fetch_session"),
            *("find_sessions", "find_sessions_range", "find_sessions_by_time"),
            *("backward_fetch", "backward_fetch_range", "backward_find_sessions", "backward_find_sessions_range"),
        ],
    },
    TypedVersionedKeyValueStore: {"get": ["get"], "put": ["put"], "delete": ["delete"]},
}
"""The methods of each kind of store that are measured, by operation."""

_COLUMN_CALLS: Final[Mapping[type[TypedStore], Mapping[str, str]]] = {
    TypedKeyValueStore: {"get": "get_columns", "put": "put_columns"},
    TypedWindowStore: {"fetch": "get_columns", "put": "put_columns"},
    TypedSessionStore: {"put": "put_columns"},
}
"""The methods of each kind that take a column of keys."""


class StoreCalls:
    """Measures the calls of one store."""

    def __init__(self, recorder: Recorder, tag: str, store_name: str) -> None:
        """Make `recorder` take the measurements of the store `store_name`, with the tag of its scope."""
        self.nanoseconds = recorder.nanoseconds
        self._recorder = recorder
        self._tag = tag
        self._store_name = store_name

    def took(self, operation: str, began: int, number: int = 1) -> None:
        """Note that `number` calls took the time since `began` (ns)."""
        self._recorder.took(operation_of(operation, self._tag, self._store_name), began, number)


class MeasuredIterator:
    """An iterator of a store that says when it has come to its end, or is closed (implements KeyValueIterator)."""

    def __init__(self, entries: TypedIterator, ended: Callable[[], None]) -> None:
        """Iterate over `entries`; `ended` is called once."""
        self._entries = entries
        self._ended = ended
        self._is_over = False

    def __iter__(self) -> MeasuredIterator:
        return self

    def __next__(self) -> KeyValue:
        try:
            return next(self._entries)
        except StopIteration:
            self._end()
            raise

    def __enter__(self) -> MeasuredIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek_next_key(self) -> Any:
        """Return the next key without taking it; raises StopIteration at the end."""
        return self._entries.peek_next_key()

    def close(self) -> None:
        """Release the iterator; later calls raise InvalidStateStoreError."""
        self._entries.close()
        self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._ended()


def measured(kind: Callable[P, M], recorder: Recorder, tag: str, store_name: str) -> Callable[P, M]:
    """Return what makes a store as the class `kind` does, of which `recorder` takes what is measured.

    Args:
        kind: a class of typed stores.
        recorder: takes what is measured.
        tag: the tag by which the store is known, which says its scope.
        store_name: the name of the store.
    """
    measured_kind = _measured_kind(kind)
    calls = StoreCalls(recorder, tag, store_name)

    def make(*args: P.args, **kwargs: P.kwargs) -> M:
        return cast(M, measured_kind(calls, *args, **kwargs))

    return make


@cache
def _measured_kind(plain: Callable[..., TypedStore]) -> Callable[..., TypedStore]:
    """Return a class of stores as `plain` is one, by the same name, whose first argument is the StoreCalls."""
    kind = cast("type[TypedStore]", plain)

    def init(store: Any, calls: StoreCalls, *args: Any, **kwargs: Any) -> None:
        store.calls = calls
        kind.__init__(store, *args, **kwargs)

    members: dict[str, Any] = {"__init__": init, "__doc__": kind.__doc__, "__module__": kind.__module__}
    for base, operations in _CALLS.items():
        if issubclass(kind, base):
            for operation, methods in operations.items():
                members.update({method: _one(getattr(kind, method), operation) for method in methods})
    for base, columns in _COLUMN_CALLS.items():
        if issubclass(kind, base):
            members.update({method: _column(getattr(kind, method), operation) for operation, method in columns.items()})
    return type(kind.__name__, (kind,), members)


def _one(method: Callable[..., Any], operation: str) -> Callable[..., Any]:
    """Return `method`, measured as one call."""

    @wraps(method)
    def call(store: Any, *args: Any, **kwargs: Any) -> Any:
        calls: StoreCalls = store.calls
        began = calls.nanoseconds()
        result = method(store, *args, **kwargs)
        if isinstance(result, TypedIterator):
            return MeasuredIterator(result, lambda: calls.took(operation, began))
        calls.took(operation, began)
        return result

    return call


def _column(method: Callable[..., Any], operation: str) -> Callable[..., Any]:
    """Return `method`, measured as one call for each key."""

    @wraps(method)
    def call(store: Any, keys: Sequence[bytes], *args: Any, **kwargs: Any) -> Any:
        calls: StoreCalls = store.calls
        began = calls.nanoseconds()
        result = method(store, keys, *args, **kwargs)
        if keys:
            calls.took(operation, began, len(keys))
        return result

    return call
