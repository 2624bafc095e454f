"""Read-only stores over the stores of all partitions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.isolation_level import IsolationLevel
from penstock.errors import UnsupportedOperationError
from penstock.record import AggregationWithHeaders, ValueAndTimestamp
from penstock.state.query.composite import (
    CompositeKeyValueIterator,
    CompositeReadOnlyKeyValueStore,
    CompositeReadOnlySessionStore,
    CompositeReadOnlyWindowStore,
)
from penstock.state.query.values import as_it_is, plain_of
from penstock.windows import LONG_MAX
from tests.support.stores import STRING
from tests.support.value_stores import HEADERS, key_values, sessions, timestamped, windows


def chained(*stores: Any) -> CompositeKeyValueIterator:
    return CompositeKeyValueIterator("s", ((store.all(), plain_of(store)) for store in stores))


def key_value_store(*stores: Any) -> CompositeReadOnlyKeyValueStore:
    return CompositeReadOnlyKeyValueStore("s", lambda _: [(store, plain_of(store)) for store in stores])


def test_entries_come_one_partition_after_another() -> None:
    entries = chained(key_values(), timestamped("b", "c"), key_values(), key_values("a"), key_values())
    assert entries.peek_next_key() == "b"
    assert entries.peek_next_key() == "b"
    assert list(entries) == [("b", "B"), ("c", "C"), ("a", "A")]
    with pytest.raises(StopIteration):
        entries.peek_next_key()
    assert list(chained()) == []


def test_a_closed_iterator_has_closed_that_of_its_partition() -> None:
    below = key_values("a", "b").all()
    with CompositeKeyValueIterator("s", iter([(below, as_it_is)])) as entries:
        assert next(entries) == ("a", "A")
    for call in (lambda: next(entries), entries.peek_next_key):
        with pytest.raises(RuntimeError, match="Iterator for store s has already been closed"):
            call()
    with pytest.raises(Exception, match="iterator is closed"):
        next(below)


def test_a_key_is_looked_up_in_each_partition() -> None:
    store = key_value_store(key_values("a"), timestamped("b"))
    assert [store.get(key) for key in "abc"] == ["A", "B", None]
    assert store.approximate_num_entries() == 2
    assert list(store.range("b", None)) == [("b", "B")]
    assert list(store.reverse_all()) == [("a", "A"), ("b", "B")]
    assert list(store.prefix_scan("a", STRING)) == [("a", "A")]


def test_a_key_of_none_is_rejected_without_partitions_too() -> None:
    for call in (lambda: key_value_store().get(None), lambda: key_value_store().prefix_scan(None, STRING)):
        with pytest.raises(TypeError, match="Store 's': key must not be None"):
            call()
    with pytest.raises(TypeError, match="key must not be None"):
        CompositeReadOnlyWindowStore("s", lambda _: []).fetch(None, 0)


def test_each_call_uses_the_current_stores() -> None:
    current = [key_values("a")]
    store = CompositeReadOnlyKeyValueStore("s", lambda _: [(each, as_it_is) for each in current])
    entries = store.all()
    current.append(key_values("b"))
    assert list(entries) == [("a", "A")]
    assert store.get("b") == "B"


def test_a_store_is_read_at_its_isolation_level() -> None:
    at = {None: "default", IsolationLevel.READ_UNCOMMITTED: "a", IsolationLevel.READ_COMMITTED: "b"}
    store = CompositeReadOnlyKeyValueStore("s", lambda level: [(key_values(at[level]), as_it_is)])
    committed = store.read_only(IsolationLevel.READ_COMMITTED)
    assert [list(each.all()) for each in (store, committed, committed.read_only(IsolationLevel.READ_UNCOMMITTED))] == [
        [("default", "DEFAULT")],
        [("b", "B")],
        [("a", "A")],
    ]
    none: Any = None
    with pytest.raises(TypeError, match="Expected an IsolationLevel, got None"):
        store.read_only(none)


def test_windows_and_sessions_of_all_partitions_are_read() -> None:
    window_store = CompositeReadOnlyWindowStore("s", lambda _: [(windows("a"), as_it_is), (windows("b"), as_it_is)])
    assert window_store.fetch("b", 0) == ValueAndTimestamp("B", 5)
    assert list(window_store.fetch("b", 0, LONG_MAX)) == [(0, ValueAndTimestamp("B", 5))]
    assert [key.key for key, _ in window_store.fetch_all(0, 0)] == ["a", "b"]
    session_store = CompositeReadOnlySessionStore("s", lambda _: [(sessions("a"), as_it_is), (sessions("b"), as_it_is)])
    assert session_store.fetch_session("b", 1, 2) == AggregationWithHeaders("B", HEADERS)
    assert [key.key for key, _ in session_store.fetch_range(None, None)] == ["a", "b"]


def test_a_composite_store_is_open_and_only_read() -> None:
    store = key_value_store()
    assert (store.name, store.is_open(), store.persistent()) == ("s", True, False)
    for call in (store.flush, store.close):
        with pytest.raises(UnsupportedOperationError, match="Store s can only be read here"):
            call()
