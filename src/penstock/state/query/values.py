"""Formats of stored values in query results: plain, with timestamp, or complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.record import AggregationWithHeaders, ValueAndTimestamp
from penstock.state.typed_store import TypedStore

ValueOf = Callable[[Any], Any]
"""Converts a stored value, not None, to its format in results."""


def as_it_is(value: Any) -> Any:
    """Return the stored value."""
    return value


def plain_of(store: TypedStore) -> ValueOf:
    """Return a function that strips timestamps and headers from the values of `store`."""
    return _value if store.timestamped else aggregation_of(store)


def timestamped_of(store: TypedStore) -> ValueOf:
    """Return a function that strips headers from the values of a timestamped `store`.

    It leaves other values unchanged.
    """
    return _value_and_timestamp if store.timestamped and store.with_headers else aggregation_of(store)


def aggregation_of(store: TypedStore) -> ValueOf:
    """Return a function that strips headers from the values of a session store."""
    return _aggregation if store.with_headers and not store.timestamped else as_it_is


def _value(value: ValueAndTimestamp) -> Any:
    return value.value


def _value_and_timestamp(value: ValueAndTimestamp) -> ValueAndTimestamp:
    return ValueAndTimestamp(value.value, value.timestamp)


def _aggregation(value: Any) -> Any:
    return value.aggregation if isinstance(value, AggregationWithHeaders) else value
