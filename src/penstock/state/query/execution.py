"""Answers a query from one store (Kafka class: StoreQueryUtils and the stores' `query` methods).

Pure functions: the caller passes the store and its position. A user-defined store answers its queries itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, runtime_checkable

from penstock.errors import SerializationError, StreamsError, UnsupportedOperationError
from penstock.record import TopicPartition
from penstock.state.api import KeyValueIterator
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.query.composite import CompositeKeyValueIterator
from penstock.state.query.position import Position, PositionBound
from penstock.state.query.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    ResultOrder,
    TimestampedKeyQuery,
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.state.query.record_iterator import ReadOnlyRecordIterator, record_of, session_record_of
from penstock.state.query.request import FailureReason, QueryResult
from penstock.state.query.values import ValueOf, aggregation_of, plain_of, timestamped_of
from penstock.state.session_store import TypedSessionStore
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from penstock.state.window_store import TypedWindowStore

_QUERIES: Final[Mapping[type, str]] = {
    TypedKeyValueStore: "KeyQuery and RangeQuery; of timestamps and headers what the store keeps",
    TypedWindowStore: "WindowKeyQuery and WindowRangeQuery.with_window_start_range; of headers what the store keeps",
    TypedSessionStore: "WindowRangeQuery.with_key; of headers what the store keeps",
    TypedVersionedKeyValueStore: "VersionedKeyQuery and MultiVersionedKeyQuery",
}
"""The queries that the kinds of stores answer, for people."""


@runtime_checkable
class AnsweringStateStore(Protocol):
    """A user-defined store that answers queries (Kafka method: StateStore.query)."""

    def query(self, query: Query) -> QueryResult:
        """Return the answer to `query`, or QueryResult.for_unknown_query_type."""
        ...


def run_query(store: Any, query: Query) -> QueryResult:
    """Return the answer of `store` to `query`.

    Raises the errors of a serde for a key that it cannot serialise, StreamsError for a key of another type, and
    UnsupportedOperationError for queries that Kafka rejects in this way.
    """
    try:
        result = _answer(store, query)
    except (SerializationError, UnsupportedOperationError):
        raise
    except StreamsError as error:
        if isinstance(error.__cause__, TypeError):  # a key of another type
            raise
        return QueryResult.for_failure(
            FailureReason.STORE_EXCEPTION, f"{type(store).__name__} failed to handle query {query}: {error}"
        )
    if result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE:
        fitting = next((queries for kind, queries in _QUERIES.items() if isinstance(store, kind)), None)
        if fitting is not None:
            return replace(result, failure_message=f"{result.failure_message} Queries for this store: {fitting}.")
    return result


def _answer(store: Any, query: Query) -> QueryResult:
    match store:
        case TypedKeyValueStore():
            return _of_key_value_store(store, query)
        case TypedWindowStore():
            return _of_window_store(store, query)
        case TypedSessionStore():
            return _of_session_store(store, query)
        case TypedVersionedKeyValueStore():
            return _of_versioned_store(store, query)
        case AnsweringStateStore():
            return store.query(query)
        case _:
            return QueryResult.for_unknown_query_type(query, store)


def is_permitted(position: Position, bound: PositionBound, needed: Collection[TopicPartition], partition: int) -> bool:
    """Return whether `position` satisfies `bound` for one partition of a store.

    Args:
        position: the position of the partition.
        bound: the required position.
        needed: the source partitions on which this partition of the store depends; a bound on other partitions of their
            topics is ignored.
        partition: the number of the store's partition, used for bounds on unknown topics.
    """
    topics = {topic for topic, _ in needed}
    for topic, bounds in bound.position.offsets.items():
        seen = position.partition_positions(topic)
        for number, offset in bounds.items():
            counts = TopicPartition(topic, number) in needed or (topic not in topics and number == partition)
            if counts and seen.get(number, -1) < offset:
                return False
    return True


def _of_key_value_store(store: TypedKeyValueStore, query: Query) -> QueryResult:
    match query:
        case TimestampedKeyQuery() | TimestampedRangeQuery() if not store.timestamped:
            return QueryResult.for_unknown_query_type(query, store)
        case TimestampedKeyWithHeadersQuery() | TimestampedRangeWithHeadersQuery() if not store.with_headers:
            return QueryResult.for_unknown_query_type(query, store)
        case TimestampedKeyWithHeadersQuery(key=key):
            value = store.get(key)
            return QueryResult.for_result(None if value is None else record_of(key, value))
        case TimestampedRangeWithHeadersQuery():
            return QueryResult.for_result(ReadOnlyRecordIterator(_range(store, query), record_of))
        case TimestampedKeyQuery(key=key):
            return _value(store.get(key), timestamped_of(store))
        case KeyQuery(key=key):
            return _value(store.get(key), plain_of(store))
        case TimestampedRangeQuery():
            return _entries(store, _range(store, query), timestamped_of(store))
        case RangeQuery():
            return _entries(store, _range(store, query), plain_of(store))
        case _:
            return QueryResult.for_unknown_query_type(query, store)


def _range(store: TypedKeyValueStore, query: RangeQuery) -> KeyValueIterator:
    read = store.reverse_range if query.order is ResultOrder.DESCENDING else store.range
    return read(query.lower, query.upper)


def _of_window_store(store: TypedWindowStore, query: Query) -> QueryResult:
    match query:
        case TimestampedWindowKeyWithHeadersQuery() | TimestampedWindowRangeWithHeadersQuery() if (
            not store.with_headers
        ):
            return QueryResult.for_unknown_query_type(query, store)
        case TimestampedWindowKeyWithHeadersQuery(key=key, time_from=int(time_from), time_to=int(time_to)):
            windows = store.fetch_range(key, key, time_from, time_to)  # unlike fetch, with Windowed keys
            return QueryResult.for_result(ReadOnlyRecordIterator(windows, record_of))
        case TimestampedWindowRangeWithHeadersQuery(time_from=int(time_from), time_to=int(time_to)):
            return QueryResult.for_result(ReadOnlyRecordIterator(store.fetch_all(time_from, time_to), record_of))
        case WindowKeyQuery(key=key, time_from=int(time_from), time_to=int(time_to)):
            return _entries(store, store.fetch(key, time_from, time_to), timestamped_of(store))
        case WindowKeyQuery():
            return _only(store, query, "it only supports closed-range queries")
        case WindowRangeQuery(time_from=int(time_from), time_to=int(time_to)):
            return _entries(store, store.fetch_all(time_from, time_to), timestamped_of(store))
        case WindowRangeQuery():
            return _only(store, query, f"WindowStores only supports {type(query).__name__}.with_window_start_range")
        case _:
            return QueryResult.for_unknown_query_type(query, store)


def _of_session_store(store: TypedSessionStore, query: Query) -> QueryResult:
    match query:
        case TimestampedWindowRangeWithHeadersQuery() if not store.with_headers:
            return QueryResult.for_unknown_query_type(query, store)
        case WindowRangeQuery(key=None):
            return _only(store, query, f"SessionStores only support {type(query).__name__}.with_key")
        case TimestampedWindowRangeWithHeadersQuery(key=key):
            return QueryResult.for_result(ReadOnlyRecordIterator(store.fetch(key), session_record_of))
        case WindowRangeQuery(key=key):
            return _entries(store, store.fetch(key), aggregation_of(store))
        case _:
            return QueryResult.for_unknown_query_type(query, store)


def _of_versioned_store(store: TypedVersionedKeyValueStore, query: Query) -> QueryResult:
    match query:
        case (
            TimestampedKeyQuery()
            | TimestampedRangeQuery()
            | TimestampedKeyWithHeadersQuery()
            | TimestampedRangeWithHeadersQuery()
        ):
            return QueryResult.for_unknown_query_type(query, store)
        case KeyQuery() | RangeQuery():
            raise UnsupportedOperationError(
                f"Versioned stores do not support {type(query).__name__} queries at this time."
            )
        case VersionedKeyQuery(key=key, as_of_timestamp=as_of):
            return QueryResult.for_result(store.get_version(key, as_of))
        case MultiVersionedKeyQuery(key=key, time_from=time_from, time_to=time_to, order=order):
            if time_from is not None and time_to is not None and time_from > time_to:
                raise ValueError("The `from_time` timestamp must be smaller than the `to_time` timestamp.")
            versions = store.versions(key, time_from, time_to, order is ResultOrder.ASCENDING)
            return QueryResult.for_result(VersionedRecordIterator(versions))
        case _:
            return QueryResult.for_unknown_query_type(query, store)


class VersionedRecordIterator:
    """Iterates over VersionedRecords; a context manager (Kafka class: VersionedRecordIterator).

    Args:
        records: the records.
    """

    def __init__(self, records: Iterator[Any]) -> None:
        self._records = records
        self._open = True

    def __iter__(self) -> VersionedRecordIterator:
        return self

    def __next__(self) -> Any:
        if not self._open:
            raise RuntimeError("The iterator is out of scope.")
        return next(self._records)

    def __enter__(self) -> VersionedRecordIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the iterator; later calls raise RuntimeError."""
        self._open = False
        self._records = iter(())


def _value(value: Any, value_of: ValueOf) -> QueryResult:
    return QueryResult.for_result(None if value is None else value_of(value))


def _entries(store: Any, entries: KeyValueIterator, value_of: ValueOf) -> QueryResult:
    return QueryResult.for_result(CompositeKeyValueIterator(store.name, iter([(entries, value_of)])))


def _only(store: Any, query: Query, because: str) -> QueryResult:
    return QueryResult.for_failure(
        FailureReason.UNKNOWN_QUERY_TYPE,
        f"This store ({type(store).__name__}) doesn't know how to execute the given query ({query}) because {because}. "
        "Contact the store maintainer if you need support for a new query type.",
    )
