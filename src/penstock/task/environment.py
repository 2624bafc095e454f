"""The services of a host for its tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from penstock.record import TopicPartition
from penstock.state.api import StateStore
from penstock.state.change_logging_store import ChangeLog
from penstock.state.spilled import SpilledChanges
from penstock.task.batch_tracing import BatchTracing
from penstock.task.punctuation import LivingSchedules, Schedules


@dataclass(frozen=True, kw_only=True)
class TaskEnvironment:
    """The services of a host for one task; by default, a host without them.

    Args:
        schedules: their lifetime on this host.
        state_log_prefix: prefix of the stores' error texts; None for one that names the task.
        global_stores: by name; every processor can read them.
        input_partitions: all partitions read by the task; None for its own partition number of every topic.
        change_log: collects the changelog records of the stores that it names, for a host that writes them.
        spilled: receives uncommitted changes beyond `penstock.uncommitted.max.bytes`, for a host that keeps them until
            the commit; such a commit contains only later changes.
        nanoseconds: the clock for durations, for a host that shows measurements.
        cache_bytes: the task's share of `statestore.cache.max.bytes`; None for all of it.
        node_lines: the line of the user's program that created each node, for errors.
        tracing: of batches.
    """

    schedules: Schedules = field(default_factory=LivingSchedules)
    state_log_prefix: str | None = None
    global_stores: Mapping[str, StateStore] = field(default_factory=dict)
    input_partitions: Collection[TopicPartition] | None = None
    change_log: ChangeLog | None = None
    spilled: SpilledChanges | None = None
    nanoseconds: Callable[[], int] | None = None
    cache_bytes: int | None = None
    node_lines: Mapping[str, str] = field(default_factory=dict)
    tracing: BatchTracing | None = None
