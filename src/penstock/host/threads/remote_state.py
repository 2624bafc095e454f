"""State on a file system that outlives the machine (`penstock.state.remote.dir`).

A separate thread writes snapshots of running tasks, and a copy of a task with an empty base starts from the newest
suitable snapshot. The changelogs remain the source of truth: a doubtful snapshot is not used, and the copy starts at
the beginning of its changelogs.

A snapshot has only committed changes: the base of a task gets changes only after their offsets are committed. So a
snapshot by an instance that has lost its tasks is older than those of the next owner, and never wrong.

A snapshot must not be older than the deletes in the changelogs: compaction drops a delete `delete.retention.ms` after
it has dropped the deleted records, and the key would come back. A snapshot is used up to half of that time; the other
half allows for clock differences and for the restore itself.

Only stores with changelogs of their own are in it. Stores over a source topic, and global stores, are read from their
topics: the age of unread records in these topics is unknown.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from penstock.client.api import Admin
from penstock.config import StreamsConfig
from penstock.errors import (
    AuthorizationError,
    CorruptedSegmentError,
    IncompatibleCheckpointError,
    UnsupportedVersionError,
)
from penstock.host.crashpoints import crash_point
from penstock.host.deployment.layout import Layout
from penstock.host.threads.commit_times import InstanceCommit
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.housekeeping import Housekeeping
from penstock.host.threads.remote_snapshots import (
    Changelog,
    RemoteSnapshots,
    Snapshot,
    SnapshotName,
    SnapshotOrigin,
    UnusableSnapshotError,
)
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.lmdb import LmdbSnapshot
from penstock.state.segment_log import whole_snapshot
from penstock.state.segments import EncodedSegment
from penstock.task.changelog_copy import ChangelogCopy, ChangelogStamp, layouts_of
from penstock_broker.common.clock import Clock, elapsed_milliseconds

_log = logging.getLogger(__name__)

_MOST_LOOKED_AT: Final = 8
"""Most snapshots of a task that are examined for a suitable one."""

_SEGMENT_BYTES: Final = 4 * 1024 * 1024
"""Size of the content of one segment, before compression (bytes)."""

_RETRY_MS: Final = 60_000

_LEAST_LIMIT_MS: Final = 60_000
"""Shortest time limit of a snapshot, regardless of the interval."""

_UNUSABLE: Final = (UnusableSnapshotError, CorruptedSegmentError, IncompatibleCheckpointError, AuthorizationError)
"""Errors after which the next snapshot is tried, and finally the changelogs alone."""

_DELETE_RETENTION: Final = "delete.retention.ms"
_DEFAULT_DELETE_RETENTION_MS: Final = 86_400_000


def remote_snapshots(config: StreamsConfig) -> RemoteSnapshots | None:
    """Return the snapshots of the application, or None if not configured.

    Raises ConfigError for an unknown file system.
    """
    uri = config["penstock.state.remote.dir"]
    return None if uri is None else RemoteSnapshots(uri, str(config.required("application.id")))


class RemoteState:
    """Fills empty copies of tasks from snapshots, for one thread.

    Args:
        layout: the tasks of the application.
        snapshots: of the application.
        admin: the client of the calling thread.
        clock: of the machine.
    """

    def __init__(self, layout: Layout, snapshots: RemoteSnapshots, admin: Admin, clock: Clock) -> None:
        self._layout = layout
        self._snapshots = snapshots
        self._admin = admin
        self._clock = clock

    def fill(
        self,
        task: TaskId,
        copy: ChangelogCopy,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Generator[None, None, None]:
        """Fill an empty `copy` from the newest suitable snapshot of `task`, part by part.

        A caller that stops early must clear the copy.

        Args:
            task: the task.
            copy: of its state; left unchanged unless empty.
            begins: the first offset of each of its changelogs.
            ends: the end offset of each of its changelogs.

        Raises:
            KafkaError: the brokers do not answer.
        """
        if task not in self._layout.stateful or not copy.is_empty:
            return
        for name in islice(self._of_kind(task), _MOST_LOOKED_AT):
            try:
                snapshot = self._checked(task, name, begins, ends)
                yield from self._fill(task, copy, name, snapshot)
            except _UNUSABLE as error:
                copy.clear()
                _log.warning("The snapshot %s of task %s is not used: %s", name, task, error)
            else:
                return

    def _of_kind(self, task: TaskId) -> list[SnapshotName]:
        """Return the snapshots of these stores and changelogs, newest first.

        The reason for an empty list is logged.
        """
        try:
            kind, names = _origin(self._layout, self._admin, task).kind, self._snapshots.names(task)
        except (UnusableSnapshotError, UnsupportedVersionError) as error:
            _log.warning("The state of task %s is restored from its changelogs alone: %s", task, error)
            return []
        found = [name for name in names if name.kind == kind]
        if names and not found:
            _log.warning(
                "No snapshot of task %s in penstock.state.remote.dir is used: they are of other stores or layouts, of "
                "changelog topics that were deleted, or of another version of Penstock.",
                task,
            )
        return found

    def _checked(
        self,
        task: TaskId,
        name: SnapshotName,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Snapshot:
        """Return a snapshot from which `task` can continue; raises UnusableSnapshotError for an unsuitable one."""
        snapshot = self._snapshots.read(task, name)
        if snapshot is None:
            raise UnusableSnapshotError("It is not whole: it is being written, or the instance died that wrote it.")
        for store, partition in self._layout.followed_changelogs(task).items():
            begin, offset, end = begins[partition], snapshot.offsets.get(store, -1), ends[partition]
            if not begin <= offset <= end:
                raise UnusableSnapshotError(
                    f"It goes on at offset {offset} of {partition}, which has offsets {begin} to {end}."
                )
        age = self._clock.milliseconds() - snapshot.current_ms
        most = _most_age_ms(self._layout, self._admin, task)
        if age > most:
            raise UnusableSnapshotError(
                f"It is {age} ms old, and its changelogs may have lost deletes since: snapshots of up to {most} ms are "
                "used, half of delete.retention.ms."
            )
        return snapshot

    def _fill(self, task: TaskId, copy: ChangelogCopy, name: SnapshotName, snapshot: Snapshot) -> Iterator[None]:
        for changes in self._snapshots.changes(task, name, snapshot):
            copy.fill(changes)
            crash_point("snapshot.loaded", 0)
            yield
        changelogs = self._layout.followed_changelogs(task)
        offsets = {changelogs[store]: offset for store, offset in snapshot.offsets.items()}
        copy.filled(offsets, snapshot.processor_metadata)
        entries = sum(each.entries for each in snapshot.segments)
        _log.info("The state of task %s begins with %d entries of the snapshot %s.", task, entries, name)


class _Reading(NamedTuple):
    """A base that is being read for a snapshot. until_ms: the end of its time limit."""

    base: LmdbSnapshot
    until_ms: int


class SnapshotWriter:
    """Writes snapshots of this instance's running tasks, one after the other, in a separate thread.

    A snapshot that takes longer than an interval is abandoned: while a base is read, it cannot reuse the pages that
    commits replace.

    Args:
        layout: of the application.
        snapshots: the destination.
        directory: has the bases.
        open_tasks: returns the running tasks of this instance.
        committed: returns the last commit.
        make_admin: returns a client for the thread.
        clock: of the machine.
        elapsed_ms: the clock for intervals.
    """

    def __init__(
        self,
        layout: Layout,
        snapshots: RemoteSnapshots,
        directory: StateDirectory,
        open_tasks: Callable[[], Collection[TaskId]],
        committed: Callable[[], InstanceCommit],
        make_admin: Callable[[], Admin],
        clock: Clock,
        elapsed_ms: Callable[[], int] = elapsed_milliseconds,
    ) -> None:
        self._layout = layout
        self._snapshots = snapshots
        self._directory = directory
        self._open_tasks = open_tasks
        self._committed = committed
        self._make_admin = make_admin
        self._clock = clock
        self._interval_ms: int = layout.config["penstock.state.remote.interval.ms"]
        self._elapsed_ms = elapsed_ms
        self._admin: Admin | None = None
        self._limit_ms = max(self._interval_ms, _LEAST_LIMIT_MS)
        self._reading: _Reading | None = None
        self._due: dict[TaskId, int] = {}
        self._closed = threading.Event()
        self._threads: list[Housekeeping] = []

    def start(self) -> None:
        """Write snapshots until `close`."""
        name = f"penstock-{self._layout.config['application.id']}-snapshots"
        self._threads = [Housekeeping(name, [self.look]), Housekeeping(f"{name}-limit", [self.end_overdue])]

    def close(self, seconds: float) -> None:
        """End after the current segment; wait up to `seconds` for it."""
        self._closed.set()
        for thread in self._threads:
            thread.close(seconds)
        if self._admin is not None:
            self._admin.close()

    def look(self) -> None:
        """Write the snapshots that are due."""
        for task in sorted(self._layout.stateful.intersection(self._open_tasks())):
            if self._closed.is_set():
                return
            try:
                if task not in self._due:
                    self._due[task] = self._first_due(task)
                if self._elapsed_ms() >= self._due[task]:
                    self._due[task] = self._elapsed_ms() + self._interval_ms
                    self.write(task)
            except Exception as error:  # file systems may raise anything
                retry_ms = min(_RETRY_MS, self._interval_ms)
                self._due[task] = self._elapsed_ms() + retry_ms
                if not self._closed.is_set():
                    _log.warning(
                        "The snapshot of task %s was not written, and will be tried again in %d ms: %s: %s",
                        task,
                        retry_ms,
                        type(error).__name__,
                        error,
                    )

    def end_overdue(self) -> None:
        """End the reading of a base after its time limit.

        Called from another thread than the reader's, which a file system may block.
        """
        reading = self._reading
        if reading is not None and self._elapsed_ms() >= reading.until_ms:
            reading.base.close()

    def _first_due(self, task: TaskId) -> int:
        """Return the time of a new task's first snapshot: an interval after its last one.

        The last one may be by any writer.
        """
        newest = self._snapshots.newest(task, _origin(self._layout, self._client(), task).kind)
        age = self._interval_ms if newest is None else self._clock.milliseconds() - newest.current_ms
        return self._elapsed_ms() + min(max(self._interval_ms - age, 0), self._interval_ms)

    def write(self, task: TaskId) -> bool:
        """Write a snapshot of `task` unless a recent or newer one exists.

        A snapshot of the same state must be recent enough; one of a later state always suffices.

        Returns whether one was written.

        Raises:
            StreamsError: the task was closed meanwhile, the snapshot takes too long, or the brokers do not answer.
            OSError: the file system refuses the write.
        """
        admin = self._client()
        origin = _origin(self._layout, admin, task)
        openings, commit = self._directory.openings(task), self._committed()
        if not commit.number or task not in self._open_tasks():
            return False
        with self._directory.snapshot(task) as base:
            # A running task was current when the last commit began, since the group has accepted that. A reopened task
            # may still be restoring from its changelogs, and is not current.
            if base is None or self._directory.openings(task) != openings:
                return False
            self._reading = _Reading(base, self._elapsed_ms() + self._limit_ms)
            stamp = ChangelogStamp.decode(base.stamp() or ChangelogStamp().encode())
            if stamp.layouts != layouts_of(self._layout.spec(task).stores, self._layout.config):
                return False
            changelogs = self._layout.followed_changelogs(task)
            offsets = {store: stamp.offsets.get(partition, 0) for store, partition in changelogs.items()}
            snapshot = Snapshot(offsets, dict(stamp.processor_metadata), commit.began_ms, [])
            newest = self._snapshots.newest(task, origin.kind)
            if newest is not None and not self._is_newer(admin, task, snapshot, newest):
                return False
            position = blake2b(stamp.encode(), digest_size=16).digest()
            segments = self._segments(self._reading, position, origin)
            name = self._snapshots.write(task, origin.kind, snapshot, segments)
        _log.debug("The snapshot %s of task %s is written.", name, task)
        self._snapshots.delete_old(task, origin.kind)
        return True

    def _is_newer(self, admin: Admin, task: TaskId, snapshot: Snapshot, newest: Snapshot) -> bool:
        """Return whether `snapshot` has a newer state, or the same as an aging newest one."""
        if snapshot.position != newest.position:
            return snapshot.position > newest.position
        return snapshot.current_ms - newest.current_ms > _most_age_ms(self._layout, admin, task) // 2

    def _segments(self, reading: _Reading, position: bytes, origin: SnapshotOrigin) -> Iterator[EncodedSegment]:
        """Yield the entries of a task.

        Between two segments the thread sleeps as long as it took to make one, so that it takes at most half a core from
        the tasks in this process. Raises UnusableSnapshotError after the time limit.
        """
        began = time.perf_counter()
        for step in whole_snapshot(reading.base, origin.layouts, position, 0, _SEGMENT_BYTES, 2 * _SEGMENT_BYTES):
            yield from step
            if step[-1].info.end is None:
                return
            if self._closed.wait(time.perf_counter() - began):
                raise UnusableSnapshotError("The instance ends.")
            if self._elapsed_ms() >= reading.until_ms:
                raise UnusableSnapshotError(
                    f"It took longer than {self._limit_ms} ms, and the state grows in this time. Set a "
                    "larger penstock.state.remote.interval.ms, or use a faster file system."
                )
            began = time.perf_counter()

    def _client(self) -> Admin:
        if self._admin is None:
            self._admin = self._make_admin()
        return self._admin


def _origin(layout: Layout, admin: Admin, task: TaskId) -> SnapshotOrigin:
    """Return the current origin for snapshots of `task`.

    Raises KafkaError if the brokers do not answer, and UnsupportedVersionError if they have no topic ids: a deleted
    changelog would then look the same as its successor.
    """
    changelogs = layout.followed_changelogs(task)
    ids = admin.topic_ids({partition.topic for partition in changelogs.values()})
    missing = [partition.topic for partition in changelogs.values() if partition.topic not in ids]
    if missing:
        raise UnsupportedVersionError(
            f"The brokers give {missing[0]} no topic id, which penstock.state.remote.dir needs: remove that key, or "
            "run brokers of Kafka 2.8 or later."
        )
    stores = layout.spec(task).stores
    layouts = layouts_of({name: stores[name] for name in changelogs}, layout.config)
    known = {store: Changelog(*partition, ids[partition.topic]) for store, partition in changelogs.items()}
    return SnapshotOrigin(str(layout.config.required("application.id")), str(task), layouts, known)


def _most_age_ms(layout: Layout, admin: Admin, task: TaskId) -> int:
    """Return the age limit of usable snapshots of `task` (ms).

    Raises KafkaError if the brokers do not answer.
    """
    topics = {partition.topic for partition in layout.followed_changelogs(task).values()}
    configs = [admin.describe_topic(topic).config for topic in sorted(topics)]
    return min(int(each.get(_DELETE_RETENTION, _DEFAULT_DELETE_RETENTION_MS)) for each in configs) // 2
