"""Entries of stores with headers as records."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidStateStoreError, StreamsError
from penstock.record import NO_TIMESTAMP, ReadOnlyRecord, Record, ValueTimestampHeaders
from penstock.state.query.execution import run_query
from penstock.state.query.queries import TimestampedKeyWithHeadersQuery, TimestampedRangeWithHeadersQuery
from penstock.state.query.record_iterator import ReadOnlyRecordIterator, record_of, session_record_of
from penstock.state.query.request import FailureReason
from penstock.state.stores import Stores
from penstock.windows import TimeWindow, Windowed
from tests.support.stores import STRING, build
from tests.support.value_stores import HEADERS, SESSION, with_headers


def test_an_iterator_yields_records_until_it_is_closed() -> None:
    entries = with_headers("a", "b").all()
    with ReadOnlyRecordIterator(entries, record_of) as records:
        first: ReadOnlyRecord[str, str] = next(iter(records))
        assert (first.key, first.value, first.timestamp, first.headers) == ("a", "A", 5, HEADERS)
    with pytest.raises(InvalidStateStoreError, match="the iterator is closed"):
        next(records)


def test_an_entry_without_a_timestamp_is_no_record() -> None:
    untimed = ValueTimestampHeaders("v", NO_TIMESTAMP)
    with pytest.raises(StreamsError, match=r"record for key \[k\] as a ReadOnlyRecord: its timestamp \(-1\)"):
        record_of("k", untimed)
    with pytest.raises(StreamsError, match=r"for key \[k\] and window \[.*0.*10.*\] as a ReadOnlyRecord"):
        record_of(Windowed("k", TimeWindow(0, 10)), untimed)


def test_a_store_whose_supplier_keeps_no_timestamps_fails_as_in_kafka() -> None:
    """The supplier is Stores.persistent_key_value_store, as a builder of stores with headers accepts."""
    supplier = Stores.persistent_key_value_store("s")
    store = build(Stores.timestamped_key_value_store_with_headers_builder(supplier, STRING, STRING))
    store.put("a", ValueTimestampHeaders("A", 5, HEADERS))
    result = run_query(store, TimestampedKeyWithHeadersQuery("a"))
    assert result.failure_reason is FailureReason.STORE_EXCEPTION
    assert "timestamp (-1) is negative" in result.failure_message
    records = run_query(store, TimestampedRangeWithHeadersQuery()).result
    with pytest.raises(StreamsError, match="is negative"):
        next(records)


def test_an_aggregate_of_the_dsl_has_no_headers() -> None:
    assert session_record_of(SESSION, 7) == Record(SESSION, 7, 2)
