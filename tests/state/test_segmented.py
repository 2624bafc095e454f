"""Expiry by segment, and the record cache over it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.api import FlushedEntries
from penstock.state.layouts import WINDOW_SUFFIX_SIZE, pack_segment, pack_window
from penstock.state.memory import MemoryBase
from penstock.state.segmented import (
    EXPIRED_PER_FLUSH,
    InMemorySegmentedStore,
    Segmentation,
    SegmentedStore,
    TimeOrderedSegmentedStore,
)
from penstock.state.uncommitted import UncommittedStore
from tests.support.expiring import INTERVAL, RETENTION, window_builder
from tests.support.stores import CONTEXT, TaskStore


def test_expired_entries_are_removed_from_the_base_piece_by_piece() -> None:
    task = TaskStore(window_builder())
    many = EXPIRED_PER_FLUSH + 10
    keys = [b"%06d" % number for number in range(many)]
    contexts = [CONTEXT] * many
    starts = np.arange(many) % 2 * INTERVAL  # in two segments
    entries = task.store.entry_keys(keys, starts)
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


def test_the_listener_receives_entries_as_of_the_clock_of_their_write() -> None:
    task = TaskStore(window_builder().with_caching_enabled())
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


def entry_key(time: int) -> bytes:
    return pack_segment(time // INTERVAL) + b"k" + pack_window(time, 0)


def segmented(kind: type[SegmentedStore], dropped: list[int]) -> SegmentedStore:
    view = MemoryBase().view("s")
    expiry = Segmentation(WINDOW_SUFFIX_SIZE, RETENTION, INTERVAL)
    return kind("s", view, UncommittedStore(view), expiry, {}, dropped.append)


@pytest.mark.parametrize(
    ("kind", "visible", "accepted"),
    [
        (SegmentedStore, 100_001, 60_000),
        (TimeOrderedSegmentedStore, 100_000, 60_000),
        (InMemorySegmentedStore, 100_001, 100_001),
    ],
)
def test_each_base_rejects_and_hides_entries_from_its_own_time(
    kind: type[SegmentedStore], visible: int, accepted: int
) -> None:
    dropped: list[int] = []
    store = segmented(kind, dropped)
    store.put(entry_key(200_000), b"v")
    times = sorted({accepted - 1, accepted, visible - 1, visible})
    store.put_many([entry_key(time) for time in times], [b"v"] * len(times))
    assert sum(dropped) == sum(time < accepted for time in times) > 0
    seen = [b"v" if time >= visible else None for time in times]
    assert store.multi_get([entry_key(time) for time in times]) == seen
    assert [store.get(entry_key(time)) for time in times] == seen
    assert [key for key, _ in store.range(None, entry_key(199_999), False)] == [entry_key(visible)]
    writable = [entry_key(time) for time in times if time >= accepted]
    assert [key for key, _ in store.entries_by_time(0, 199_999)] == writable


@given(st.lists(st.integers(0, 400_000), min_size=1, max_size=8), st.none() | st.integers(0, 400_000))
def test_keys_of_a_run_stay_visible_while_they_are_written(times: list[int], clock: int | None) -> None:
    store = segmented(SegmentedStore, [])
    if clock is not None:
        store.observe(clock)
    runs = list(store.kept_runs([entry_key(time) for time in times]))
    assert [place for start, stop in runs for place in range(start, stop)] == list(range(len(times)))
    for start, stop in runs:
        newest = max(*times[:stop], store.observed_time)
        assert stop - start == 1 or min(times[start:stop]) > newest - RETENTION
