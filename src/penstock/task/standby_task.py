"""A copy of the stores of a task, kept up from its commits, to be read by others than the task (Kafka class:
StandbyTask).

Free of I/O: who has the segments hands in a function that reads one, and gives the base. What is read is a snapshot, as
of one commit; updates go on beside it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from penstock.config import StreamsConfig
from penstock.errors import TaskCorruptedError
from penstock.plan.subtopology import TaskId
from penstock.record import NO_TIMESTAMP
from penstock.state.api import BaseSnapshot, Changes, EngineStore, RecordContext, SnapshotBase, StateStore, StoreBuilder
from penstock.state.build import build_store
from penstock.state.cache import RecordCache
from penstock.state.memory import MemoryBase
from penstock.state.segment_log import SegmentLog, path
from penstock.state.segments import Segment, SegmentInfo
from penstock.task.checkpoint import TaskCheckpoint

ReadSegment = Callable[[SegmentInfo], Segment]
"""Returns the segment that is asked for, or raises."""


MOST_SNAPSHOTS = 256
"""Snapshots of a task that may be read at one time; the oldest beyond are closed."""


class StandbySnapshot:
    """The stores of one task as of one commit; may be read from several threads."""

    def __init__(
        self,
        task: TaskId,
        stores: Mapping[str, StoreBuilder],
        config: StreamsConfig,
        base: BaseSnapshot,
        clocks: Mapping[str, int],
    ) -> None:
        """Show `stores` of `task` over `base`. clocks: what stores remember besides entries."""
        self.task = task
        self._builders = stores
        self._config = config
        self._base = base
        self._clocks = clocks
        self._built = threading.local()  # some stores remember what they read, and not for two threads

    def store(self, name: str) -> StateStore | None:
        """Return the store `name` to be read, None if the task has none of that name."""
        if name not in self._builders:
            return None
        stores: dict[str, EngineStore] = vars(self._built).setdefault("stores", {})
        if name not in stores:
            stores[name] = build_store(
                self._builders[name],
                self._config,
                self._base.view(name),
                RecordCache(0),
                _no_context,
                dict(self._clocks),
            )
        return stores[name].exposed()


class StandbyTask:
    """Applies what a task has committed to a base of its own, and shows it."""

    def __init__(
        self, id: TaskId, stores: Mapping[str, StoreBuilder], config: StreamsConfig, base: SnapshotBase
    ) -> None:
        """Keep `stores` of the task `id` in `base`, whose stamp is a position of the task's log."""
        self.id = id
        self._stores = stores
        self._config = config
        self._base = base
        self._shown: bytes | None = None
        self._newest: StandbySnapshot | None = None
        self._open: deque[weakref.ref[BaseSnapshot]] = deque()

    def update(self, log: SegmentLog, read: ReadSegment) -> None:
        """Bring the base to the head of `log`, from where it is or anew.

        Raises what `read` raises, and TaskCorruptedError for a log whose last segment does not end a commit; the base
        is then at a commit before.
        """
        if self._newest is not None and log.head == self._shown:
            return
        clocks: Mapping[str, int] = {}
        if log.head is None:
            self._base.clear()
        else:
            clocks = _clocks_of(self._follow(log, read))
        self._newest, self._shown = self._snapshot(clocks), log.head

    def snapshot(self) -> StandbySnapshot:
        """Return the stores as of the last `update`. It stays good until it is no longer held, or for the next
        MOST_SNAPSHOTS updates; raises RuntimeError before the first."""
        if self._newest is None:
            raise RuntimeError(f"Task {self.id} was not updated yet: there is nothing to be read.")
        return self._newest

    def _snapshot(self, clocks: Mapping[str, int]) -> StandbySnapshot:
        base = self._base.snapshot()
        self._open = deque(each for each in self._open if each() is not None)
        self._open.append(weakref.ref(base))
        if len(self._open) > MOST_SNAPSHOTS and (oldest := self._open.popleft()()) is not None:
            oldest.close()
        return StandbySnapshot(self.id, self._stores, self._config, base, clocks)

    def close(self) -> None:
        """Release the base and all snapshots; what the base holds stays for the next task that opens it."""
        for each in self._open:
            if (snapshot := each()) is not None:
                snapshot.close()
        self._newest = None
        self._base.close()

    def _follow(self, log: SegmentLog, read: ReadSegment) -> Segment:
        """Apply what is missing, and return the newest segment."""
        latest: Segment | None = None

        def read_next(info: SegmentInfo) -> Segment:
            nonlocal latest
            latest = read(info)
            return latest

        route = path(log, self._base.stamp())
        if route.rebuild:
            self._base.rebuild(partial(_changes, route.segments, read_next), route.segments[-1].last)
        else:
            for info in route.segments:
                segment = read_next(info)
                self._base.apply(segment.changes, segment.last)
        newest = log.deltas[-1]
        return latest if latest is not None and latest.id == newest.id else read(newest)


def empty_store(builder: StoreBuilder, config: StreamsConfig) -> EngineStore:
    """Return a store of the kind that `builder` describes, without entries."""
    return build_store(builder, config, MemoryBase().view(builder.name), RecordCache(0), _no_context, {})


def _changes(segments: tuple[SegmentInfo, ...], read: ReadSegment) -> Iterator[Changes]:
    for info in segments:
        yield read(info).changes


def _clocks_of(newest: Segment) -> Mapping[str, int]:
    if newest.checkpoint is None:
        raise TaskCorruptedError(f"Segment {newest.id.hex()} should end a commit and has no checkpoint in it.")
    return TaskCheckpoint.decode(newest.checkpoint).processor_metadata


def _no_context() -> RecordContext:
    return RecordContext(NO_TIMESTAMP, (), None)
