"""Queries as values: arguments, copies and defaults."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

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

NOTHING: Any = None


@pytest.mark.parametrize(
    "call",
    [
        lambda: KeyQuery.with_key(NOTHING),
        lambda: RangeQuery.with_lower_bound(NOTHING),
        lambda: RangeQuery.with_upper_bound(NOTHING),
        lambda: WindowKeyQuery.with_key_and_window_start_range(NOTHING, 0, 1),
        lambda: WindowKeyQuery.with_key_and_window_start_range("k", NOTHING, 1),
        lambda: WindowKeyQuery.with_key_and_window_start_range("k", 0, NOTHING),
        lambda: WindowRangeQuery.with_key(NOTHING),
        lambda: WindowRangeQuery.with_window_start_range(NOTHING, 1),
        lambda: WindowRangeQuery.with_window_start_range(0, NOTHING),
        lambda: TimestampedKeyWithHeadersQuery.with_key(NOTHING),
        lambda: TimestampedRangeWithHeadersQuery.with_lower_bound(NOTHING),
        lambda: TimestampedWindowKeyWithHeadersQuery.with_key_and_window_start_range("k", NOTHING, 1),
        lambda: TimestampedWindowRangeWithHeadersQuery.with_window_start_range(0, NOTHING),
        lambda: VersionedKeyQuery.with_key(NOTHING),
        lambda: VersionedKeyQuery.with_key("k").as_of(NOTHING),
        lambda: MultiVersionedKeyQuery.with_key(NOTHING),
    ],
)
def test_none_is_neither_a_key_nor_a_time(call: Callable[[], Query]) -> None:
    with pytest.raises(TypeError, match="A query needs a key or a time, got None"):
        call()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (KeyQuery.with_key("k").skip_cache(), KeyQuery("k", True)),
        (TimestampedKeyQuery.with_key("k"), TimestampedKeyQuery("k")),
        (TimestampedKeyWithHeadersQuery.with_key("k").skip_cache(), TimestampedKeyWithHeadersQuery("k", True)),
        (
            TimestampedRangeWithHeadersQuery.with_upper_bound("b").with_descending_keys(),
            TimestampedRangeWithHeadersQuery(None, "b", ResultOrder.DESCENDING),
        ),
        (
            TimestampedWindowKeyWithHeadersQuery.with_key_and_window_start_range("k", 0, 1),
            TimestampedWindowKeyWithHeadersQuery("k", 0, 1),
        ),
        (TimestampedWindowRangeWithHeadersQuery.with_key("k"), TimestampedWindowRangeWithHeadersQuery("k")),
        (RangeQuery.with_range(None, "b"), RangeQuery(None, "b", ResultOrder.ANY)),
        (TimestampedRangeQuery.with_lower_bound("a"), TimestampedRangeQuery("a", None)),
        (RangeQuery.with_upper_bound("b").with_ascending_keys(), RangeQuery(None, "b", ResultOrder.ASCENDING)),
        (
            TimestampedRangeQuery.with_no_bounds().with_descending_keys(),
            TimestampedRangeQuery(order=ResultOrder("DESCENDING")),
        ),
        (WindowKeyQuery.with_key_and_window_start_range("k", 0, 5), WindowKeyQuery("k", 0, 5)),
        (WindowRangeQuery.with_key("k"), WindowRangeQuery("k", None, None)),
        (WindowRangeQuery.with_window_start_range(0, 5), WindowRangeQuery(None, 0, 5)),
        (VersionedKeyQuery.with_key("k").as_of(0), VersionedKeyQuery("k", 0)),
        (MultiVersionedKeyQuery.with_key("k").from_time(0).to_time(5), MultiVersionedKeyQuery("k", 0, 5)),
        (
            MultiVersionedKeyQuery.with_key("k").with_descending_timestamps().with_ascending_timestamps(),
            MultiVersionedKeyQuery("k", None, None, ResultOrder.ASCENDING),
        ),
    ],
    ids=lambda query: type(query).__name__,
)
def test_a_query_is_a_value_of_its_class_with_the_given_parts(query: Query, expected: Query) -> None:
    assert query == expected
    assert type(query) is type(expected)
    assert pickle.loads(pickle.dumps(query)) == query


def test_a_copy_leaves_its_query_unchanged() -> None:
    query = MultiVersionedKeyQuery.with_key("k")
    assert query.from_time(1).from_time(None) == query
    query.with_descending_timestamps()
    assert query.order is ResultOrder.ANY
    assert RangeQuery("a", "b") != TimestampedRangeQuery("a", "b")
