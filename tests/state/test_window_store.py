"""Window stores against plain dicts: on disk and in memory, with and without a record cache."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidStateStoreError
from penstock.record import ValueAndTimestamp
from penstock.serdes import Serdes
from penstock.state.session_store import TypedSessionStore
from penstock.state.stores import Stores
from penstock.state.window_store import TypedWindowStore
from penstock.windows import LONG_MAX, SessionWindow, TimeWindow, Windowed
from tests.support.expiring import KEYS, RETENTION, SIZE, TIMES, Model, session_builder, window_builder
from tests.support.stores import CONTEXT, STRING, TaskStore

STEPS = st.lists(
    st.tuples(st.just("put"), st.sampled_from(KEYS), TIMES, st.none() | st.sampled_from("xyz"))
    | st.tuples(st.just("commit"))
    | st.tuples(st.just("restart")),
    max_size=25,
)


def windowed(id_: tuple[str, int, int]) -> Windowed[str]:
    return Windowed(id_[0], TimeWindow(id_[1], id_[1] + SIZE))


@given(STEPS, st.booleans(), st.sampled_from(KEYS), st.sampled_from(KEYS), TIMES, TIMES)
def test_a_window_store_has_the_entries_of_a_dict(
    steps: list[Any], in_memory: bool, key: str, other: str, time_from: int, time_to: int
) -> None:
    task, model = TaskStore(window_builder(in_memory)), Model(in_memory)
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
    task, model = TaskStore(window_builder(in_memory).with_caching_enabled()), Model(in_memory)
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


@pytest.mark.parametrize("in_memory", [False, True])
def test_duplicates_are_all_kept_over_restarts(in_memory: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        task = TaskStore(window_builder(in_memory, duplicates=True).with_caching_enabled())
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


@pytest.mark.parametrize("caching", [False, True])
def test_columns_do_what_single_calls_do(caching: bool) -> None:
    supplier = Stores.persistent_timestamped_window_store("w", RETENTION, SIZE, False)
    builder = Stores.timestamped_window_store_builder(supplier, STRING, Serdes.long())
    task = TaskStore(builder.with_caching_enabled() if caching else builder)
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


def test_keys_of_none_and_closed_stores_are_refused() -> None:
    windows, sessions = TaskStore(window_builder()).store, TaskStore(session_builder()).store
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
