"""The sweeps of a task's stores with a time to live.

They are punctuations: of stream time, after the record that advanced it, or of wall-clock time, also without records.
So a host wakes an idle task for them, and a replay sweeps at the same points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.processor.api import PunctuationType
from penstock.state.ttl import Ttl, TtlClock
from penstock.task.context import TaskContext
from penstock.task.punctuation import Schedule

_TYPES = {
    TtlClock.STREAM_TIME: PunctuationType.STREAM_TIME,
    TtlClock.WALL_CLOCK_TIME: PunctuationType.WALL_CLOCK_TIME,
}


_NODE = "/ttl"
"""The end of the names of the nodes of sweeps; other nodes have no slash in their names."""


def is_sweep(node: str) -> bool:
    """Return whether the schedules of a node are sweeps."""
    return node.endswith(_NODE)


class _Sweeps(NamedTuple):
    """The sweeps of one store."""

    store_name: str
    ttl: Ttl
    sweep: Callable[[], None]

    def punctuate(self, now_ms: int) -> None:
        self.sweep()


class StoreExpiry:
    """The time, the cursors and the schedules of the sweeps of one task (implements ExpiryServices).

    Args:
        context: the context of the task.
        cursors: the key at which the next sweep of a store starts, at the last commit.
    """

    def __init__(self, context: TaskContext, cursors: Mapping[str, bytes]) -> None:
        self.cursors = dict(cursors)
        self._context = context
        self._sweeps: list[_Sweeps] = []

    @property
    def is_processing(self) -> bool:
        """Whether the task processes a record now; a punctuation has no record."""
        return self._context.record is not None

    def now_ms(self, clock: TtlClock) -> int:
        """Return the time of the task (ms)."""
        return self._context.stream_time if clock is TtlClock.STREAM_TIME else self._context.wall_clock

    def add(self, store_name: str, ttl: Ttl, sweep: Callable[[], None]) -> None:
        """Call `sweep` at the intervals of `ttl`, from `schedule` on."""
        self._sweeps.append(_Sweeps(store_name, ttl, sweep))

    def schedule(self) -> None:
        """Schedule the sweeps of all stores; their nodes are named `<store>/ttl`."""
        for each in self._sweeps:
            interval = each.ttl.sweep_interval_ms
            type = _TYPES[each.ttl.clock]
            first = 0 if type is PunctuationType.STREAM_TIME else self._context.wall_clock + interval
            schedule = Schedule(f"{each.store_name}{_NODE}", 0, type, interval, each.punctuate, first)
            self._context.schedules.add(schedule, initializing=True)
