"""Types of stores, their parameters and the stores of partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import InvalidStateStoreError, InvalidStateStorePartitionError, UnknownStateStoreError
from penstock.record import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders
from penstock.state.query.queryable import (
    QueryableStoreTypes,
    StoreQueryParameters,
    StoresOfPartitions,
    StoreTableType,
    check_known,
)
from tests.support.custom_stores import DictStore
from tests.support.value_stores import (
    HEADERS,
    join_windows,
    key_values,
    sessions,
    timestamped,
    versions,
    windows,
    with_headers,
)

TYPES: dict[Any, list[Callable[..., Any]]] = {
    QueryableStoreTypes.key_value_store(): [key_values, timestamped, with_headers],
    QueryableStoreTypes.timestamped_key_value_store(): [timestamped, with_headers],
    QueryableStoreTypes.timestamped_key_value_store_with_headers(): [with_headers],
    QueryableStoreTypes.window_store(): [windows, join_windows],
    QueryableStoreTypes.timestamped_window_store(): [windows],
    QueryableStoreTypes.timestamped_window_store_with_headers(): [],
    QueryableStoreTypes.session_store(): [sessions],
    QueryableStoreTypes.session_store_with_headers(): [sessions],
    StoreTableType(): [key_values, timestamped, with_headers, windows, join_windows, sessions, versions],
}


def provider(*stores: Any, partition: int | None = None) -> StoresOfPartitions:
    return StoresOfPartitions(lambda _: stores, partition, lambda name: UnknownStateStoreError(f"no {name}"))


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_type_accepts_stores_of_its_kind_that_keep_its_values(type_: Any) -> None:
    every = [key_values, timestamped, with_headers, windows, join_windows, sessions, versions, lambda: DictStore("s")]
    assert [make for make in every if type_.accepts(make())] == TYPES[type_]


def test_each_type_has_a_name_of_its_own() -> None:
    assert len(set(map(str, TYPES))) == len(TYPES)
    assert str(QueryableStoreTypes.timestamped_window_store_with_headers()) == "with headers window store"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (QueryableStoreTypes.key_value_store(), "A"),
        (QueryableStoreTypes.timestamped_key_value_store(), ValueAndTimestamp("A", 5)),
        (QueryableStoreTypes.timestamped_key_value_store_with_headers(), ValueTimestampHeaders("A", 5, HEADERS)),
    ],
    ids=str,
)
def test_a_type_shows_its_part_of_the_values(type_: Any, value: Any) -> None:
    store = type_.create(provider(with_headers("a"), with_headers("b")), "s")
    assert store.get("a") == value
    assert [type(found.value) for found in store.all()] == [type(value)] * 2


def test_windows_and_sessions_are_shown_without_headers_unless_asked_for() -> None:
    assert QueryableStoreTypes.window_store().create(provider(windows("a")), "s").fetch("a", 0) == "A"
    of_sessions = provider(sessions("a"))
    assert QueryableStoreTypes.session_store().create(of_sessions, "s").fetch_session("a", 1, 2) == "A"
    complete = QueryableStoreTypes.session_store_with_headers().create(of_sessions, "s")
    assert complete.fetch_session("a", 1, 2) == AggregationWithHeaders("A", HEADERS)


def test_stores_of_another_type_are_named() -> None:
    store = QueryableStoreTypes.window_store().create(provider(key_values()), "s")
    with pytest.raises(
        InvalidStateStoreError, match=r"type \[window store\] does not accept .*\]\. .*\.key_value_store\(\) does"
    ):
        store.fetch("a", 0)


def test_a_store_without_partitions_has_an_error_of_its_own() -> None:
    plain = QueryableStoreTypes.key_value_store()
    with pytest.raises(UnknownStateStoreError, match="no s"):
        provider().stores("s", plain)
    with pytest.raises(InvalidStateStorePartitionError, match="specified partition 3 for store s does not exist"):
        provider(partition=3).stores("s", plain)


def test_parameters_are_copied_and_need_a_type() -> None:
    plain = QueryableStoreTypes.key_value_store()
    given = StoreQueryParameters.from_name_and_type("s", plain)
    assert (given.partition, given.stale_stores_enabled()) == (None, False)
    assert given.with_partition(3).enable_stale_stores() == StoreQueryParameters("s", plain, 3, True)
    uncalled: Any = QueryableStoreTypes.key_value_store
    with pytest.raises(TypeError, match=r"call it, such as QueryableStoreTypes.key_value_store\(\)"):
        StoreQueryParameters.from_name_and_type("s", uncalled)


def test_the_error_of_an_unknown_store_lists_those_of_the_topology() -> None:
    check_known("s", ["s"])
    with pytest.raises(UnknownStateStoreError, match=r"Cannot get state store x .* It has: s, t\."):
        check_known("x", ["t", "s"])
    with pytest.raises(UnknownStateStoreError, match=r"It has: none\."):
        check_known("x", [])
