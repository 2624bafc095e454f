"""Asking for a store by name and type (interactive queries, version 1): parameters, types, and how a type shows values.

A type says which stores it accepts and makes one store to be read of the stores of all partitions. Where those come
from is the business of a `StateStoreProvider`, which a host has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol

from penstock.errors import InvalidStateStoreError, InvalidStateStorePartitionError, UnknownStateStoreError
from penstock.state.api import ReadOnlyKeyValueStore, StateStore
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.query.composite import (
    CompositeReadOnlyKeyValueStore,
    CompositeReadOnlySessionStore,
    CompositeReadOnlyStore,
    CompositeReadOnlyWindowStore,
    Shown,
)
from penstock.state.query.values import ValueOf, as_it_is, plain_of, timestamped_of
from penstock.state.session_store import TypedSessionStore
from penstock.state.table import StoreTable
from penstock.state.typed_store import TypedStore
from penstock.state.window_store import TypedWindowStore
from penstock.state.windowed_api import ReadOnlySessionStore, ReadOnlyWindowStore


class StateStoreProvider(Protocol):
    """Has the stores of the partitions (Kafka class: StateStoreProvider)."""

    def stores(self, store_name: str, store_type: QueryableStoreType) -> Sequence[StateStore]:
        """Return the stores of that name, one a partition, all as of one commit; raises InvalidStateStoreError if
        they cannot be read or `store_type` does not accept them."""
        ...


class QueryableStoreType(Protocol):
    """A type of store that can be asked for; write one for a kind of store of your own (Kafka class:
    QueryableStoreType)."""

    def accepts(self, store: StateStore) -> bool:
        """Return whether `store` is of this type."""
        ...

    def create(self, provider: StateStoreProvider, store_name: str) -> Any:
        """Return what reads the store `store_name` over all partitions that `provider` has."""
        ...


class _Values(Enum):
    """What of a value is shown."""

    PLAIN = "plain"
    TIMESTAMPED = "timestamped"
    WITH_HEADERS = "with headers"


@dataclass(frozen=True)
class _BuiltInType(ABC):
    """A type of the stores that `Stores` makes; values says what of them is shown, and so what a store must keep."""

    kind: type[TypedStore]
    values: _Values

    def __str__(self) -> str:
        before = "" if self.values is _Values.PLAIN else f"{self.values.value} "
        return f"{before}{self.kind.kind_name} store"

    def accepts(self, store: StateStore) -> bool:
        """Return whether `store` is of this kind and keeps what is to be shown."""
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
        """Return the store `store_name` over all partitions that `provider` has."""
        raise NotImplementedError

    def shown(self, provider: StateStoreProvider, store_name: str) -> Callable[[], list[Shown]]:
        """Return a function that gives the stores as they are now, each with what it shows of a value."""
        return lambda: [(store, self._value_of(store)) for store in provider.stores(store_name, self)]

    def _value_of(self, store: Any) -> ValueOf:
        match self.values:
            case _Values.PLAIN:
                return plain_of(store)
            case _Values.TIMESTAMPED:
                return timestamped_of(store)
            case _Values.WITH_HEADERS:
                return as_it_is


class KeyValueStoreType(_BuiltInType):
    """Asks for a key-value store."""

    def create(self, provider: StateStoreProvider, store_name: str) -> ReadOnlyKeyValueStore:
        """Return the store `store_name` over all partitions that `provider` has."""
        return CompositeReadOnlyKeyValueStore(store_name, self.shown(provider, store_name))


class WindowStoreType(_BuiltInType):
    """Asks for a window store."""

    def create(self, provider: StateStoreProvider, store_name: str) -> ReadOnlyWindowStore:
        """Return the store `store_name` over all partitions that `provider` has."""
        return CompositeReadOnlyWindowStore(store_name, self.shown(provider, store_name))


class SessionStoreType(_BuiltInType):
    """Asks for a session store."""

    def create(self, provider: StateStoreProvider, store_name: str) -> ReadOnlySessionStore:
        """Return the store `store_name` over all partitions that `provider` has."""
        return CompositeReadOnlySessionStore(store_name, self.shown(provider, store_name))


class StoreTableType:
    """Asks for a store of any kind, as a table (implements QueryableStoreType)."""

    def __str__(self) -> str:
        return "table"

    def accepts(self, store: StateStore) -> bool:
        """Return whether `store` is a table: key-value, window, session or versioned."""
        return isinstance(store, TypedStore) and isinstance(store, StoreTable)

    def create(self, provider: StateStoreProvider, store_name: str) -> StoreTable:
        """Return the store `store_name` over all partitions that `provider` has."""
        return CompositeReadOnlyStore(
            store_name, lambda: [(store, as_it_is) for store in provider.stores(store_name, self)]
        )


class QueryableStoreTypes:
    """The types of the stores that `Stores` makes (Kafka class: QueryableStoreTypes)."""

    @staticmethod
    def key_value_store() -> KeyValueStoreType:
        """Any key-value store, values without timestamps."""
        return KeyValueStoreType(TypedKeyValueStore, _Values.PLAIN)

    @staticmethod
    def timestamped_key_value_store() -> KeyValueStoreType:
        """A timestamped key-value store; values are ValueAndTimestamp."""
        return KeyValueStoreType(TypedKeyValueStore, _Values.TIMESTAMPED)

    @staticmethod
    def timestamped_key_value_store_with_headers() -> KeyValueStoreType:
        """A key-value store that keeps headers; values are ValueTimestampHeaders."""
        return KeyValueStoreType(TypedKeyValueStore, _Values.WITH_HEADERS)

    @staticmethod
    def window_store() -> WindowStoreType:
        """Any window store, values without timestamps."""
        return WindowStoreType(TypedWindowStore, _Values.PLAIN)

    @staticmethod
    def timestamped_window_store() -> WindowStoreType:
        """A timestamped window store; values are ValueAndTimestamp."""
        return WindowStoreType(TypedWindowStore, _Values.TIMESTAMPED)

    @staticmethod
    def timestamped_window_store_with_headers() -> WindowStoreType:
        """A window store that keeps headers; values are ValueTimestampHeaders."""
        return WindowStoreType(TypedWindowStore, _Values.WITH_HEADERS)

    @staticmethod
    def session_store() -> SessionStoreType:
        """Any session store, aggregates without headers."""
        return SessionStoreType(TypedSessionStore, _Values.PLAIN)

    @staticmethod
    def session_store_with_headers() -> SessionStoreType:
        """A session store that keeps headers; values are AggregationWithHeaders."""
        return SessionStoreType(TypedSessionStore, _Values.WITH_HEADERS)


@dataclass(frozen=True)
class StoreQueryParameters:
    """Which store a query reads (Kafka class: StoreQueryParameters).

    partition: the one partition to read, None for all. stale_stores: whether copies that may be behind will do; all
    that is read is as of a commit, so this changes nothing.
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
        """Ask for the store `store_name` as one of the type given, over all partitions."""
        return StoreQueryParameters(store_name, queryable_store_type)

    def with_partition(self, partition: int | None) -> StoreQueryParameters:
        """Return a copy that asks for one partition, None for all."""
        return replace(self, partition=partition)

    def enable_stale_stores(self) -> StoreQueryParameters:
        """Return a copy that accepts stores that may be behind."""
        return replace(self, stale_stores=True)

    def stale_stores_enabled(self) -> bool:
        """Return whether copies that may be behind will do."""
        return self.stale_stores


class StoresOfPartitions:
    """Has the stores that one call of `store` asked for (implements StateStoreProvider)."""

    def __init__(
        self,
        stores: Callable[[], Sequence[StateStore]],
        partition: int | None,
        not_there: Callable[[str], InvalidStateStoreError],
    ) -> None:
        """Have what `stores` returns at each read. partition: the one that was asked for, None for all. not_there:
        returns the error for a store of which there is no partition, by its name."""
        self._stores = stores
        self._partition = partition
        self._not_there = not_there

    def stores(self, store_name: str, store_type: QueryableStoreType) -> Sequence[StateStore]:
        """Return the stores of the requested partitions, as they are now."""
        stores = self._stores()
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
                    f"accept the actual store type [{type(store).__name__}]."
                )
        return stores


def check_known(store_name: str, known: Collection[str]) -> None:
    """Raise UnknownStateStoreError unless `store_name` is one of the `known` stores of a topology."""
    if store_name not in known:
        raise UnknownStateStoreError(
            f"Cannot get state store {store_name} because no such store is registered in the topology. It has: "
            f"{', '.join(sorted(known)) or 'none'}."
        )
