"""Expiry by segment, and the record cache over it."""

from __future__ import annotations

import numpy as np

from penstock.state.api import FlushedEntries
from penstock.state.segmented import EXPIRED_PER_FLUSH
from tests.support.expiring import RETENTION, window_builder
from tests.support.stores import CONTEXT, TaskStore


def test_what_has_expired_is_removed_from_the_base_piece_by_piece() -> None:
    task = TaskStore(window_builder())
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


def test_the_listener_hears_of_each_entry_as_the_clock_stood_then() -> None:
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
