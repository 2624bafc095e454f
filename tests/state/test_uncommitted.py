"""The buffer of uncommitted writes and its iterators."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.memory import MemoryBase
from penstock.state.uncommitted import UncommittedStore
from tests.support.stores import build, fill, text_store


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


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.none() | st.binary(max_size=2), st.booleans())))
def test_the_bytes_of_a_buffer_are_counted(writes: list[tuple[bytes, bytes | None, bool]]) -> None:
    buffer = UncommittedStore(MemoryBase().view("s"))
    for key, value, at_once in writes:
        if at_once:
            buffer.put_many([key], [value])
        else:
            buffer.put(key, value)
    again = UncommittedStore(MemoryBase().view("s"))
    for key, value in buffer.changes().items():
        again.put(key, value)
    assert buffer.uncommitted_bytes() == again.uncommitted_bytes()
    buffer.clear()
    assert buffer.uncommitted_bytes() == 0


KEYS = st.binary(min_size=1, max_size=2)


VALUES = st.none() | st.binary(max_size=2)
