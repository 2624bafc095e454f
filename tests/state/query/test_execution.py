"""Answers of single stores to queries."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidStateStoreError, StreamsError, UnsupportedOperationError
from penstock.record import Record, TopicPartition, ValueAndTimestamp
from penstock.state.query.execution import VersionedRecordIterator, is_permitted, run_query
from penstock.state.query.position import Position, PositionBound
from penstock.state.query.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
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
from penstock.state.query.request import FailureReason, QueryResult
from penstock.state.versioned_api import VersionedRecord
from penstock.windows import TimeWindow, Windowed
from tests.support.custom_stores import DictStore
from tests.support.value_stores import (
    HEADERS,
    SESSION,
    join_windows,
    key_values,
    sessions,
    timestamped,
    versions,
    windows,
    windows_with_headers,
    with_headers,
)

TIMED = ValueAndTimestamp("A", 5)
RECORD, WINDOW = Record("a", "A", 5, HEADERS), Windowed("a", TimeWindow(0, 10))
OLD, NEW = VersionedRecord("old", 5, 7), VersionedRecord("A", 7, None)


@pytest.mark.parametrize(
    ("store", "query", "value"),
    [
        (key_values("a"), KeyQuery("a"), "A"),
        (with_headers("a"), KeyQuery("a"), "A"),
        (with_headers("a"), TimestampedKeyQuery("a"), TIMED),
        (with_headers("a"), TimestampedKeyQuery("b"), None),
        (with_headers("a"), TimestampedKeyWithHeadersQuery("a"), RECORD),
        (with_headers("a"), TimestampedKeyWithHeadersQuery("b").skip_cache(), None),
        (versions("a"), VersionedKeyQuery("a"), NEW),
        (versions("a"), VersionedKeyQuery("a", 6), OLD),
        (versions("a"), VersionedKeyQuery("a", 4), None),
    ],
)
def test_a_key_query_has_one_value(store: Any, query: Query, value: Any) -> None:
    assert run_query(store, query).result == value


@pytest.mark.parametrize(
    ("store", "query", "entries"),
    [
        (key_values("a", "b"), RangeQuery(), [("a", "A"), ("b", "B")]),
        (timestamped("a", "b"), RangeQuery("b").with_descending_keys(), [("b", "B")]),
        (key_values("a", "b"), RangeQuery().with_descending_keys(), [("b", "B"), ("a", "A")]),
        (with_headers("a"), TimestampedRangeQuery(), [("a", TIMED)]),
        (with_headers("a", "b"), TimestampedRangeWithHeadersQuery("a", "a"), [RECORD]),
        (
            with_headers("a", "b"),
            TimestampedRangeWithHeadersQuery().with_descending_keys(),
            [Record("b", "B", 5, HEADERS), RECORD],
        ),
        (windows("a"), WindowKeyQuery("a", 0, 9), [(0, TIMED)]),
        (
            windows_with_headers("a", "aa"),
            TimestampedWindowKeyWithHeadersQuery("a", 0, 9),
            [Record(WINDOW, "A", 5, HEADERS)],
        ),
        (windows_with_headers("a"), TimestampedWindowKeyWithHeadersQuery("a", 1, 9), []),
        (
            windows_with_headers("a"),
            TimestampedWindowRangeWithHeadersQuery.with_window_start_range(0, 0),
            [Record(WINDOW, "A", 5, HEADERS)],
        ),
        (windows("a"), WindowKeyQuery("a", 1, 9), []),
        (join_windows("a"), WindowKeyQuery("a", 0, 9), [(0, "A")]),
        (sessions("a", "b"), WindowRangeQuery.with_key("a"), [(SESSION, "A")]),
        (
            sessions("a", "b"),
            TimestampedWindowRangeWithHeadersQuery.with_key("a"),
            [Record(SESSION, "A", 2, HEADERS)],
        ),
        (versions("a"), MultiVersionedKeyQuery("a"), [NEW, OLD]),
        (versions("a"), MultiVersionedKeyQuery("a").with_ascending_timestamps(), [OLD, NEW]),
    ],
)
def test_a_range_query_has_an_iterator(store: Any, query: Query, entries: list[Any]) -> None:
    with run_query(store, query).result as found:
        assert list(found) == entries


@pytest.mark.parametrize(
    ("store", "query", "message"),
    [
        (key_values(), TimestampedKeyQuery("a"), "doesn't know how to execute"),
        (key_values(), WindowRangeQuery.with_key("a"), "Queries for this store: KeyQuery and RangeQuery"),
        (windows(), KeyQuery("a"), "Queries for this store: WindowKeyQuery"),
        (windows(), WindowKeyQuery("a", None, 5), "only supports closed-range queries"),
        (windows(), WindowRangeQuery.with_key("a"), "only supports WindowRangeQuery.with_window_start_range"),
        (sessions(), WindowRangeQuery.with_window_start_range(0, 5), "only support WindowRangeQuery.with_key"),
        (sessions(), KeyQuery("a"), "doesn't know how to execute"),
        (versions(), TimestampedKeyQuery("a"), "doesn't know how to execute"),
        (key_values(), TimestampedKeyWithHeadersQuery("a"), "doesn't know how to execute"),
        (timestamped(), TimestampedKeyWithHeadersQuery("a"), "doesn't know how to execute"),
        (timestamped(), TimestampedRangeWithHeadersQuery(), "doesn't know how to execute"),
        (versions(), TimestampedKeyWithHeadersQuery("a"), "doesn't know how to execute"),
        (versions(), TimestampedRangeWithHeadersQuery(), "doesn't know how to execute"),
        (with_headers(), TimestampedWindowKeyWithHeadersQuery("a", 0, 5), "doesn't know how to execute"),
        (windows(), TimestampedWindowKeyWithHeadersQuery("a", 0, 5), r"\(TimestampedWindowKey.*\)\. Contact"),
        (join_windows("a"), TimestampedWindowKeyWithHeadersQuery("a", 0, 5), "doesn't know how to execute"),
        (join_windows("a"), TimestampedWindowRangeWithHeadersQuery(None, 0, 5), "doesn't know how to execute"),
        (windows(), TimestampedWindowRangeWithHeadersQuery(None, 0, 5), r"\(TimestampedWindowRange.*\)\. Contact"),
        (windows_with_headers(), TimestampedKeyWithHeadersQuery("a"), "doesn't know how to execute"),
        (
            windows_with_headers(),
            TimestampedWindowRangeWithHeadersQuery("a"),
            "only supports TimestampedWindowRangeWithHeadersQuery.with_window_start_range",
        ),
        (sessions(), TimestampedWindowKeyWithHeadersQuery("a", 0, 5), "doesn't know how to execute"),
        (
            sessions(),
            TimestampedWindowRangeWithHeadersQuery(None, 0, 5),
            "only support TimestampedWindowRangeWithHeadersQuery.with_key",
        ),
        (DictStore("s"), KeyQuery("a"), r"This store \(DictStore\) doesn't know"),
    ],
)
def test_a_query_of_another_kind_is_a_failure(store: Any, query: Query, message: str) -> None:
    result = run_query(store, query)
    assert result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    with pytest.raises(ValueError, match=message):
        _ = result.result


def test_queries_that_kafka_rejects_raise() -> None:
    for query in (KeyQuery("a"), RangeQuery()):
        with pytest.raises(UnsupportedOperationError, match=f"do not support {type(query).__name__} queries"):
            run_query(versions(), query)
    with pytest.raises(ValueError, match="`from_time` timestamp must be smaller than the `to_time`"):
        run_query(versions(), MultiVersionedKeyQuery("a", 6, 5))


def test_a_key_of_another_type_raises_and_any_other_error_is_a_failure() -> None:
    with pytest.raises(StreamsError, match="cannot write key 5"):
        run_query(key_values(), KeyQuery(5))
    closed = key_values()
    closed.close()
    result = run_query(closed, KeyQuery("a"))
    assert result.failure_reason is FailureReason.STORE_EXCEPTION
    assert "TypedKeyValueStore failed to handle query KeyQuery(key='a'" in result.failure_message
    assert "Store 's' is not open" in result.failure_message


def test_a_user_defined_store_answers_its_queries_itself() -> None:
    class Answering(DictStore):
        def query(self, query: Query) -> QueryResult:
            if isinstance(query, RangeQuery):
                raise InvalidStateStoreError("moved")
            return QueryResult.for_result(query)

    query = KeyQuery("a")
    assert run_query(Answering("s"), query).result is query
    assert run_query(Answering("s"), RangeQuery()).failure_reason is FailureReason.STORE_EXCEPTION


def test_a_closed_iterator_of_versions_is_out_of_scope() -> None:
    records = VersionedRecordIterator(iter([NEW, OLD]))
    assert next(records) == NEW
    records.close()
    with pytest.raises(RuntimeError, match="out of scope"):
        next(records)


@pytest.mark.parametrize(
    ("bound", "permitted"),
    [
        ({}, True),
        ({"t": {0: 5}}, True),
        ({"t": {0: 6}}, False),
        ({"t": {1: 99}}, True),
        ({"unknown": {1: 99}}, True),
        ({"unknown": {0: 0}}, False),
        ({"t": {0: 5}, "u": {0: 0}}, False),
    ],
    ids=str,
)
def test_a_bound_counts_for_the_partitions_that_a_store_depends_on(bound: Any, permitted: bool) -> None:
    needed = [TopicPartition("t", 0), TopicPartition("u", 0)]
    seen = Position.from_map({"t": {0: 5}})
    assert is_permitted(seen, PositionBound.at(Position.from_map(bound)), needed, 0) == permitted
