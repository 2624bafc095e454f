"""Reads of a store under a lock, while its task keeps writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.errors import InvalidStateStoreError
from penstock.state.guarded import AT_ONCE, GuardedReads
from penstock.state.memory import MemoryBase
from penstock.state.uncommitted import UncommittedStore


class Lock:
    """Counts its uses; a closed one raises InvalidStateStoreError."""

    def __init__(self) -> None:
        self.used = 0
        self.held = False
        self.closed = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self.closed:
            raise InvalidStateStoreError("the task is closed")
        self.used += 1
        self.held = True
        yield
        self.held = False


def keys_of(count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(count)]


def store_of(count: int) -> tuple[UncommittedStore, Lock, GuardedReads]:
    store, lock = UncommittedStore(MemoryBase().view("s")), Lock()
    store.put_many(keys_of(count), [b"v"] * count)
    return store, lock, GuardedReads(store, lock)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE + 1])
def test_a_range_has_each_entry_once_whatever_its_size(count: int, reverse: bool) -> None:
    _, _, reads = store_of(count)
    assert [key for key, _ in reads.range(None, None, reverse)] == sorted(keys_of(count), reverse=reverse)
    within = sorted(keys_of(count)[1:-1], reverse=reverse)
    assert [key for key, _ in reads.range(b"000001", b"%06d" % max(count - 1, 1), reverse)] == within


def test_later_entries_are_as_of_their_reading() -> None:
    store, _, reads = store_of(AT_ONCE + 2)
    first, *_, last = keys_of(AT_ONCE + 2)
    entries = reads.range(None, None, False)
    for key in (first, last):
        store.put(key, b"new")
    found = dict(entries)
    assert (found[first], found[last]) == (b"v", b"new")


def test_an_iterator_holds_the_lock_only_while_it_reads() -> None:
    _, lock, reads = store_of(2 * AT_ONCE)
    for _ in reads.range(None, None, False):
        assert not lock.held
    assert lock.used == 3  # two full parts, and an empty one


def test_every_read_waits_for_the_lock_and_raises_its_error() -> None:
    store, lock, reads = store_of(2)
    assert (reads.get(b"000001"), reads.multi_get([b"x", b"000000"])) == (b"v", [None, b"v"])
    assert reads.approximate_num_entries() == store.approximate_num_entries() == 2
    assert lock.used == 3
    lock.closed = True
    for call in (
        lambda: reads.get(b"a"),
        lambda: reads.range(None, None, False),
        reads.approximate_num_entries,
        lambda: reads.segments(0, 1),
        lambda: reads.observed_time,
    ):
        with pytest.raises(InvalidStateStoreError, match="the task is closed"):
            call()
