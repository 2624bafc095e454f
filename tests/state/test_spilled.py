"""Changes that left memory read like those in it, and are given to the host in lots that add up to the commit."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.api import Base, Changes
from penstock.state.lmdb import LmdbBase
from penstock.state.memory import MemoryBase
from penstock.state.spilled import SpilledChanges
from penstock.state.uncommitted import UncommittedStore

KEYS = st.binary(min_size=1, max_size=2)
VALUES = st.none() | st.binary(max_size=2)


class Store:
    """A store over what is committed, beside a dict that says what must be in it."""

    def __init__(self, committed: dict[bytes, bytes]) -> None:
        base = MemoryBase()
        base.apply({"s": dict(committed)}, b"commit")
        self.lots: list[Changes] = []
        self.spilled = SpilledChanges(base, MemoryBase, lambda changes: self.lots.append(changes))
        self.buffer = UncommittedStore(self.spilled.view("s"))
        self.expected = dict(committed)
        self.base = base

    def write(self, writes: dict[bytes, bytes | None]) -> None:
        self.buffer.put_many(list(writes), list(writes.values()))
        for key, value in writes.items():
            if value is None:
                self.expected.pop(key, None)
            else:
                self.expected[key] = value

    def spill(self) -> None:
        changes = self.buffer.changes()
        if changes:
            self.spilled.spill({"s": changes})
            self.buffer.clear()


@given(
    st.dictionaries(KEYS, st.binary(max_size=2)),
    st.lists(st.tuples(st.dictionaries(KEYS, VALUES), st.booleans())),
    st.tuples(st.none() | KEYS, st.none() | KEYS, st.booleans()),
)
def test_reads_show_what_was_written_wherever_it_is(
    committed: dict[bytes, bytes],
    steps: list[tuple[dict[bytes, bytes | None], bool]],
    bounds: tuple[bytes | None, bytes | None, bool],
) -> None:
    store = Store(committed)
    for writes, spills in steps:
        store.write(writes)
        if spills:
            store.spill()
    first, last, reverse = bounds
    expected = store.expected
    wanted = sorted(
        (entry for entry in expected.items() if (first or b"") <= entry[0] and (last is None or entry[0] < last)),
        reverse=reverse,
    )
    assert list(store.buffer.range(first, last, reverse)) == wanted
    keys = sorted({key for writes, _ in steps for key in writes} | set(committed) | {b"\xff\xff\xff"})
    assert store.buffer.multi_get(keys) == [expected.get(key) for key in keys]
    assert [store.buffer.get(key) for key in keys] == [expected.get(key) for key in keys]
    assert store.buffer.approximate_num_entries() == len(expected)
    for lot in (*store.lots, {"s": store.buffer.changes()}):  # in order they are the commit
        store.base.apply(lot, b"next")
    assert dict(store.base.view("s").range(None, None, False)) == expected


def test_an_iterator_over_the_buffer_tolerates_a_spill(tmp_path: Path) -> None:
    base: Base = MemoryBase()
    base.apply({"s": {b"b": b"0", b"d": b"0"}}, b"commit")
    spilled = SpilledChanges(base, lambda: LmdbBase(tmp_path / "scratch"), lambda changes: None)
    buffer = UncommittedStore(spilled.view("s"))
    buffer.put(b"a", b"1")
    buffer.put(b"b", None)
    entries = buffer.range(None, None, False)
    spilled.spill({"s": buffer.changes()})
    buffer.clear()
    assert list(entries) == list(buffer.range(None, None, False)) == [(b"a", b"1"), (b"d", b"0")]
    spilled.close()
    assert list(buffer.range(None, None, False)) == [(b"b", b"0"), (b"d", b"0")]
