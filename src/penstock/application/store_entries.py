"""The entries of a store, selected by text, for users of an application without Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError, UnsupportedOperationError
from penstock.record import ValueAndTimestamp
from penstock.serdes.texts import parsed
from penstock.state.api import StoreBuilder
from penstock.state.query.queries import MultiVersionedKeyQuery, Query
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    SessionBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock.state.versioned_api import VersionedRecord
from penstock.task.standby_task import empty_store
from penstock.windows import LONG_MAX, Windowed

Entry = dict[str, Any]
"""The shown fields of an entry: its partition, key, value, and its times (ms), if any."""


_WITH_ONE_VALUE = (KeyValueBytesStoreSupplier, LruMapBytesStoreSupplier)
"""The suppliers of stores with one value per key."""


class Queried(Protocol):
    """An object with interactive queries: a running application, or a reader of its state."""

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return a store for reading."""
        ...

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Return the result of each partition."""
        ...


@dataclass(frozen=True)
class EntrySelection:
    """A selection of entries by key, partition and time.

    Args:
        key: a single key.
        from_key: the first of a range of keys; None for no lower bound.
        to_key: the last of a range of keys; None for no upper bound.
        partition: None for all.
        from_time: the first time of windows and versions (ms).
        to_time: the last time of windows and versions (ms).
    """

    key: str | None = None
    from_key: str | None = None
    to_key: str | None = None
    partition: int | None = None
    from_time: int = 0
    to_time: int = LONG_MAX


class StoreEntries:
    """Reads the entries of stores.

    Args:
        state: the source of the entries.
        stores: the builders of its stores, by name.
        config: of the application.
    """

    def __init__(self, state: Queried, stores: Mapping[str, StoreBuilder], config: StreamsConfig) -> None:
        self._state = state
        self._stores = stores
        self._config = config

    def of(self, name: str, chosen: EntrySelection) -> Generator[Entry]:
        """Yield the selected entries of the store `name`, one partition after the other.

        Close the iterator unless it is read to its end. The partition of an entry is None for a global store, and for a
        key without a value.

        Raises:
            UnknownStateStoreError: the store does not exist.
            SerializationError: a text is not a valid key, or keys of this store have no text form.
            UnsupportedOperationError: this kind of store does not support the selection.
            InvalidStateStoreError: the store is not readable now, or cannot be shown.
        """
        partitions = [chosen.partition] if chosen.partition is not None else self._partitions(name)
        is_found = False
        for partition in partitions:
            for entry in self._of_partition(name, replace(chosen, partition=partition)):
                is_found = True
                yield {"partition": partition, **entry}
        builder = self._stores[name]
        if chosen.key is not None and not is_found and isinstance(builder.supplier, _WITH_ONE_VALUE):
            yield {"partition": None, **_entry(self._key(builder, chosen.key), None)}

    def _partitions(self, name: str) -> list[int | None]:
        """Return the readable partitions of the store: those with a result for any query."""
        request = StateQueryRequest.in_store(name).with_query(Query()).require_active()
        return [*sorted(self._state.query(request).partition_results)] or [None]

    def _of_partition(self, name: str, chosen: EntrySelection) -> Generator[Entry]:
        builder = self._stores.get(name)
        parameters = StoreQueryParameters.from_name_and_type(name, _type_of(builder)).with_partition(chosen.partition)
        store = self._state.store(parameters)
        assert builder is not None  # otherwise `store` has raised
        times = chosen.from_time, chosen.to_time
        key, from_key, to_key = (self._key(builder, text) for text in (chosen.key, chosen.from_key, chosen.to_key))
        match builder.supplier:
            case KeyValueBytesStoreSupplier() | LruMapBytesStoreSupplier() if chosen.key is not None:
                if (value := store.get(key)) is not None:
                    yield _entry(key, value)
            case KeyValueBytesStoreSupplier() | LruMapBytesStoreSupplier():
                yield from _pairs(store.range(from_key, to_key))
            case WindowBytesStoreSupplier() if chosen.key is not None:
                with store.fetch(key, *times) as windows:
                    for start, value in windows:
                        yield {"window_start": start, **_entry(key, value)}
            case WindowBytesStoreSupplier() if from_key is None and to_key is None:
                yield from _pairs(store.fetch_all(*times))
            case WindowBytesStoreSupplier():
                yield from _pairs(store.fetch_range(from_key, to_key, *times))
            case SessionBytesStoreSupplier():
                found = store.fetch_range(from_key, to_key) if chosen.key is None else store.fetch(key)
                yield from _pairs(found)
            case VersionedBytesStoreSupplier():
                if chosen.key is None:
                    raise UnsupportedOperationError(f"Store {name} keeps versions: name a key to see its versions.")
                yield from self._versions(name, key, chosen)
            case _:
                raise InvalidStateStoreError(f"Store {name} is a {builder.kind} store, which cannot be shown here.")

    def _key(self, builder: StoreBuilder, text: str | None) -> Any:
        """Return the key parsed from `text`, None for None."""
        if text is None:
            return None
        store: Any = empty_store(builder, self._config)
        return parsed(store.key_serde, f"store {builder.name}", text)

    def _versions(self, name: str, key: Any, chosen: EntrySelection) -> Iterator[Entry]:
        versions = MultiVersionedKeyQuery.with_key(key).from_time(chosen.from_time).to_time(chosen.to_time)
        request = StateQueryRequest.in_store(name).with_query(versions)
        if chosen.partition is not None:
            request = request.with_partitions([chosen.partition])
        for result in self._state.query(request).partition_results.values():
            for version in result.result:
                yield _entry(key, version)


def plain(value: Any) -> Any:
    """Return a JSON-compatible form of a value that JSON does not support."""
    if isinstance(value, bytes):
        return value.hex()
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else repr(value)


def _pairs(entries: AbstractContextManager[Iterator[tuple[Any, Any]]]) -> Iterator[Entry]:
    with entries as pairs:
        for key, value in pairs:
            yield _entry(key, value)


def _entry(key: Any, value: Any) -> Entry:
    windows = {}
    if isinstance(key, Windowed):
        windows = {"window_start": key.window.start, "window_end": key.window.end}
        key = key.key
    match value:
        case VersionedRecord():
            ended = {} if value.valid_to is None else {"valid_to": value.valid_to}
            return {"key": key, "value": value.value, "timestamp": value.timestamp, **ended}
        case ValueAndTimestamp():
            return {**windows, "key": key, "value": value.value, "timestamp": value.timestamp}
        case _:
            return {**windows, "key": key, "value": value}


def _type_of(builder: StoreBuilder | None) -> Any:
    """Return the queryable type of a store; irrelevant for a missing store."""
    timestamped = builder is not None and builder.timestamped
    match None if builder is None else builder.supplier:
        case WindowBytesStoreSupplier():
            return QueryableStoreTypes.timestamped_window_store() if timestamped else QueryableStoreTypes.window_store()
        case SessionBytesStoreSupplier():
            return QueryableStoreTypes.session_store()
        case _ if timestamped:
            return QueryableStoreTypes.timestamped_key_value_store()
        case _:
            return QueryableStoreTypes.key_value_store()
