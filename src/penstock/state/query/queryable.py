"""Stores by name and type (interactive queries, version 1): parameters, types and value formats.

A type decides which stores it accepts and combines the stores of all partitions into one read-only store. A host's
`StateStoreProvider` provides the stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol

from penstock.config.isolation_level import IsolationLevel
from penstock.errors import InvalidStateStoreError, InvalidStateStorePartitionError, UnknownStateStoreError
from penstock.state.api import ReadOnlyKeyValueStore, StateStore
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.query.composite import (
    CompositeReadOnlyKeyValueStore,
    CompositeReadOnlySessionStore,
    CompositeReadOnlyStore,
    CompositeReadOnlyWindowStore,
    StoresAt,
)
from penstock.state.query.values import ValueOf, as_it_is, plain_of, timestamped_of
from penstock.state.session_store import TypedSessionStore
from penstock.state.table import StoreTable
from penstock.state.typed_store import TypedStore
from penstock.state.window_store import TypedWindowStore
from penstock.state.windowed_api import ReadOnlySessionStore, ReadOnlyWindowStore


class StateStoreProvider(Protocol):
    """Provides the stores of the partitions (Kafka class: StateStoreProvider)."""

    def stores(
        self, store_name: str, store_type: QueryableStoreType, isolation_level: IsolationLevel | None = None
    ) -> Sequence[StateStore]:
        """Return the stores of that name, one per partition, for reads at a level; None for the default level.

        Raises InvalidStateStoreError if they are unreadable or `store_type` does not accept them.
        """
        ...


class QueryableStoreType(Protocol):
    """A queryable type of store; implement it for user-defined stores (Kafka class: QueryableStoreType)."""

    def accepts(self, store: StateStore) -> bool:
        """Return whether `store` is of this type."""
        ...

    def create(self, provider: StateStoreProvider, store_name: str) -> Any:
        """Return a read-only store `store_name` over all partitions of `provider`."""
        ...


class _Values(Enum):
    """The visible part of values."""

    PLAIN = "plain"
    TIMESTAMPED = "timestamped"
    WITH_HEADERS = "with headers"


@dataclass(frozen=True)
class _BuiltInType(ABC):
    """A type of the stores created by `Stores`.

    Args:
        kind: the class of the stores.
        values: the visible part of values, which the store must keep.
    """

    kind: type[TypedStore]
    values: _Values

    def __str__(self) -> str:
        before = "" if self.values is _Values.PLAIN else f"{self.values.value} "
        return f"{before}{self.kind.kind_name} store"

    def accepts(self, store: StateStore) -> bool:
        """Return whether `store` is of this kind and keeps the visible part of values."""
        if not isinstance(store, self.kind):
            return False
        match self.values:
            case _Values.PLAIN:
                return True
            case _Values.TIMESTAMPED:
                return store.timestamped
            case _Values.WITH_HEADERS:
                return store.with_headers

    @abstractmethod
    def create(self, provider: StateStoreProvider, store_name: str) -> Any:
        """Return the store `store_name` over all partitions of `provider`."""
        raise NotImplementedError

    def shown(self, provider: StateStoreProvider, store_name: str) -> StoresAt:
        """Return a function that returns the current stores, each with the function for its values."""
        return lambda level: [(store, self._value_of(store)) for store in provider.stores(store_name, self, level)]

    def _value_of(self, store: Any) -> ValueOf:
        match self.values:
            case _Values.PLAIN:
                return plain_of(store)
            case _Values.TIMESTAMPED:
                return timestamped_of(store)
            case _Values.WITH_HEADERS:
                return as_it_is


class KeyValueStoreType(_BuiltInType):
    """The type of key-value stores."""

    def create(self, provider: StateStoreProvider, store_name: str) -> ReadOnlyKeyValueStore:
        """Return the store `store_name` over all partitions of `provider`."""
        return CompositeReadOnlyKeyValueStore(store_name, self.shown(provider, store_name))


class WindowStoreType(_BuiltInType):
    """The type of window stores."""

    def create(self, provider: StateStoreProvider, store_name: str) -> ReadOnlyWindowStore:
        """Return the store `store_name` over all partitions of `provider`."""
        return CompositeReadOnlyWindowStore(store_name, self.shown(provider, store_name))


class SessionStoreType(_BuiltInType):
    """The type of session stores."""

    def create(self, provider: StateStoreProvider, store_name: str) -> ReadOnlySessionStore:
        """Return the store `store_name` over all partitions of `provider`."""
        return CompositeReadOnlySessionStore(store_name, self.shown(provider, store_name))


class StoreTableType:
    """The type of stores of any kind, read as tables (implements QueryableStoreType)."""

    def __str__(self) -> str:
        return "table"

    def accepts(self, store: StateStore) -> bool:
        """Return whether `store` is a table: key-value, window, session or versioned."""
        return isinstance(store, TypedStore) and isinstance(store, StoreTable)

    def create(self, provider: StateStoreProvider, store_name: str) -> StoreTable:
        """Return the store `store_name` over all partitions of `provider`."""
        return CompositeReadOnlyStore(
            store_name, lambda level: [(store, as_it_is) for store in provider.stores(store_name, self, level)]
        )


class QueryableStoreTypes:
    """The types of the stores created by `Stores` (Kafka class: QueryableStoreTypes)."""

    @staticmethod
    def key_value_store() -> KeyValueStoreType:
        """Return the type of any key-value store, values without timestamps."""
        return KeyValueStoreType(TypedKeyValueStore, _Values.PLAIN)

    @staticmethod
    def timestamped_key_value_store() -> KeyValueStoreType:
        """Return the type of timestamped key-value stores; values are ValueAndTimestamp."""
        return KeyValueStoreType(TypedKeyValueStore, _Values.TIMESTAMPED)

    @staticmethod
    def timestamped_key_value_store_with_headers() -> KeyValueStoreType:
        """Return the type of key-value stores with headers; values are ValueTimestampHeaders."""
        return KeyValueStoreType(TypedKeyValueStore, _Values.WITH_HEADERS)

    @staticmethod
    def window_store() -> WindowStoreType:
        """Return the type of any window store, values without timestamps."""
        return WindowStoreType(TypedWindowStore, _Values.PLAIN)

    @staticmethod
    def timestamped_window_store() -> WindowStoreType:
        """Return the type of timestamped window stores; values are ValueAndTimestamp."""
        return WindowStoreType(TypedWindowStore, _Values.TIMESTAMPED)

    @staticmethod
    def timestamped_window_store_with_headers() -> WindowStoreType:
        """Return the type of window stores with headers; values are ValueTimestampHeaders."""
        return WindowStoreType(TypedWindowStore, _Values.WITH_HEADERS)

    @staticmethod
    def session_store() -> SessionStoreType:
        """Return the type of any session store, aggregates without headers."""
        return SessionStoreType(TypedSessionStore, _Values.PLAIN)

    @staticmethod
    def session_store_with_headers() -> SessionStoreType:
        """Return the type of session stores with headers; values are AggregationWithHeaders."""
        return SessionStoreType(TypedSessionStore, _Values.WITH_HEADERS)


@dataclass(frozen=True)
class StoreQueryParameters:
    """The store of a query (Kafka class: StoreQueryParameters).

    Args:
        store_name: the name of the store.
        queryable_store_type: its type.
        partition: the partition to read; None for all.
        stale_stores: whether to accept copies that lag; all reads are as of a commit, so this has no effect.
    """

    store_name: str
    queryable_store_type: QueryableStoreType
    partition: int | None = None
    stale_stores: bool = False

    def __post_init__(self) -> None:
        if callable(self.queryable_store_type):
            raise TypeError(
                f"Expected a type of stores, got {self.queryable_store_type!r}: call it, such as "
                "QueryableStoreTypes.key_value_store()."
            )

    @staticmethod
    def from_name_and_type(store_name: str, queryable_store_type: QueryableStoreType) -> StoreQueryParameters:
        """Return parameters for all partitions of `store_name`, read as the given type."""
        return StoreQueryParameters(store_name, queryable_store_type)

    def with_partition(self, partition: int | None) -> StoreQueryParameters:
        """Return a copy for one partition; None for all."""
        return replace(self, partition=partition)

    def enable_stale_stores(self) -> StoreQueryParameters:
        """Return a copy that accepts lagging copies of stores."""
        return replace(self, stale_stores=True)

    def stale_stores_enabled(self) -> bool:
        """Return whether lagging copies of stores are accepted."""
        return self.stale_stores


class StoresOfPartitions:
    """Provides the stores for one call of `store` (implements StateStoreProvider).

    Args:
        stores: returns the stores at each read, for an isolation level.
        partition: the requested one; None for all.
        not_there: returns the error for a store without partitions, given its name.
    """

    def __init__(
        self,
        stores: Callable[[IsolationLevel | None], Sequence[StateStore]],
        partition: int | None,
        not_there: Callable[[str], InvalidStateStoreError],
    ) -> None:
        self._stores = stores
        self._partition = partition
        self._not_there = not_there

    def stores(
        self, store_name: str, store_type: QueryableStoreType, isolation_level: IsolationLevel | None = None
    ) -> Sequence[StateStore]:
        """Return the current stores of the requested partitions."""
        stores = self._stores(isolation_level)
        if not stores:
            if self._partition is not None:
                raise InvalidStateStorePartitionError(
                    f"The specified partition {self._partition} for store {store_name} does not exist."
                )
            raise self._not_there(store_name)
        for store in stores:
            if not store_type.accepts(store):
                raise InvalidStateStoreError(
                    f"Cannot get state store {store_name} because the queryable store type [{store_type}] does not "
                    f"accept the actual store type [{type(store).__name__}].{_fitting(store)}"
                )
        return stores


def _fitting(store: StateStore) -> str:
    """Return the built-in type of `store` as the end of an error; empty for a user's own kind of store."""
    for make in (
        QueryableStoreTypes.key_value_store,
        QueryableStoreTypes.window_store,
        QueryableStoreTypes.session_store,
    ):
        if make().accepts(store):
            return f" QueryableStoreTypes.{make.__name__}() does."
    return ""


def check_known(store_name: str, known: Collection[str]) -> None:
    """Raise UnknownStateStoreError unless `store_name` is one of the `known` stores of a topology."""
    if store_name not in known:
        raise UnknownStateStoreError(
            f"Cannot get state store {store_name} because no such store is registered in the topology. It has: "
            f"{', '.join(sorted(known)) or 'none'}."
        )
