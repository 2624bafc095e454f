"""Views of the stores of tasks, for readers in other threads."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from penstock.host.threads.readable_store import CommittedEntries, for_readers, seen
from penstock.host.threads.visibility import Visibility
from penstock.state.memory import MemoryBase
from tests.support.custom_stores import DictStore
from tests.support.stores import build, text_store


def unguarded() -> AbstractContextManager[object]:
    return nullcontext()


def test_only_what_has_left_the_record_cache_is_seen_beneath_it() -> None:
    store = build(text_store().with_caching_enabled())
    store.put("a", "1")
    assert seen(store, Visibility.WRITTEN).get("a") == "1"
    assert seen(store, Visibility.FLUSHED).get("a") is None
    store.flush()
    assert seen(store, Visibility.FLUSHED).get("a") == "1"


def test_a_store_of_the_user_is_its_own_view() -> None:
    own = DictStore("s")
    assert for_readers(seen(own, Visibility.FLUSHED), unguarded) is own


def test_committed_entries_are_those_of_the_base() -> None:
    base = MemoryBase()
    base.apply({"s": {b"k": b"v"}}, b"stamp")
    entries = CommittedEntries(base, unguarded)
    assert entries.view("s").get(b"k") == b"v"
    entries.close()
    assert entries.view("s").get(b"k") == b"v", "the base belongs to the task"
