"""Key-value stores as users and tasks see them, over each base, with and without a record cache, against a plain
dict."""

from __future__ import annotations

import gc
import logging
import pickle
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.errors import ConfigError, InvalidStateStoreError, StreamsError
from penstock.metrics.host_metrics import ITERATOR_DURATION as DURATION
from penstock.metrics.host_metrics import OLDEST_ITERATOR, OPEN_ITERATORS
from penstock.metrics.measurements import NOTHING, Measurement
from penstock.metrics.observer import RecordingObserver
from penstock.record import NO_TIMESTAMP, ValueAndTimestamp
from penstock.serdes import Serdes
from penstock.state.api import FlushedEntries, RecordContext, StoreBuilder
from penstock.state.build import StoreServices, build_store
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.stores import Stores
from penstock.state.suppliers import KeyValueBytesStoreSupplier
from penstock_broker.common.log_limits import forget_lines

TEXT = Serdes.string()
CONFIG = StreamsConfig({"application.id": "app"}, environment={})
CONTEXT = RecordContext(7, (), "topic", 0, 3)


def build(
    builder: StoreBuilder, base: MemoryBase | None = None, cache: RecordCache | None = None
) -> TypedKeyValueStore:
    return build_store(
        builder,
        CONFIG,
        (base or MemoryBase()).view(builder.name),
        cache or RecordCache(10_000_000),
        lambda: CONTEXT,
        {},
    )


def text_store(in_memory: bool = True, caching: bool = False) -> StoreBuilder:
    supplier = Stores.in_memory_key_value_store("s") if in_memory else Stores.persistent_key_value_store("s")
    builder = Stores.key_value_store_builder(supplier, Serdes.string(), Serdes.string())
    return builder.with_caching_enabled() if caching else builder


@pytest.fixture(params=["memory", "memory-cached", "persistent", "persistent-cached"])
def store(request: pytest.FixtureRequest) -> TypedKeyValueStore:
    return build(text_store("memory" in request.param, "cached" in request.param))


def fill(store: TypedKeyValueStore, *keys: str) -> None:
    for key in keys:
        store.put(key, key.upper())


def test_get_put_delete(store: TypedKeyValueStore) -> None:
    assert store.get("a") is None
    store.put("a", "1")
    assert store.get("a") == "1"
    assert store.put_if_absent("a", "2") == "1"
    assert store.put_if_absent("b", "2") is None
    assert store.delete("a") == "1"
    assert store.delete("a") is None
    assert store.get("a") is None
    store.put_all([("c", "3"), ("d", "4")])
    assert list(store.all()) == [("b", "2"), ("c", "3"), ("d", "4")]
    store.put("c", None)
    assert list(store.reverse_all()) == [("d", "4"), ("b", "2")]


def test_ranges_are_inclusive_and_open_at_none(store: TypedKeyValueStore) -> None:
    fill(store, "b", "a", "c", "ca", "d")
    assert [key for key, _ in store.range("b", "c")] == ["b", "c"]
    assert [key for key, _ in store.range(None, "b")] == ["a", "b"]
    assert [key for key, _ in store.range("ca", None)] == ["ca", "d"]
    assert [key for key, _ in store.reverse_range("b", "d")] == ["d", "ca", "c", "b"]
    assert [key for key, _ in store.prefix_scan("c", Serdes.string())] == ["c", "ca"]
    assert [key for key, _ in store.prefix_scan(b"\xff", Serdes.bytes())] == []


def test_a_range_from_above_its_end_is_empty_and_warns(
    store: TypedKeyValueStore, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, "a", "b")
    with caplog.at_level(logging.WARNING):
        assert list(store.range("b", "a")) == []
        forget_lines()  # or the second would be counted with the first
        assert list(store.reverse_range("b", "a")) == []
    assert len(caplog.records) == 2
    assert "'b' > 'a'" in caplog.text


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


def test_entries_may_be_deleted_while_all_are_read(store: TypedKeyValueStore) -> None:
    fill(store, *"abcdef")
    seen = []
    for key, _ in store.all():
        seen.append(key)
        store.delete(key)
    assert seen == list("abcdef")
    assert list(store.all()) == []


def test_an_iterator_over_memory_shows_the_values_of_now() -> None:
    store = build(text_store(in_memory=True))
    fill(store, "a", "b", "c")
    entries = store.all()
    next(entries)
    store.delete("b")
    store.put("c", "new")
    store.put("d", "late")
    assert list(entries) == [("c", "new")]


def test_an_iterator_over_a_persistent_store_is_a_snapshot() -> None:
    store = build(text_store(in_memory=False))
    fill(store, "a", "b", "c")
    entries = store.all()
    next(entries)
    store.delete("b")
    store.put("c", "new")
    store.put("d", "late")
    assert list(entries) == [("b", "B"), ("c", "C")]


def test_wrong_types_name_the_store() -> None:
    store = build(text_store())
    with pytest.raises(StreamsError, match="Store 's' cannot write key 5 with StringSerde"):
        store.get(5)
    with pytest.raises(StreamsError, match="Store 's' cannot write value 5"):
        store.put("a", 5)


def test_serdes_of_none_are_the_defaults_or_an_error() -> None:
    builder = StoreBuilder(KeyValueBytesStoreSupplier("s", True))
    with pytest.raises(ConfigError, match=r"Store 's' has no key serde.*default.key.serde"):
        build(builder)
    config = StreamsConfig({"default.key.serde": Serdes.string(), "default.value.serde": Serdes.long()}, environment={})
    store = build_store(builder, config, MemoryBase().view("s"), RecordCache(0), lambda: CONTEXT, {})
    store.put("a", 5)
    assert store.changes() == {b"a": (5).to_bytes(8, "big")}


@pytest.mark.parametrize(
    "builder",
    [
        Stores.timestamped_key_value_store_builder(Stores.persistent_timestamped_key_value_store("s"), TEXT, TEXT),
        Stores.timestamped_window_store_builder(
            Stores.persistent_timestamped_window_store("s", 5_000, 1_000, False), TEXT, TEXT
        ),
        Stores.window_store_builder(Stores.persistent_window_store("s", 5_000, 1_000, True), TEXT, TEXT),
        Stores.session_store_builder(Stores.persistent_session_store("s", 5_000), TEXT, TEXT),
    ],
    ids=["key value", "window", "duplicates", "session"],
)
def test_a_store_that_is_let_go_leaves_its_base_at_once(builder: StoreBuilder) -> None:
    view = MemoryBase().view("s")
    held = sys.getrefcount(view)
    gc.collect()
    gc.disable()
    try:
        built = build_store(builder, CONFIG, view, RecordCache(0), lambda: CONTEXT, {})
        assert sys.getrefcount(view) > held
        del built
        assert sys.getrefcount(view) == held
    finally:
        gc.enable()


def test_an_unknown_kind_is_refused() -> None:
    class Lists(NamedTuple):
        name: str
        kind: str
        in_memory: bool

    with pytest.raises(ConfigError, match=r"unknown kind 'lists'.*a supplier of `Stores`"):
        build(StoreBuilder(Lists("s", "lists", True), Serdes.string(), Serdes.string()))


def test_a_timestamped_value_is_eight_bytes_of_time_and_the_value() -> None:
    supplier = Stores.persistent_timestamped_key_value_store("s")
    store = build(Stores.timestamped_key_value_store_builder(supplier, Serdes.string(), Serdes.string()))
    store.put("a", ValueAndTimestamp("x", 258))
    assert store.changes() == {b"a": b"\0\0\0\0\0\0\x01\x02x"}
    assert store.get("a") == ValueAndTimestamp("x", 258)
    assert list(store.all()) == [("a", ValueAndTimestamp("x", 258))]
    store.put("a", ValueAndTimestamp(None, 300))
    assert store.get("a") is None
    with pytest.raises(TypeError, match="Store 's' holds ValueAndTimestamp, not str 'plain'"):
        store.put("a", "plain")


@pytest.mark.parametrize("caching", [False, True])
def test_columns_read_and_write_as_one_by_one(caching: bool) -> None:
    supplier = Stores.persistent_timestamped_key_value_store("s")
    builder = Stores.timestamped_key_value_store_builder(supplier, Serdes.string(), Serdes.long())
    base = MemoryBase()
    base.apply({"s": {b"old": b"\0" * 15 + b"\x09"}}, b"1")
    store = build(builder.with_caching_enabled() if caching else builder, base)
    keys = store.serialize_keys(["b", "a", None, "b"])
    assert keys == [b"b", b"a", None, b"b"]
    store.put_columns([b"b", b"a", b"b"], [1, None, 2], np.array([10, 5, 11]), [CONTEXT] * 3)
    values, timestamps = store.get_columns([b"a", b"b", b"old"])
    assert (values, timestamps.tolist()) == ([None, 2, 9], [NO_TIMESTAMP, 11, 0])
    assert store.deserialize_keys([b"b", b"a"]) == ["b", "a"]
    assert store.get("b") == ValueAndTimestamp(2, 11)
    store.flush()
    assert store.changes().keys() == {b"a", b"b"}


def test_a_builder_is_plain_data() -> None:
    builder = text_store().with_caching_enabled().with_logging_enabled({"retention.ms": "5"})
    assert (builder.caching, builder.logging, builder.changelog_config) == (True, True, {"retention.ms": "5"})
    again = pickle.loads(pickle.dumps(builder)).with_logging_disabled().with_caching_disabled()
    assert (again.caching, again.logging, dict(again.changelog_config)) == (False, False, {})


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


def test_without_cache_bytes_a_store_is_not_cached() -> None:
    assert build(text_store(caching=True)).cached
    assert not build(text_store(caching=True), cache=RecordCache(0)).cached


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("cache_bytes", [0, 150, 10_000])
@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.text("abc", max_size=3), st.none() | st.text("xy", max_size=2)),
            st.tuples(st.just("get"), st.text("abc", max_size=3), st.none()),
            st.tuples(st.just("range"), st.none() | st.text("abc", max_size=2), st.none() | st.text("abc", max_size=2)),
            st.tuples(st.just("commit"), st.none(), st.none()),
            st.tuples(st.just("abort"), st.none(), st.none()),
        ),
        max_size=40,
    )
)
def test_any_use_is_that_of_a_dict(in_memory: bool, cache_bytes: int, steps: list[tuple[str, Any, Any]]) -> None:
    """Reads see all writes; a commit moves them to the base; an abort (a new store over the base) loses just them;
    updates fold to the content."""
    base, number = MemoryBase(), 0
    model: dict[str, str] = {}
    committed: dict[str, str] = {}
    forwarded: dict[bytes, bytes | None] = {}

    def listen(entries: FlushedEntries) -> None:
        assert entries.old_values is not None
        for key, new, old in zip(entries.keys, entries.new_values, entries.old_values, strict=True):
            assert old == forwarded.get(key)
            forwarded[key] = new

    def make() -> TypedKeyValueStore:
        made = build(text_store(in_memory, caching=True), base, RecordCache(cache_bytes))
        made.set_flush_listener(listen, True)
        return made

    store = make()
    for action, first, second in steps:
        if action == "put":
            store.put(first, second)
            model.pop(first, None)
            if second is not None:
                model[first] = second
        elif action == "get":
            assert store.get(first) == model.get(first)
        elif action == "range":
            chosen = sorted(
                item
                for item in model.items()
                if (first is None or first <= item[0]) and (second is None or item[0] <= second)
            )
            assert list(store.range(first, second)) == chosen
            assert list(store.reverse_range(first, second)) == chosen[::-1]
        elif action == "commit":
            store.flush()
            number += 1
            base.apply({"s": store.changes()}, str(number).encode())
            store.clear_changes()
            committed = dict(model)
            assert store.approximate_num_entries() == len(model)
            if cache_bytes:
                assert {key.decode(): value.decode() for key, value in forwarded.items() if value is not None} == model
        else:
            store = make()
            model = dict(committed)
            forwarded = {key.encode(): value.encode() for key, value in committed.items()}
    assert list(store.all()) == sorted(model.items())
    assert base.stamp() == (str(number).encode() if number else None)
