"""Reads the stores of an application from its checkpoint, in any process.

It follows the manifests, and keeps a StandbyTask for each requested task.

    <state.dir>/<application.id>/standby/<slot>/<task>     bases, one process per slot

Rules:
- A read is as of one manifest, over all tasks. Nothing is written to the checkpoint.
- Reads look for a newer manifest, at most once every `penstock.query.refresh.ms`.
- A driver that is ahead by all retained manifests may delete segments during a read: the reader then starts over from
  the newest manifest.
- A base remains after its reader is closed: the next reader in its slot updates it, if it is not too old.
"""

from __future__ import annotations

import fcntl
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from penstock.config import StreamsConfig
from penstock.errors import (
    CorruptedSegmentError,
    IncompatibleCheckpointError,
    InvalidStateStoreError,
    LockError,
    StateStoreNotAvailableError,
    TaskCorruptedError,
)
from penstock.host.api import AsOf
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.commits import commit_as_of
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.checkpoints.format_3 import with_headers_named
from penstock.host.spark.checkpoints.manifests import existing_metadata, manifest_of_version
from penstock.host.storage.directories import application_directory
from penstock.plan.subtopology import TaskId
from penstock.private_files import open_private, private_directory
from penstock.record import TopicPartition
from penstock.state.api import StoreBuilder
from penstock.state.base_directory import BaseDirectory
from penstock.state.kept_headers import store_layout
from penstock.state.lmdb import DATA_FILE, LmdbBase
from penstock.state.segment_log import log_from_json
from penstock.state.segments import SegmentInfo
from penstock.task.standby_task import StandbySnapshot, StandbyTask
from penstock_broker.common.clock import elapsed_milliseconds

_MOST_SLOTS = 64
_MOST_TRIES = 8

STANDBY_MAP_BYTES = 1 << 40
"""Size (bytes of address space) of the map of a base with snapshots.

The map cannot grow while snapshots are open.
"""


class _SegmentGoneError(Exception):
    """A segment of a manifest no longer exists."""


@dataclass(frozen=True)
class StateSnapshot:
    """The stores of some tasks as of one manifest; tasks by partition."""

    manifest: Manifest
    tasks: tuple[StandbySnapshot, ...]


@dataclass(frozen=True)
class StoredTasks:
    """The tasks of a checkpoint.

    Args:
        metadata: of the checkpoint.
        tasks: their ids.
        layouts: by sub-topology, the layout of each of its stores.
        groups: the partitions that a task reads, if they differ from those with its number.
    """

    metadata: Metadata
    tasks: tuple[TaskId, ...]
    layouts: Mapping[int, Mapping[str, str]]
    groups: Mapping[TaskId, tuple[TopicPartition, ...]]

    @property
    def query_id(self) -> str:
        """The current topology version of the checkpoint."""
        return self.metadata.query_id

    def with_store(self, name: str) -> list[TaskId]:
        """Return the tasks that have the store `name`, by partition."""
        return sorted(task for task in self.tasks if name in self.layouts.get(task.subtopology, {}))


def stored_tasks(checkpoint: Checkpoint) -> StoredTasks:
    """Return the tasks of `checkpoint`; raises StateStoreNotAvailableError if it does not exist yet."""
    metadata = with_headers_named(checkpoint, existing_metadata(checkpoint, StateStoreNotAvailableError))
    shape: Mapping[str, Any] = metadata.shape
    tasks = tuple(TaskId.parse(name) for level in shape["tasks of each level"] for name in level)
    groups = {
        TaskId.parse(name): tuple(map(_topic_partition, group.split(", ")))
        for name, group in shape.get("partitions of tasks", {}).items()
    }
    layouts = {int(id): stores for id, stores in shape["stores"].items()}
    return StoredTasks(metadata, tasks, layouts, groups)


class StateReader:
    """Reads the stores of one checkpoint. Thread-safe; opens nothing before the first read.

    Args:
        stores: the stores, by name.
        config: of the application.
        checkpoint: the checkpoint.
        as_of: the commit to read; None for the newest one at each read.
    """

    def __init__(
        self,
        stores: Mapping[str, StoreBuilder],
        config: StreamsConfig,
        checkpoint: Checkpoint,
        as_of: AsOf | None = None,
    ) -> None:
        self._as_of = as_of
        self._stores = stores
        self._config = config
        self._checkpoint = checkpoint
        self._refresh_ms: int = config["penstock.query.refresh.ms"]
        self._lock = threading.RLock()
        self._looked_at: int | None = None
        self._last_epoch = 0
        self._manifest: Manifest | None = None
        self._stored: StoredTasks | None = None
        self._standby: dict[TaskId, StandbyTask] = {}
        self._slot: _Slot | None = None
        self._process_id = uuid.uuid4().hex
        self._directories: list[BaseDirectory] = []
        self._open = True

    def read(self, store_name: str, partitions: Collection[int] | None = None) -> StateSnapshot:
        """Return the tasks that have the store `store_name`, as of the newest known commit; raises as `read_all`.

        All of them, or those of `partitions`; partitions that do not exist are omitted.
        """
        return self.read_all([store_name], partitions)[store_name]

    def read_all(
        self, store_names: Iterable[str], partitions: Collection[int] | None = None
    ) -> dict[str, StateSnapshot]:
        """Return the tasks of each store, as `read`; all as of one commit.

        Raises:
            StateStoreNotAvailableError: there is no checkpoint.
            IncompatibleCheckpointError: the checkpoint has the store in another layout than the program.
            InvalidStateStoreError: the reader is closed.
            TaskCorruptedError: a segment of the newest manifest is missing.
        """
        with self._lock:
            for _ in range(_MOST_TRIES):
                manifest = self._newest()
                try:
                    return {
                        name: StateSnapshot(
                            manifest,
                            tuple(
                                self._updated(task, manifest)
                                for task in self._tasks(name)
                                if partitions is None or task.partition in partitions
                            ),
                        )
                        for name in store_names
                    }
                except _SegmentGoneError as error:
                    self._look()
                    if self._manifest is manifest:
                        raise TaskCorruptedError(
                            f"Segment {error} is not in {self._checkpoint.uri}, though the manifest of epoch "
                            f"{manifest.epoch} names it: files were deleted. Restore the checkpoint from a copy."
                        ) from error
        raise StateStoreNotAvailableError(
            f"The application commits and deletes segments of {self._checkpoint.uri} faster than this reader reads "
            f"them: set penstock.manifests.retained higher than {self._config['penstock.manifests.retained']}."
        )

    def look(self) -> None:
        """Make the next read look for a newer commit, however recent the last look is."""
        with self._lock:
            self._looked_at = None

    def newest(self) -> Manifest:
        """Return the newest known manifest, after a look if one is due; raises as `read`."""
        with self._lock:
            return self._newest()

    def current(self) -> tuple[Manifest, StoredTasks]:
        """Return the newest known manifest and its tasks; raises as `read`."""
        with self._lock:
            manifest = self._newest()
            assert self._stored is not None
            return manifest, self._stored

    def retained(self) -> list[Manifest]:
        """Return all existing manifests, oldest first; raises as `read`."""
        with self._lock:
            newest = self._newest()
            epochs = range(max(self._checkpoint.first_epoch(), 1), newest.epoch + 1)
            found = [self._checkpoint.read_manifest(epoch, newest.query_id) for epoch in epochs]
            return [manifest for manifest in found if manifest is not None]

    def close(self) -> None:
        """Release all bases; earlier results become unreadable."""
        with self._lock:
            self._open = False
            self._close_tasks()
            if self._slot is not None:
                self._slot.release()
                self._slot = None

    # ---------- manifests

    def _newest(self) -> Manifest:
        if not self._open:
            raise InvalidStateStoreError(f"The state of {self._checkpoint.uri} was closed. Open it again.")
        now = elapsed_milliseconds()
        if self._looked_at is None or now - self._looked_at >= self._refresh_ms:
            self._look()
            self._looked_at = now
        assert self._manifest is not None
        return self._manifest

    def _look(self) -> None:
        """Load the newest manifest of the current topology version.

        It may be deleted between the listing and the read.
        """
        if self._as_of is not None:
            self._stored = stored_tasks(self._checkpoint)
            self._manifest = commit_as_of(self._checkpoint, self._stored.metadata, self._as_of)
            self._as_of = self._manifest.epoch  # later commits may be of the same time
            return
        for _ in range(_MOST_TRIES):
            stored = stored_tasks(self._checkpoint)
            epoch = self._checkpoint.last_epoch()
            if self._manifest is not None and (self._manifest.query_id, self._last_epoch) == (stored.query_id, epoch):
                return
            manifest = manifest_of_version(self._checkpoint, stored.metadata, epoch)
            if manifest is not None:
                if self._stored is not None and self._stored.query_id != stored.query_id:
                    self._close_tasks()  # tasks of another topology version may have other stores
                self._stored, self._manifest, self._last_epoch = stored, manifest, epoch
                return
        raise StateStoreNotAvailableError(
            f"The manifests of {self._checkpoint.uri} are deleted faster than this reader reads them: set "
            f"penstock.manifests.retained higher than {self._config['penstock.manifests.retained']}."
        )

    # ---------- tasks

    def _close_tasks(self) -> None:
        for task in self._standby.values():
            task.close()
        self._standby.clear()
        while self._directories:
            directory = self._directories.pop()
            directory.leave()
            directory.seal()

    def _tasks(self, store_name: str) -> list[TaskId]:
        assert self._stored is not None
        tasks = self._stored.with_store(store_name)
        for task in tasks:
            kept = self._stored.layouts[task.subtopology][store_name]
            wanted = store_layout(self._stores[store_name], self._config)
            if kept != wanted:
                raise IncompatibleCheckpointError(
                    f"Store {store_name} of task {task} has the layout {kept} in {self._checkpoint.uri}, and {wanted} "
                    "in the program: read it with the program that writes it, and its configuration."
                )
        return tasks

    def _updated(self, task: TaskId, manifest: Manifest) -> StandbySnapshot:
        standby = self._standby.get(task)
        if standby is None:
            standby = self._standby[task] = self._opened(task)
        try:
            standby.update(log_from_json(dict(manifest.entry(str(task)).segments)), partial(self._read, str(task)))
        except CorruptedSegmentError as error:
            raise damaged(self._checkpoint.segment_name(str(task), error.segment), f"it {error.why}") from error
        return standby.snapshot()

    def _opened(self, task: TaskId) -> StandbyTask:
        assert self._stored is not None
        if self._slot is None:
            self._slot = _Slot(application_directory(self._config) / "standby")
        names = self._stored.layouts[task.subtopology]
        stores = {name: self._stores[name] for name in names if name in self._stores}
        used = BaseDirectory(self._slot.directory / str(task), self._process_id, DATA_FILE)
        self._directories.append(used)
        base = LmdbBase(used.enter(), map_bytes=STANDBY_MAP_BYTES)
        return StandbyTask(task, stores, self._config, base)

    def _read(self, task: str, info: SegmentInfo) -> bytes:
        data = self._checkpoint.read_segment(task, info.id.hex())
        if data is None:
            raise _SegmentGoneError(f"{info.id.hex()} of task {task}")
        return data


class _Slot:
    """A directory reserved for this process, for as long as it lives.

    Args:
        parent: the directory with all slots.
    """

    def __init__(self, parent: Path) -> None:
        for number in range(_MOST_SLOTS):
            directory = parent / str(number)
            private_directory(directory)
            lock = open_private(directory / "lock", "ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self.directory = directory
            self._lock: IO[bytes] = lock
            return
        raise LockError(
            f"{_MOST_SLOTS} state readers are already open in {parent}: close some, or give this process another "
            "state.dir."
        )

    def release(self) -> None:
        """Release the directory for other processes."""
        with suppress(OSError):
            self._lock.close()


def _topic_partition(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))
