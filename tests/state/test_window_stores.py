"""Window and session stores against plain dicts: on disk and in memory, over commits and restarts, with and without a
record cache."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError
from penstock.record import ValueAndTimestamp
from penstock.serdes import Serdes
from penstock.state.api import FlushedEntries, RecordContext, StoreBuilder
from penstock.state.build import StoreServices, build_store
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.segmented import EXPIRED_PER_FLUSH
from penstock.state.session_store import TypedSessionStore
from penstock.state.stores import Stores
from penstock.state.window_store import TypedWindowStore
from penstock.windows import LONG_MAX, SessionWindow, TimeWindow, Windowed

CONFIG = StreamsConfig({"application.id": "app"}, environment={})
CONTEXT = RecordContext(7, (), "topic", 0, 3)
STRING = Serdes.string()
RETENTION, INTERVAL, SIZE = 100_000, 60_000, 10
KEYS = ("a", "a\0", "ab", "b")
TIMES = st.integers(0, 15).map(lambda tick: tick * 20_000) | st.sampled_from([1, 59_999, 100_001])


class Task:
    """One store over a base that outlives it."""

    def __init__(self, builder: StoreBuilder) -> None:
        self.builder = builder
        self.base = MemoryBase()
        self.metadata: dict[str, int] = {}
        self.dropped = 0
        self.store: Any = None
        self.restart()

    def restart(self) -> None:
        """Build the store again over the committed entries."""
        self.store = build_store(
            self.builder,
            CONFIG,
            self.base.view(self.builder.name),
            RecordCache(10_000_000),
            lambda: CONTEXT,
            self.metadata,
            StoreServices(self._drop),
        )

    def _drop(self, records: int) -> None:
        self.dropped += records

    def commit(self) -> None:
        """Flush, and apply the changes to the base."""
        self.store.flush()
        self.base.apply({self.builder.name: self.store.changes()}, b"stamp")
        self.store.clear_changes()


def window_builder(in_memory: bool = False, duplicates: bool = False) -> StoreBuilder:
    make = Stores.in_memory_window_store if in_memory else Stores.persistent_window_store
    return Stores.window_store_builder(make("w", RETENTION, SIZE, duplicates), STRING, STRING)


def session_builder(in_memory: bool = False) -> StoreBuilder:
    make = Stores.in_memory_session_store if in_memory else Stores.persistent_session_store
    return Stores.session_store_builder(make("s", RETENTION), STRING, STRING)


class Model:
    """What a store without a cache holds: id -> value, where an id is a key, its time and what else belongs to it."""

    def __init__(self, in_memory: bool) -> None:
        self.in_memory = in_memory
        self.entries: dict[tuple[str, int, int], str] = {}
        self.clock = -1
        self.dropped = 0

    def put(self, id_: tuple[str, int, int], value: str | None) -> None:
        """Write or delete an entry unless it comes too late."""
        self.clock = max(self.clock, id_[1])
        limit = self.clock - RETENTION
        late = id_[1] <= limit if self.in_memory else id_[1] // INTERVAL < max(limit, 0) // INTERVAL
        if late:
            self.dropped += 1
        elif value is None:
            self.entries.pop(id_, None)
        else:
            self.entries[id_] = value

    def live(self) -> list[tuple[tuple[str, int, int], str]]:
        """Return the entries that have not expired, in the order of the store."""
        found = [(id_, value) for id_, value in self.entries.items() if id_[1] > self.clock - RETENTION]
        if self.in_memory:
            return sorted(found, key=lambda entry: (entry[0][1], entry[0][0], -entry[0][2]))  # the latest start first
        return sorted(found, key=lambda entry: (entry[0][1] // INTERVAL, *_disk_order(entry[0])))


def _disk_order(id_: tuple[str, int, int]) -> tuple[bytes, ...]:
    key, time, other = id_
    return (key.encode() + time.to_bytes(8, "big") + other.to_bytes(8, "big"),)


STEPS = st.lists(
    st.tuples(st.just("put"), st.sampled_from(KEYS), TIMES, st.none() | st.sampled_from("xyz"))
    | st.tuples(st.just("commit"))
    | st.tuples(st.just("restart")),
    max_size=25,
)


def windowed(id_: tuple[str, int, int]) -> Windowed[str]:
    return Windowed(id_[0], TimeWindow(id_[1], id_[1] + SIZE))


@given(STEPS, st.booleans(), st.sampled_from(KEYS), st.sampled_from(KEYS), TIMES, TIMES)
def test_a_window_store_holds_what_a_dict_would(
    steps: list[Any], in_memory: bool, key: str, other: str, time_from: int, time_to: int
) -> None:
    task, model = Task(window_builder(in_memory)), Model(in_memory)
    for step in steps:
        match step:
            case ("put", put_key, start, value):
                task.store.put(put_key, value, start)
                model.put((put_key, start, 0), value)
            case ("commit",):
                task.commit()
            case _:
                task.commit()
                task.restart()
    store, live = task.store, model.live()
    assert list(store.all()) == [(windowed(id_), value) for id_, value in live]
    assert list(store.backward_all()) == [(windowed(id_), value) for id_, value in reversed(live)]
    within = [(id_, value) for id_, value in live if time_from <= id_[1] <= time_to]
    assert list(store.fetch_all(time_from, time_to)) == [(windowed(id_), value) for id_, value in within]
    assert list(store.backward_fetch_all(time_from, time_to)) == [(windowed(id_), v) for id_, v in reversed(within)]
    of_key = sorted((id_[1], value) for id_, value in within if id_[0] == key)
    assert list(store.fetch(key, time_from, time_to)) == of_key
    assert list(store.backward_fetch(key, time_from, time_to)) == of_key[::-1]
    between = [(windowed(id_), value) for id_, value in within if key.encode() <= id_[0].encode() <= other.encode()]
    assert list(store.fetch_range(key, other, time_from, time_to)) == between
    assert list(store.backward_fetch_range(key, other, time_from, time_to)) == between[::-1]
    upwards = [(windowed(id_), value) for id_, value in within if key <= id_[0]]
    assert list(store.fetch_range(key, None, time_from, time_to)) == upwards
    assert store.fetch(key, time_from) == dict(live).get((key, time_from, 0))
    assert task.dropped == model.dropped


@given(STEPS, st.booleans(), st.sampled_from(KEYS), TIMES, TIMES)
def test_a_record_cache_shows_all_that_it_holds_and_the_store_beneath_what_has_not_expired(
    steps: list[Any], in_memory: bool, key: str, time_from: int, time_to: int
) -> None:
    task, model = Task(window_builder(in_memory).with_caching_enabled()), Model(in_memory)
    written: dict[tuple[str, int, int], str] = {}
    dirty: dict[tuple[str, int, int], str | None] = {}
    for step in steps:
        match step:
            case ("put", put_key, start, value):
                task.store.put(put_key, value, start)
                dirty.pop((put_key, start, 0), None)
                dirty[put_key, start, 0] = value
                written.pop((put_key, start, 0), None)
                if value is not None:
                    written[put_key, start, 0] = value
            case _:
                task.commit()
                for id_, value in dirty.items():
                    model.put(id_, value)
                dirty.clear()
    found = list(task.store.fetch_range(None, None, 0, LONG_MAX))
    assert len(found) == len(written)
    assert {*found} == {*task.store.all()} == {(windowed(id_), value) for id_, value in written.items()}
    of_key = sorted((id_[1], v) for id_, v in written.items() if id_[0] == key and time_from <= id_[1] <= time_to)
    assert list(task.store.fetch(key, time_from, time_to)) == of_key
    assert task.store.fetch(key, time_from) == written.get((key, time_from, 0))
    assert list(task.store.beneath_cache().all()) == [(windowed(id_), value) for id_, value in model.live()]


SESSIONS = st.tuples(TIMES, TIMES).map(lambda ends: (min(ends), max(ends)))


@given(
    st.lists(
        st.tuples(st.just("put"), st.sampled_from(KEYS), SESSIONS, st.none() | st.sampled_from("xyz"))
        | st.tuples(st.just("restart")),
        max_size=25,
    ),
    st.booleans(),
    st.sampled_from(KEYS),
    st.sampled_from(KEYS),
    TIMES,
    TIMES,
)
def test_a_session_store_holds_what_a_dict_would(
    steps: list[Any], in_memory: bool, key: str, other: str, earliest_end: int, latest_start: int
) -> None:
    task, model = Task(session_builder(in_memory)), Model(in_memory)
    for step in steps:
        match step:
            case ("put", put_key, (start, end), value):
                task.store.put(Windowed(put_key, SessionWindow(start, end)), value)
                model.put((put_key, end, start), value)
            case _:
                task.commit()
                task.restart()
    store, live = task.store, model.live()

    def sessions(entries: Iterable[tuple[tuple[str, int, int], str]]) -> list[Any]:
        return [(Windowed(id_[0], SessionWindow(id_[2], id_[1])), value) for id_, value in entries]

    assert list(store.fetch_range(None, None)) == sessions(live)
    assert list(store.backward_fetch_range(None, None)) == sessions(live)[::-1]
    of_key = [(id_, v) for id_, v in live if id_[0] == key]
    assert list(store.fetch(key)) == sessions(of_key)
    assert list(store.backward_fetch(key)) == sessions(of_key)[::-1]
    found = sessions((id_, v) for id_, v in of_key if id_[1] >= earliest_end and id_[2] <= latest_start)
    assert list(store.find_sessions(key, earliest_end, latest_start)) == found
    assert list(store.backward_find_sessions(key, earliest_end, latest_start)) == found[::-1]
    between = sessions(
        (id_, v)
        for id_, v in live
        if key.encode() <= id_[0].encode() <= other.encode() and id_[1] >= earliest_end and id_[2] <= latest_start
    )
    assert list(store.find_sessions_range(key, other, earliest_end, latest_start)) == between
    by_time = [entry for entry in live if earliest_end <= entry[0][1] <= latest_start]
    assert {*store.find_sessions_by_time(earliest_end, latest_start)} >= {*sessions(by_time)}  # some have expired
    assert store.fetch_session(key, latest_start, earliest_end) == dict(live).get((key, earliest_end, latest_start))
    assert task.dropped == model.dropped


@pytest.mark.parametrize("caching", [False, True])
def test_a_removed_session_is_gone(caching: bool) -> None:
    builder = session_builder()
    task = Task(builder.with_caching_enabled() if caching else builder)
    first, second = Windowed("a", SessionWindow(1, 5)), Windowed("a", SessionWindow(7, 9))
    task.store.put(first, "x")
    task.store.put(second, "y")
    task.commit()
    task.store.remove(first)
    assert list(task.store.fetch("a")) == [(second, "y")]
    assert list(task.store.fetch_range(None, None)) == [(second, "y")]
    task.commit()
    task.restart()
    assert list(task.store.fetch("a")) == [(second, "y")]
    assert task.dropped == 0


@pytest.mark.parametrize("in_memory", [False, True])
def test_duplicates_are_all_kept_over_restarts(in_memory: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        task = Task(window_builder(in_memory, duplicates=True).with_caching_enabled())
    assert not task.store.cached
    assert "Disabling caching for w " in caplog.text
    task.store.put("a", "1", 5)
    task.store.put("a", "2", 5)
    task.commit()
    task.restart()
    task.store.put("a", "3", 5)
    task.store.put("a", None, 5)
    assert list(task.store.fetch("a", 0, 10)) == [(5, "1"), (5, "2"), (5, "3")]
    assert task.store.fetch("a", 5) == (None if in_memory else "3")


def test_what_has_expired_is_removed_from_the_base_piece_by_piece() -> None:
    task = Task(window_builder())
    many = EXPIRED_PER_FLUSH + 10
    keys = [b"%06d" % number for number in range(many)]
    contexts = [CONTEXT] * many
    entries = task.store.entry_keys(keys, np.zeros(many, np.int64))
    task.store.put_columns(entries, ["v"] * many, np.zeros(many, np.int64), contexts)
    task.commit()
    assert task.base.view("w").approximate_num_entries() == many
    task.store.put("z", "late", 10 * RETENTION)
    task.commit()
    assert task.base.view("w").approximate_num_entries() == 11
    assert [key.key for key, _ in task.store.all()] == ["z"]
    task.restart()
    task.commit()
    assert task.base.view("w").approximate_num_entries() == 1


@pytest.mark.parametrize("caching", [False, True])
def test_columns_do_what_single_calls_do(caching: bool) -> None:
    supplier = Stores.persistent_timestamped_window_store("w", RETENTION, SIZE, False)
    builder = Stores.timestamped_window_store_builder(supplier, STRING, Serdes.long())
    task = Task(builder.with_caching_enabled() if caching else builder)
    store = task.store
    keys = store.serialize_keys(["a", "b", "a"])
    entries = store.entry_keys(keys, np.array([0, 60_000, 60_000], np.int64))
    store.put_columns(entries, [1, None, 3], np.array([10, 11, 12], np.int64), [CONTEXT] * 3)
    assert store.fetch("a", 0) == ValueAndTimestamp(1, 10)
    assert store.fetch("b", 60_000) is None
    assert list(store.fetch("a", 0, LONG_MAX)) == [(0, ValueAndTimestamp(1, 10)), (60_000, ValueAndTimestamp(3, 12))]
    values, timestamps = store.get_columns(entries)
    assert (values, timestamps.tolist()) == ([1, None, 3], [10, -1, 12])
    assert store.deserialize_keys(entries)[:2] == [
        Windowed("a", TimeWindow(0, 10)),
        Windowed("b", TimeWindow(60_000, 60_010)),
    ]
    late = store.entry_keys(store.serialize_keys(["c", "d"]), np.array([10 * RETENTION, 0], np.int64))
    store.put_columns(late, [7, 8], np.array([0, 0], np.int64), [CONTEXT] * 2)
    task.commit()
    assert task.dropped == 1
    assert store.beneath_cache().get_columns([*entries, *late])[0] == [None, None, None, 7, None]


def test_the_listener_hears_of_each_entry_as_the_clock_stood_then() -> None:
    task = Task(window_builder().with_caching_enabled())
    heard: list[FlushedEntries] = []
    task.store.set_flush_listener(heard.append, True)
    task.store.put("a", "1", 0)
    task.commit()
    task.store.put("b", "2", 10 * RETENTION)
    task.store.put("a", "3", 0)  # has expired by the time it is written: there is no old value any more
    task.commit()
    flat = [
        (key.key, new, old)
        for entries in heard
        for key, new, old in zip(
            task.store.deserialize_keys(entries.keys), entries.new_values, entries.old_values or [], strict=True
        )
    ]
    assert flat == [("a", b"1", None), ("b", b"2", None), ("a", b"3", None)]
    assert task.dropped == 1


def test_keys_of_none_and_closed_stores_are_refused() -> None:
    windows, sessions = Task(window_builder()).store, Task(session_builder()).store
    assert isinstance(windows, TypedWindowStore)
    assert isinstance(sessions, TypedSessionStore)
    for call in (
        lambda: windows.put(None, "x", 0),
        lambda: windows.fetch(None, 0),
        lambda: windows.fetch(None, 0, 1),
        lambda: sessions.put(None, "x"),
        lambda: sessions.remove(Windowed(None, SessionWindow(0, 0))),
        lambda: sessions.fetch(None),
    ):
        with pytest.raises(TypeError, match="be null"):
            call()
    windows.close()
    with pytest.raises(InvalidStateStoreError, match="Store 'w' is not open"):
        windows.all()


def test_the_layout_of_a_store_says_how_long_its_segments_are() -> None:
    assert window_builder().layout == "window, in segments of 60000 ms"
    assert session_builder(in_memory=True).layout == "session, in memory, in segments of 60000 ms"
    longer = Stores.window_store_builder(Stores.persistent_window_store("w", 200_000, SIZE, False), STRING, STRING)
    assert longer.layout == "window, in segments of 100000 ms"
