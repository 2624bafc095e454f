"""The state directory of an instance: its lock, process id and bases (Kafka class: StateDirectory).

Files:

    <state.dir>/<application.id>/
      .lock                             held while an instance runs
      kafka-streams-process-metadata    the process id: it lasts as long as this directory
      group-member                      the group member of the instance, also of an earlier one that did not leave
      <task>/                           the base of a task (`base_directory`)
      global/                           the base of the global stores
      shared/                           with `penstock.state.shared`, the database of all tasks: the directory of a
                                        base then only names its user, and marks its part of the database as trusted
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import orjson

from penstock.config import StreamsConfig
from penstock.errors import LockError
from penstock.host.crashpoints import crash_point
from penstock.host.storage.directories import application_directory, application_path
from penstock.host.threads.member_file import MemberFile
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.metrics.measurements import Measurement
from penstock.plan.subtopology import TaskId
from penstock.private_files import open_private, private_directory
from penstock.state.api import Base, BaseView, Changes, DiskBase
from penstock.state.base_directory import BaseDirectory
from penstock.state.lmdb import DATA_FILE, LmdbEntries, LmdbSnapshot, SharedLmdb, snapshot_of
from penstock.state.open import LMDB, open_base

_log = logging.getLogger(__name__)

_LOCK = ".lock"
_PROCESS = "kafka-streams-process-metadata"
_MEMBER = "group-member"
_GLOBAL = "global"
_SHARED = "shared"
_PART = "in-shared"
"""A file in place of a database. It marks the base as an intact part of the shared database."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class StateDirectory:
    """The directory of one application on this machine. The constructor does not touch it."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self.path = application_path(config)
        """<state.dir>/<application.id>, which may not exist."""
        self._lock: IO[bytes] | None = None
        self._run = ""
        self._opening = threading.Lock()  # one environment per process and directory
        self._openings: Counter[TaskId] = Counter()
        self._bases: dict[TaskId, _DirectoryBase] = {}
        self._visit: _Visit | None = None
        self._is_shared: bool = config["penstock.state.shared"]
        self._shared: _Shared | None = None
        self._emptied: set[str] = set()
        """The parts of the shared database known to be empty, and unused since."""

    @staticmethod
    def of_run(config: StreamsConfig, run: str) -> StateDirectory:
        """Return the directory for another process of the instance. run: see `run`."""
        directory = StateDirectory(config)
        directory._run = run
        return directory

    @property
    def run(self) -> str:
        """The name of the current run of the instance; bases are trusted within a run."""
        return self._run

    def acquire(self) -> None:
        """Lock the directory for this instance; raises LockError if another instance holds it."""
        path = application_directory(self._config)
        lock = open_private(path / _LOCK, "a+b")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip() or "unknown"
            lock.close()
            raise LockError(
                f"Another instance of {self._config['application.id']} (pid {holder}) uses the state directory {path}. "
                "Each instance on a machine needs its own: set state.dir, or close the other one."
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
        lock.flush()
        self._lock = lock
        # files are not forced to disk, so the bases on disk are reliable only while the machine runs
        boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
        self._run = f"{self.process_id()} {boot}"
        if not self._is_shared:  # copies left by an earlier configuration
            shutil.rmtree(self.path / _SHARED, ignore_errors=True)

    def release(self) -> None:
        """Unlock the directory; harmless if it is not held."""
        with self._opening:
            self._close_shared()
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None

    def process_id(self) -> str:
        """Return the process id of this directory; create one if it is missing."""
        path = self.path / _PROCESS
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(uuid.UUID(orjson.loads(path.read_bytes())["processId"]))
        made = str(uuid.uuid4())
        with open_private(path, "wb") as file:
            file.write(orjson.dumps({"processId": made}))
        return made

    def member_file(self) -> MemberFile:
        """Return the file with the group member of the instance."""
        return MemberFile(self.path / _MEMBER)

    def open_base(self, task: TaskId) -> Base:
        """Open or create the base of `task`. Raises LockError or ProcessorStateError if it cannot be opened."""
        with self._opening:
            self._openings[task] += 1
            self._emptied.discard(str(task))
            self._end_visit(task)
            directory = BaseDirectory(self._task_path(task), self._run, self._data_file())
            path = directory.enter()
            try:
                base = self._opened_part(task, path) if self._is_shared else self._opened(path)
            except BaseException:
                directory.leave()
                raise
            opened = self._bases[task] = _DirectoryBase(base, directory, partial(self._forget, task))
        return opened

    def _opened(self, path: Path) -> DiskBase:
        return open_base(self._config["penstock.state.base"], path, self._config)

    def _opened_part(self, task: TaskId, path: Path) -> DiskBase:
        """Open the base of `task` in the shared database. Clear it unless `path` marks it as trusted."""
        base = self._shared_database().base(path.name)
        if not path.is_dir() or [each.name for each in path.iterdir()] != [_PART]:
            shutil.rmtree(path, ignore_errors=True)
            base.clear()
            private_directory(path)
            open_private(path / _PART, "xb").close()
        return base

    def _shared_database(self) -> SharedLmdb:
        """Return the database of all tasks. The process that holds the directory checks whether it can be trusted,
        before any other process opens it."""
        if self._shared is None:
            directory = BaseDirectory(self.path / _SHARED, self._run, DATA_FILE)
            path = directory.database if self._lock is None else directory.enter()
            self._shared = _Shared(SharedLmdb(path), directory)
        return self._shared.database

    def _close_shared(self) -> BaseDirectory | None:
        """Close the database of all tasks, and return its directory. Return None if it is not open, or if a task that
        does not end has a base in it."""
        if self._shared is None or self._bases:
            return None
        database, directory = self._shared
        self._shared = None
        self._emptied.clear()
        database.close()
        directory.leave()
        return directory

    def _forget(self, task: TaskId, base: _DirectoryBase) -> None:
        if self._bases.get(task) is base:
            del self._bases[task]

    def openings(self, task: TaskId) -> int:
        """Return the number of openings of `task`'s base by this process; from any thread."""
        return self._openings[task]

    @contextmanager
    def snapshot(self, task: TaskId) -> Iterator[LmdbSnapshot | None]:
        """Open the committed state of `task` for a block, None if it has no state. The base may be open in this process
        or another one of the instance. Only one thread at a time may be in such a block.

        The snapshot ends, and reads of it raise InvalidStateStoreError, when this process opens or closes the base, or
        the map of the base moves. Raises ProcessorStateError if it cannot be read.
        """
        with self._opening:
            base = self._bases.get(task)
            snapshot = self._visited(task) if base is None else base.snapshot()
        try:
            yield snapshot
        finally:
            with self._opening:
                self._end_visit()
            if snapshot is not None:
                snapshot.close()

    def _visited(self, task: TaskId) -> LmdbSnapshot | None:
        """Return the committed state of `task`, whose base is not open in this process."""
        directory = BaseDirectory(self._task_path(task), self._run, self._data_file())
        path = directory.visit_own()
        if path is None:
            return None
        try:
            snapshot = self._shared_database().base(path.name).snapshot() if self._is_shared else snapshot_of(path)
        except BaseException:
            directory.leave()
            raise
        if snapshot is None:
            directory.leave()
        else:
            self._visit = _Visit(task, snapshot, directory)
        return snapshot

    def _end_visit(self, task: TaskId | None = None) -> None:
        """Stop reading a base that another process has open. task: only if it is the base of this task."""
        if self._visit is not None and task in (None, self._visit.task):
            self._visit.snapshot.close()
            self._visit.directory.leave()
            self._visit = None

    def has_base(self, task: TaskId) -> bool:
        """Return whether `task` has a base directory."""
        return self._task_path(task).is_dir()

    def seal(self) -> None:
        """Mark the closed bases as complete. They then stay valid after a restart of the machine."""
        with self._opening:
            self._end_visit()
            shared = self._close_shared()
        for directory in self._directories() if shared is None else [shared]:
            with suppress(FileNotFoundError):
                directory.seal()
                crash_point("state.sealed", 0)

    def delete_outdated(self, since: float) -> None:
        """Delete the directories of tasks that are unused since a wall-clock time (s), before an instance starts.
        Raises LockError if an instance runs."""
        if not self.path.is_dir():
            return
        self.acquire()
        try:
            self.delete_unused(since, "that is too old (state.cleanup.dir.max.age.ms)")
        finally:
            self.release()

    def delete_unused(self, since: float, reason: str = "that others have") -> None:
        """Delete the directories of tasks that are closed and unused since a wall-clock time (s). Also delete the
        remains of deletions interrupted by a kill of the process.

        reason: for the log, after "the state of a task".
        """
        for path in filter(_is_left, self.path.iterdir()):
            shutil.rmtree(path)
        with self._opening:  # a task that returns meanwhile waits, and finds its part of the database empty
            for directory in self._directories():
                with suppress(FileNotFoundError):
                    if directory.delete_if_unused(since):
                        crash_point("state.cleaned", 0)
                        self._emptied.discard(directory.database.name)
                        _log.info("Deleted the state of a task %s: %s.", reason, directory.database.parent)
            if self._shared is not None:
                for name in self._shared.database.names():
                    if (self.path / name).is_dir():  # another process may have opened it since
                        self._emptied.discard(name)
                    elif name not in self._emptied:
                        self._shared.database.empty(name)
                        self._emptied.add(name)

    def _directories(self) -> Iterator[BaseDirectory]:
        """Yield the directories of tasks, without that of the global stores, which each instance has."""
        for path in sorted(self.path.iterdir()):
            if _is_task(path.name) and path.is_dir():
                yield BaseDirectory(path, self._run, self._data_file())

    def clean_up(self) -> None:
        """Delete everything except the lock; raises LockError if an instance runs."""
        if not self.path.is_dir():
            return
        self.acquire()
        try:
            self.delete_state()
        finally:
            self.release()

    def delete_state(self) -> None:
        """Delete everything that instances keep here, except the lock, which the caller holds. Other files, such as the
        checkpoint of the Spark host, stay."""
        for path in self._kept():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def has_state(self) -> bool:
        """Return whether an instance has kept anything here."""
        return any(self._kept())

    def _kept(self) -> list[Path]:
        paths = self.path.iterdir() if self.path.is_dir() else ()
        named = (_PROCESS, _GLOBAL, _SHARED)
        return [path for path in paths if path.name in named or _is_task(path.name) or _is_left(path)]

    def _task_path(self, task: TaskId) -> Path:
        return self.path / (_GLOBAL if task == GLOBAL_TASK else str(task))

    def _data_file(self) -> str | None:
        """Return the name of the file that decides on trust in a base, if any."""
        return DATA_FILE if self._config["penstock.state.base"] == LMDB and not self._is_shared else None


class _Shared(NamedTuple):
    """The database of all tasks, and its directory."""

    database: SharedLmdb
    directory: BaseDirectory


class _Visit(NamedTuple):
    """A read of a base that another process may have open."""

    task: TaskId
    snapshot: LmdbSnapshot
    directory: BaseDirectory


class _DirectoryBase:
    """A base in its directory, which it leaves on close (implements Base)."""

    def __init__(self, base: DiskBase, directory: BaseDirectory, on_close: Callable[[_DirectoryBase], object]) -> None:
        self._base = base
        self._directory = directory
        self._on_close = on_close

    def stamp(self) -> bytes | None:
        """Return the stamp of the last applied commit, None before the first commit."""
        return self._base.stamp()

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store."""
        return self._base.view(store_name)

    def apply(self, changes: Changes, stamp: bytes) -> None:
        """Apply the changes of one commit and set the stamp."""
        self._base.apply(changes, stamp)

    def rebuild(self, commits: Callable[[], Iterable[Changes]], stamp: bytes) -> None:
        """Drop all entries, apply the changes of `commits` and set the stamp."""
        self._base.rebuild(commits, stamp)

    def clear(self) -> None:
        """Drop all entries and the stamp."""
        self._base.clear()

    def measured(self) -> Mapping[str, Measurement]:
        """Return the measurements of the database."""
        return self._base.measured()

    def snapshot(self) -> LmdbSnapshot | None:
        """Return the current committed state, None for a base other than LMDB; from any thread."""
        return self._base.snapshot() if isinstance(self._base, LmdbEntries) else None

    def close(self) -> None:
        """Release the database and leave the directory. A damaged database is deleted, to be created again."""
        self._base.close()
        self._on_close(self)
        self._directory.leave(self._base.is_damaged)


def _is_task(name: str) -> bool:
    try:
        TaskId.parse(name)
    except ValueError:
        return False
    return True


def _is_left(path: Path) -> bool:
    """Return whether `path` remains from an unfinished deletion."""
    return path.name.startswith(".") and path.is_dir()
