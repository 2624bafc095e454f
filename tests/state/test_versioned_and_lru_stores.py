"""Versioned stores and stores of the keys used last against plain models, over commits and restarts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.serdes import Serdes
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import StoreServices, build_store
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.stores import Stores, default_segment_interval_ms
from penstock.state.versioned_api import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    VersionedRecord,
)

CONFIG = StreamsConfig({"application.id": "app"}, environment={})
CONTEXT = RecordContext(7, (), "topic", 0, 3)
STRING = Serdes.string()
KEYS = ("a", "a\0", "ab")


class Task:
    """One store over a base that outlives it."""

    def __init__(self, builder: StoreBuilder) -> None:
        self.builder = builder
        self.base = MemoryBase()
        self.metadata: dict[str, int] = {}
        self.dropped: list[int] = []
        self.store: Any = None
        self.build()

    def build(self) -> None:
        """Build the store over what was committed."""
        self.store = build_store(
            self.builder,
            CONFIG,
            self.base.view(self.builder.name),
            RecordCache(10_000),
            lambda: CONTEXT,
            self.metadata,
            StoreServices(self.dropped.append),
        )

    def restart(self) -> None:
        """Commit, and build the store again."""
        self.store.flush()
        self.base.apply({self.builder.name: self.store.changes()}, b"stamp")
        self.build()


class Versions:
    """Versions by key and time; None if the value ends."""

    def __init__(self, history: int) -> None:
        self.history = history
        self.clock = -1
        self.known: dict[str, dict[int, str | None]] = {key: {} for key in KEYS}

    def put(self, key: str, value: str | None, time: int) -> int:
        """Put a version; return until when it is valid."""
        if time < self.clock - self.history:
            return PUT_RETURN_CODE_NOT_PUT
        self.clock = max(self.clock, time)
        self.known[key][time] = value
        return min((other for other in self.known[key] if other > time), default=PUT_RETURN_CODE_VALID_TO_UNDEFINED)

    def get(self, key: str, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest version, or that of a time."""
        known = self.known[key]
        if not known:
            return None
        latest = max(known)
        found = max((time for time in known if as_of is None or time <= as_of), default=None)
        if found is None or (as_of is not None and as_of < self.clock - self.history and found != latest):
            return None
        value = known[found]
        return None if value is None else VersionedRecord(value, found)


TIMES = st.integers(0, 60)


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from(KEYS), TIMES, st.none() | st.sampled_from("xyz"))
        | st.tuples(st.just("restart")),
        max_size=30,
    ),
    st.sampled_from([0, 1, 10, 30]),
    st.sampled_from([1, 7, None]),
)
def test_a_versioned_store_knows_what_was_valid_when(steps: list[Any], history: int, interval: int | None) -> None:
    supplier = Stores.persistent_versioned_key_value_store("v", history, interval)
    task, model = Task(Stores.versioned_key_value_store_builder(supplier, STRING, STRING)), Versions(history)
    for step in steps:
        match step:
            case ("restart",):
                task.restart()
            case (_, key, time, None) if time in model.known[key]:
                continue  # a value that ends when it begins: what is known of that depends on what was before it
            case ("put", key, time, value):
                assert task.store.put(key, value, time) == model.put(key, value, time)
            case ("delete", key, time, _):
                if time in model.known[key]:
                    continue
                before = None if time < model.clock - history else model.get(key, time)
                assert task.store.delete(key, time) == before
                model.put(key, None, time)
        for key in KEYS:
            assert task.store.get(key) == model.get(key)
    for key in KEYS:
        for as_of in range(0, 61, 3):
            assert task.store.get(key, as_of) == model.get(key, as_of)


def test_a_version_that_comes_too_late_is_dropped() -> None:
    supplier = Stores.persistent_versioned_key_value_store("v", 10)
    task = Task(Stores.versioned_key_value_store_builder(supplier, STRING, STRING))
    task.store.put("a", "1", 100)
    assert task.store.put("a", "0", 89) == PUT_RETURN_CODE_NOT_PUT
    assert task.store.delete("a", 89) is None
    assert task.dropped == [1, 1]
    assert task.store.put("a", "0", 90) == 100


def test_old_versions_are_removed_from_the_base() -> None:
    supplier = Stores.persistent_versioned_key_value_store("v", 10, 5)
    task = Task(Stores.versioned_key_value_store_builder(supplier, STRING, STRING))
    for time in range(50):
        task.store.put("a", str(time), time)
    task.restart()
    assert task.base.view("v").approximate_num_entries() < 20
    assert task.store.get("a", 40) == VersionedRecord("40", 40)
    assert task.store.get("a", 38) is None


@pytest.mark.parametrize(
    ("history", "interval"),
    [(0, 2_000), (60_000, 20_000), (300_000, 60_000), (3_600_000, 300_000), (86_400_000, 3_600_000)],
)
def test_the_segments_of_a_history_are_a_share_of_it(history: int, interval: int) -> None:
    assert default_segment_interval_ms(history) == interval


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "get", "all"]), st.sampled_from("abcde"), st.none() | st.sampled_from("xyz"))
        | st.tuples(st.just("restart")),
        max_size=40,
    ),
    st.integers(0, 4),
)
def test_the_keys_used_last_are_kept(steps: list[Any], most: int) -> None:
    task = Task(Stores.key_value_store_builder(Stores.lru_map("l", most), STRING, STRING))
    model: OrderedDict[str, str] = OrderedDict()
    for step in steps:
        match step:
            case ("restart",):
                task.restart()
            case ("put", key, None):
                task.store.put(key, None)
                model.pop(key, None)
            case ("put", key, value):
                task.store.put(key, value)
                model[key] = value
                model.move_to_end(key)
                if len(model) > most:
                    model.popitem(last=False)
            case ("get", key, _):
                assert task.store.get(key) == model.get(key)
                if key in model:
                    model.move_to_end(key)
            case _:
                assert list(task.store.all()) == sorted(model.items())
        assert task.store.approximate_num_entries() == len(model)


def test_stores_check_their_arguments_as_kafka_does() -> None:
    refused: list[tuple[Any, str]] = [
        (lambda: Stores.lru_map("s", -1), "maxCacheSize cannot be negative"),
        (lambda: Stores.persistent_window_store("s", -1, 0, False), "retentionPeriod cannot be negative"),
        (lambda: Stores.in_memory_window_store("s", 1, -1, False), "windowSize cannot be negative"),
        (
            lambda: Stores.persistent_timestamped_window_store("s", 1, 2, False),
            r"window store s must be no smaller than its window size. Got size=\[2\], retention=\[1\]",
        ),
        (lambda: Stores.in_memory_session_store("s", -1), "retentionPeriod cannot be negative"),
        (lambda: Stores.persistent_session_store("s", -1), "retentionPeriod cannot be negative"),
        (lambda: Stores.persistent_versioned_key_value_store("s", -1), "historyRetention cannot be negative"),
        (lambda: Stores.persistent_versioned_key_value_store("s", 1, 0), "segmentInterval cannot be zero or negative"),
    ]
    for call, text in refused:
        with pytest.raises(ValueError, match=text):
            call()
    nothing: Any = None
    with pytest.raises(TypeError, match="name cannot be null"):
        Stores.persistent_window_store(nothing, 1, 1, False)
    with pytest.raises(TypeError, match="supplier cannot be null"):
        Stores.window_store_builder(nothing, STRING, STRING)


def test_versions_are_not_cached() -> None:
    supplier = Stores.persistent_versioned_key_value_store("s", 100)
    builder = Stores.versioned_key_value_store_builder(supplier, Serdes.string(), Serdes.string())
    with pytest.raises(RuntimeError, match="Versioned stores do not support caching"):
        builder.with_caching_enabled()
