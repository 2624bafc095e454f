"""The state of one task as a value, on its way between places: checkpoint, savepoint and changelogs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from penstock.record import RecordBatch, TopicPartition
from penstock.state.api import Entries
from penstock.state.memory import MemoryBase
from penstock.task.task_checkpoint import TaskCheckpoint

OpenEntries = Callable[[], AbstractContextManager[Entries]]
"""Opens entries for a block."""


def already_open(entries: Entries) -> OpenEntries:
    """Return `entries` for any number of blocks; the caller closes them."""
    return lambda: nullcontext(entries)


_NO_ENTRIES = already_open(MemoryBase())


@dataclass(frozen=True)
class TaskState:
    """The state of one task as of a commit.

    Args:
        clocks: times, schedules and counters.
        entries: opens its stores for a block.
        identity: of the entries; equal only for equal entries.
        positions: the next offset of each input partition on brokers, without repartition topics.
        fetched: the next offset after the records that it has read and holds back, of the same partitions.
        waiting: for each of its partitions of repartition topics, opens the records that it has not taken, in order.
    """

    clocks: TaskCheckpoint = field(default_factory=TaskCheckpoint)
    entries: OpenEntries = _NO_ENTRIES
    identity: bytes = b""
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    fetched: Mapping[TopicPartition, int] = field(default_factory=dict)
    waiting: Mapping[TopicPartition, Callable[[], Iterable[RecordBatch]]] = field(default_factory=dict)
