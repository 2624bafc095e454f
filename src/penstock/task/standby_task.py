"""A copy of a task's stores for other readers, updated from its commits (Kafka class: StandbyTask).

Free of I/O: the caller passes a function that reads a segment, and the base. A read uses a snapshot as of one commit,
while updates continue.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType

from penstock.config import StreamsConfig
from penstock.errors import TaskCorruptedError
from penstock.plan.subtopology import TaskId
from penstock.record import NO_TIMESTAMP
from penstock.state.api import BaseSnapshot, Changes, EngineStore, RecordContext, SnapshotBase, StateStore, StoreBuilder
from penstock.state.build import StoreServices, build_store
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.restoring import ReadFile, changes_of
from penstock.state.segment_log import SegmentLog, path
from penstock.state.segments import Segment, decode
from penstock.task.task_checkpoint import TaskCheckpoint

MOST_SNAPSHOTS = 256
"""Maximum number of readable snapshots of a task; older ones are closed."""


class StandbySnapshot:
    """The stores of one task as of one commit; several threads may read it.

    Args:
        task: the id of the task.
        stores: the stores by name.
        config: the configuration.
        base: the committed state.
        clocks: persistent values of the stores besides entries.
    """

    def __init__(
        self,
        task: TaskId,
        stores: Mapping[str, StoreBuilder],
        config: StreamsConfig,
        base: BaseSnapshot,
        clocks: Mapping[str, int],
    ) -> None:
        self.task = task
        self._builders = stores
        self._config = config
        self._base = base
        self._clocks = clocks
        self._built = threading.local()  # some stores cache their reads, and are not thread-safe

    def store(self, name: str) -> StateStore | None:
        """Return the store `name` for reading, or None if the task has no such store."""
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
                StoreServices(task_id=f"{self.task}"),
            )
        return stores[name].exposed()

    def entries(self, name: str) -> int:
        """Return the number of committed entries of the store `name`, 0 for a user-defined one."""
        return self._base.view(name).approximate_num_entries()


class StandbyTask:
    """Applies the commits of a task to its own base, and provides snapshots.

    Args:
        id: the id of the task.
        stores: the stores by name.
        config: the configuration.
        base: the base; rebuilt if it has other stores.
    """

    def __init__(
        self, id: TaskId, stores: Mapping[str, StoreBuilder], config: StreamsConfig, base: SnapshotBase
    ) -> None:
        self.id = id
        self._stores = stores
        self._config = config
        self._base = base
        self._held = blake2b(repr(sorted(stores)).encode(), digest_size=8).digest()
        self._shown: bytes | None = None
        self._newest: StandbySnapshot | None = None
        self._open: deque[weakref.ref[BaseSnapshot]] = deque()

    def update(self, log: SegmentLog, read: ReadFile) -> None:
        """Update the base to the head of `log`, from its position or by a rebuild.

        Raises the errors of `read`, and TaskCorruptedError for a log whose last segment does not end a commit; the base
        is then at an earlier commit.
        """
        if self._newest is not None and log.head == self._shown:
            return
        clocks: Mapping[str, int] = {}
        if log.head is None:
            self._base.clear()
        else:
            clocks = clocks_of(self._follow(log, read))
        self._newest, self._shown = self._snapshot(clocks), log.head

    def snapshot(self) -> StandbySnapshot:
        """Return the stores as of the last `update`; raises RuntimeError before the first.

        The snapshot stays valid until its last reference is dropped, or for the next MOST_SNAPSHOTS updates.
        """
        if self._newest is None:
            raise RuntimeError(f"Task {self.id} was not updated yet: it has nothing to read.")
        return self._newest

    def _snapshot(self, clocks: Mapping[str, int]) -> StandbySnapshot:
        base = self._base.snapshot()
        self._open = deque(each for each in self._open if each() is not None)
        self._open.append(weakref.ref(base))
        if len(self._open) > MOST_SNAPSHOTS and (oldest := self._open.popleft()()) is not None:
            oldest.close()
        return StandbySnapshot(self.id, self._stores, self._config, base, clocks)

    def close(self) -> None:
        """Release the base and all snapshots.

        The base's content remains for the next task that opens it.
        """
        for each in self._open:
            if (snapshot := each()) is not None:
                snapshot.close()
        self._newest = None
        self._base.close()

    def _follow(self, log: SegmentLog, read: ReadFile) -> Segment:
        """Apply missing segments, and return the newest segment."""
        route = path(log, self._position())
        if route.rebuild:
            stamp = self._stamp(route.segments[-1].last)
            self._base.rebuild(lambda: map(self._own, changes_of(route.segments, read)), stamp)
            return decode(read(log.deltas[-1]), log.deltas[-1].id)
        segment: Segment | None = None
        for info in route.segments:
            segment = decode(read(info), info.id)
            self._base.apply(self._own(segment.changes), self._stamp(segment.last))
        return segment or decode(read(log.deltas[-1]), log.deltas[-1].id)

    def _stamp(self, position: bytes) -> bytes:
        return self._held + position

    def _position(self) -> bytes | None:
        """Return the position of the base in its task's log, or None.

        None means that it is empty or has other stores.
        """
        stamp = self._base.stamp()
        held = len(self._held)
        return stamp[held:] if stamp is not None and stamp[:held] == self._held else None

    def _own(self, changes: Changes) -> Changes:
        """Return the changes of the stores in this copy."""
        return {name: changed for name, changed in changes.items() if name in self._stores}


def empty_store(
    builder: StoreBuilder, config: StreamsConfig, clocks: Mapping[str, int] = MappingProxyType({})
) -> EngineStore:
    """Return an empty store of the kind described by `builder`, at the times of `clocks`."""
    return build_store(builder, config, MemoryBase().view(builder.name), RecordCache(0), _no_context, dict(clocks))


def clocks_of(newest: Segment) -> Mapping[str, int]:
    """Return the persistent values of the stores besides entries, from the segment that ends a commit."""
    if newest.checkpoint is None:
        raise TaskCorruptedError(f"Segment {newest.id.hex()} should end a commit and has no checkpoint in it.")
    return TaskCheckpoint.decode(newest.checkpoint).processor_metadata


def _no_context() -> RecordContext:
    return RecordContext(NO_TIMESTAMP, ())
