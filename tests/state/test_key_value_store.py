"""Key-value stores as users and tasks see them, over each base, with and without a record cache, against a plain
dict."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.record import NO_TIMESTAMP, ValueAndTimestamp
from penstock.serdes import Serdes
from penstock.state.api import FlushedEntries
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.stores import Stores
from penstock_broker.common.log_limits import forget_lines
from tests.support.stores import CONTEXT, build, fill, text_store


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


def test_entries_may_be_deleted_while_all_are_read(store: TypedKeyValueStore) -> None:
    fill(store, *"abcdef")
    seen = []
    for key, _ in store.all():
        seen.append(key)
        store.delete(key)
    assert seen == list("abcdef")
    assert list(store.all()) == []


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
