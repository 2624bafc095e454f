"""A store of the most recently used keys, against an ordered dict."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import ValueAndTimestamp
from penstock.state.stores import Stores
from tests.support.stores import STRING, TaskStore, logged, taken


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "get", "all"]), st.sampled_from("abcde"), st.none() | st.sampled_from("xyz"))
        | st.tuples(st.just("restart")),
        max_size=40,
    ),
    st.integers(0, 4),
)
def test_the_keys_used_last_are_kept(steps: list[Any], most: int) -> None:
    task = TaskStore(Stores.key_value_store_builder(Stores.lru_map("l", most), STRING, STRING))
    model: OrderedDict[str, str] = OrderedDict()
    for step in steps:
        match step:
            case ("restart",):
                task.commit()
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


@pytest.mark.parametrize(("timestamped", "eldest"), [(False, None), (True, b"x")])
def test_only_a_plain_store_logs_its_evictions(timestamped: bool, eldest: bytes | None) -> None:
    make = Stores.timestamped_key_value_store_builder if timestamped else Stores.key_value_store_builder
    store, log = logged(make(Stores.lru_map("s", 1), STRING, STRING), {})
    for key in "ab":
        store.put(key, ValueAndTimestamp("x", 7) if timestamped else "x")
    assert [(record.key, record.value) for record in taken(log)] == [(b"a", eldest), (b"b", b"x")]
    assert [key for key, _ in store.all()] == ["b"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_read_of_a_key_counts_as_use_and_a_range_does_not(restarts: bool) -> None:
    task = TaskStore(Stores.key_value_store_builder(Stores.lru_map("l", 2), STRING, STRING))
    for key in "ab":
        task.store.put(key, "x")
    assert task.store.get("a") == "x"
    if restarts:
        task.commit()
        task.restart()
    assert [key for key, _ in task.store.range("b", "b")] == ["b"]
    task.store.put("c", "x")
    assert [key for key, _ in task.store.all()] == ["a", "c"]
