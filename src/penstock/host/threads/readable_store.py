"""Stores of open tasks, for readers in any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from penstock.host.threads.visibility import Visibility
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.api import Base, StateStore
from penstock.state.guarded import Guard, GuardedReads
from penstock.state.typed_store import TypedStore

S = TypeVar("S", bound=StateStore)


class ReadableStore(NamedTuple):
    """A store of an open task, readable by any thread. positions: the next offset of each input partition; all records
    before it are in the store."""

    task: TaskId
    store: StateStore
    positions: Mapping[TopicPartition, int]


class CommittedEntries:
    """The committed entries of a task for readers (implements BaseSnapshot). guard: the context of each read."""

    def __init__(self, base: Base, guard: Guard) -> None:
        self._base = base
        self._guard = guard

    def view(self, store_name: str) -> GuardedReads:
        """Return the committed entries of one store."""
        return GuardedReads(self._base.view(store_name), self._guard)

    def close(self) -> None:
        """Do nothing: the base belongs to the task."""


def for_readers(store: StateStore, guard: Guard) -> StateStore:
    """Return `store` for threads of other tasks; a user's own store unchanged, as in Kafka."""
    return store.for_readers(guard) if isinstance(store, TypedStore) else store


def seen(store: S, visible: Visibility) -> S:
    """Return a view of `store` without the record cache if readers see only what has left it."""
    return store.beneath_cache() if visible is Visibility.FLUSHED and isinstance(store, TypedStore) else store
