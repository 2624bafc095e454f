"""Session stores against a plain dict, on disk and in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.windows import SessionWindow, Windowed
from tests.support.expiring import KEYS, TIMES, Model, session_builder
from tests.support.stores import TaskStore

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
def test_a_session_store_has_the_entries_of_a_dict(
    steps: list[Any], in_memory: bool, key: str, other: str, earliest_end: int, latest_start: int
) -> None:
    task, model = TaskStore(session_builder(in_memory)), Model(in_memory)
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
    task = TaskStore(builder.with_caching_enabled() if caching else builder)
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
