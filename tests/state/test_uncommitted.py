"""The buffer of uncommitted writes and its iterators."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.memory import MemoryBase
from penstock.state.uncommitted import UncommittedStore, merge
from tests.support.stores import build, fill, text_store

KEYS = st.binary(min_size=1, max_size=2)
VALUES = st.none() | st.binary(max_size=2)


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


@given(st.lists(st.tuples(KEYS, VALUES, st.booleans())))
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


@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, st.binary(max_size=2)), st.booleans())
def test_a_merge_is_the_older_entries_changed_by_the_newer(
    newer: dict[bytes, bytes | None], older: dict[bytes, bytes], reverse: bool
) -> None:
    wanted = [(key, value) for key, value in {**older, **newer}.items() if value is not None]
    written, committed = sorted(newer.items(), reverse=reverse), sorted(older.items(), reverse=reverse)
    assert list(merge(iter(written), iter(committed), reverse)) == sorted(wanted, reverse=reverse)


@given(st.dictionaries(KEYS, st.binary(max_size=2)), st.dictionaries(KEYS, VALUES))
def test_reads_and_counts_are_those_of_the_base_with_all_writes(
    committed: dict[bytes, bytes], writes: dict[bytes, bytes | None]
) -> None:
    base = MemoryBase()
    base.apply({"s": dict(committed)}, b"one")
    buffer = UncommittedStore(base.view("s"))
    buffer.put_many(list(writes), list(writes.values()))
    expected = {**committed, **writes}
    assert buffer.multi_get([*expected, b"absent"]) == [*expected.values(), None]
    assert buffer.approximate_num_entries() == sum(value is not None for value in expected.values())
    assert (buffer.uncommitted_count(), buffer.changes()) == (len(writes), writes)
    assert dict(base.view("s").range(None, None, False)) == committed
