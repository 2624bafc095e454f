"""The common part of typed stores: keys, iterators, closing and metrics."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from penstock.config.isolation_level import IsolationLevel
from penstock.errors import InvalidStateStoreError, StreamsError
from penstock.metrics.host_metrics import ITERATOR_DURATION as DURATION
from penstock.metrics.host_metrics import OLDEST_ITERATOR, OPEN_ITERATORS
from penstock.metrics.measurements import NOTHING, Measurement
from penstock.metrics.observer import RecordingObserver
from penstock.serdes import Serdes
from penstock.state.build import StoreServices, build_store
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from tests.support.stores import CONFIG, CONTEXT, build, fill, text_store


def test_a_none_key_is_refused_by_name(store: TypedKeyValueStore) -> None:
    calls: list[Any] = [
        store.get,
        store.delete,
        lambda key: store.put(key, "v"),
        lambda key: store.put_all([(key, "v")]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"^key cannot be null"):
            call(None)
    with pytest.raises(TypeError, match=r"^prefix cannot be null"):
        store.prefix_scan(None, Serdes.string())


def test_a_closed_store_is_refused(store: TypedKeyValueStore) -> None:
    fill(store, "a")
    iterator = store.all()
    store.close()
    assert not store.is_open()
    for call in (
        lambda: store.get("a"),
        lambda: store.put("a", "b"),
        store.all,
        store.approximate_num_entries,
        iterator.__next__,
    ):
        with pytest.raises(InvalidStateStoreError, match="Store 's'"):
            call()


def test_an_iterator_peeks_and_closes(store: TypedKeyValueStore) -> None:
    fill(store, "a", "b")
    with store.all() as entries:
        assert entries.peek_next_key() == "a"
        assert next(entries).value == "A"
        assert entries.peek_next_key() == "b"
        assert next(entries).key == "b"
        with pytest.raises(StopIteration):
            entries.peek_next_key()
    with pytest.raises(InvalidStateStoreError, match="iterator is closed"):
        next(entries)


def test_wrong_types_name_the_store() -> None:
    store = build(text_store())
    with pytest.raises(StreamsError, match="Store 's' cannot write key 5 with StringSerde"):
        store.get(5)
    with pytest.raises(StreamsError, match="Store 's' cannot write value 5"):
        store.put("a", 5)


def test_a_store_below_its_cache_does_not_report_the_calls_of_the_store() -> None:
    observer = RecordingObserver(lambda: 0, lambda: 0)
    view, cache = MemoryBase().view("s"), RecordCache(10_000_000, observer)
    store: Any = build_store(
        text_store(caching=True), CONFIG, view, cache, lambda: CONTEXT, {}, StoreServices(observer=observer)
    )
    store.put("a", "1")
    assert (store.beneath_cache().get("a"), store.get("a")) == (None, "1")
    assert {name: measured.number for name, measured in observer.take().items()} == {
        "put/in-memory-state-id/s": 1,
        "get/in-memory-state-id/s": 1,
        "hit-ratio/record-cache-id/s": 1,
    }


def test_an_iterator_is_measured_from_its_opening_to_its_end() -> None:
    now = [0]
    observer = RecordingObserver(lambda: now[0], lambda: 1_000 + now[0])
    store: Any = build_store(
        text_store(),
        CONFIG,
        MemoryBase().view("s"),
        RecordCache(0),
        lambda: CONTEXT,
        {},
        StoreServices(observer=observer),
    )

    def iterators() -> tuple[float, float, Measurement]:
        found = observer.take()
        open_, oldest, duration = (
            found.get(f"{name}/in-memory-state-id/s", NOTHING) for name in (OPEN_ITERATORS, OLDEST_ITERATOR, DURATION)
        )
        return open_.total, oldest.total, duration

    store.put("a", "1")
    first = store.all()
    now[0] = 10
    second = store.range("a", "b")
    assert iterators() == (2, 1_000, NOTHING)
    now[0] = 30
    first.close()
    first.close()
    assert iterators() == (1, 1_010, Measurement(1, 30.0, 30.0, 30.0))
    assert [each.key for each in second] == ["a"]
    assert iterators() == (0, 0, Measurement(1, 20.0, 20.0, 20.0))


def test_readers_see_all_writes_and_leave_the_cache_as_it_is() -> None:
    cache = RecordCache(10_000)
    store = build(text_store(caching=True), cache=cache)
    fill(store, "a")
    store.flush()
    reader = store.for_readers(nullcontext)
    size = cache.size_bytes
    fill(store, "b")
    assert list(reader.all()) == [("a", "A"), ("b", "B")]
    assert (reader.get("a"), reader.get("c"), reader.approximate_num_entries()) == ("A", None, 1)
    assert cache.size_bytes > size
    store.close()
    assert reader.is_open()  # the guard closes a reader, not the store of the task


def test_a_task_sees_its_own_writes_at_each_level(store: TypedKeyValueStore) -> None:
    wrong: Any = "READ_COMMITTED"
    store.put("a", "1")
    for level in IsolationLevel:
        assert store.read_only(level) is store
    with pytest.raises(TypeError, match="Expected an IsolationLevel, got 'READ_COMMITTED'"):
        store.read_only(wrong)


def test_uncommitted_bytes_grow_with_writes_until_the_commit() -> None:
    store = build(text_store())
    assert store.approximate_num_uncommitted_bytes() == 0
    store.put("a", "1" * 1_000)
    grown = store.approximate_num_uncommitted_bytes()
    assert grown > 1_000
    store.put("b", "1")
    assert store.approximate_num_uncommitted_bytes() > grown
    store.clear_changes()
    assert store.approximate_num_uncommitted_bytes() == 0
    cached = build(text_store().with_caching_enabled())
    cached.put("a", "1")
    assert cached.approximate_num_uncommitted_bytes() == 0
    cached.flush()
    assert cached.approximate_num_uncommitted_bytes() > 0
