"""The state directory of an instance: who has it, the id of its process, and the bases of its tasks (Kafka class:
StateDirectory).

    <state.dir>/<application.id>/
      .lock                             held while an instance runs
      kafka-streams-process-metadata    the process id: the same as long as this directory is there
      group-member                      the member of the group that the instance is, or was if it did not leave
      <task>/                           the base of a task (`base_directory`)
      global/                           that of the global stores
      shared/                           with `penstock.state.shared`, the database of all tasks: then the directory of a
                                        base says who uses it, and that its part of the database can be trusted
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
"""In the place of a database: that the base is a part of the shared one, which is whole."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class StateDirectory:
    """The directory of one application on this machine."""

    def __init__(self, config: StreamsConfig) -> None:
        """Take nothing yet."""
        self._config = config
        self.path = application_path(config)
        """<state.dir>/<application.id>, which may not be there."""
        self._lock: IO[bytes] | None = None
        self._run = ""
        self._opening = threading.Lock()  # one environment a process and directory
        self._openings: Counter[TaskId] = Counter()
        self._bases: dict[TaskId, _DirectoryBase] = {}
        self._visit: _Visit | None = None
        self._is_shared: bool = config["penstock.state.shared"]
        self._shared: _Shared | None = None
        self._emptied: set[str] = set()
        """The parts of the shared database that are known to be empty: nobody has used them since."""

    @staticmethod
    def of_run(config: StreamsConfig, run: str) -> StateDirectory:
        """Return the directory as another process of the instance uses it. run: see `run`."""
        directory = StateDirectory(config)
        directory._run = run
        return directory

    @property
    def run(self) -> str:
        """What names the run of the instance that holds the directory: bases are trusted within it."""
        return self._run

    def acquire(self) -> None:
        """Take the directory for this instance; raises LockError if another one has it."""
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
        # what the disk has of a base is certain while the machine runs: files are not forced to disk
        boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
        self._run = f"{self.process_id()} {boot}"
        if not self._is_shared:  # copies that an earlier configuration has left
            shutil.rmtree(self.path / _SHARED, ignore_errors=True)

    def release(self) -> None:
        """Give the directory up; harmless when it is not held."""
        with self._opening:
            self._close_shared()
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None

    def process_id(self) -> str:
        """Return the process id of this directory, a new one if it has none."""
        path = self.path / _PROCESS
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(uuid.UUID(orjson.loads(path.read_bytes())["processId"]))
        made = str(uuid.uuid4())
        with open_private(path, "wb") as file:
            file.write(orjson.dumps({"processId": made}))
        return made

    def member_file(self) -> MemberFile:
        """Return where the instance keeps which member of the group it is."""
        return MemberFile(self.path / _MEMBER)

    def open_base(self, task: TaskId) -> Base:
        """Open or make the base of `task`. Raises LockError or ProcessorStateError if it cannot be opened."""
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
        """Open the base of `task` in the shared database, empty if `path` does not say that it can be trusted."""
        base = self._shared_database().base(path.name)
        if not path.is_dir() or [each.name for each in path.iterdir()] != [_PART]:
            shutil.rmtree(path, ignore_errors=True)
            base.clear()
            private_directory(path)
            open_private(path / _PART, "xb").close()
        return base

    def _shared_database(self) -> SharedLmdb:
        """Return the database of all tasks. The process that holds the directory finds out whether it can be trusted,
        before any other opens it."""
        if self._shared is None:
            directory = BaseDirectory(self.path / _SHARED, self._run, DATA_FILE)
            path = directory.database if self._lock is None else directory.enter()
            self._shared = _Shared(SharedLmdb(path), directory)
        return self._shared.database

    def _close_shared(self) -> BaseDirectory | None:
        """Close the database of all tasks; return its directory, None if it is not open, or a task that does not end
        has a base in it."""
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
        """Return how often this process has opened the base of `task`; from any thread."""
        return self._openings[task]

    @contextmanager
    def snapshot(self, task: TaskId) -> Iterator[LmdbSnapshot | None]:
        """Give the committed state of `task`, which this process or another one of the instance may have open, to a
        block, None if there is none. One thread may be in such a block.

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
        """Return the committed state of `task`, whose base this process has not open."""
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
        """End the reading of a base that another process has open, or only if it is that of `task`."""
        if self._visit is not None and task in (None, self._visit.task):
            self._visit.snapshot.close()
            self._visit.directory.leave()
            self._visit = None

    def has_base(self, task: TaskId) -> bool:
        """Return whether there is a directory for the base of `task`."""
        return self._task_path(task).is_dir()

    def seal(self) -> None:
        """Mark the bases that were closed as complete: they stay valid after a restart of the machine."""
        with self._opening:
            self._end_visit()
            shared = self._close_shared()
        for directory in self._directories() if shared is None else [shared]:
            with suppress(FileNotFoundError):
                directory.seal()
                crash_point("state.sealed", 0)

    def delete_unused(self, since: float) -> None:
        """Delete the directories of tasks that nobody has open and nobody has used since a time of the machine (s), and
        what is left of those in the middle of whose deletion a process was killed."""
        for path in filter(_is_left, self.path.iterdir()):
            shutil.rmtree(path)
        with self._opening:  # a task that comes back meanwhile waits, and finds its part of the database empty
            for directory in self._directories():
                with suppress(FileNotFoundError):
                    if directory.delete_if_unused(since):
                        crash_point("state.cleaned", 0)
                        self._emptied.discard(directory.database.name)
                        _log.info("Deleted the state of a task that others have: %s.", directory.database.parent)
            if self._shared is not None:
                for name in self._shared.database.names():
                    if (self.path / name).is_dir():  # perhaps since another process has opened it
                        self._emptied.discard(name)
                    elif name not in self._emptied:
                        self._shared.database.empty(name)
                        self._emptied.add(name)

    def _directories(self) -> Iterator[BaseDirectory]:
        """Yield the directories of tasks; that of the global stores, which each instance has, is left out."""
        for path in sorted(self.path.iterdir()):
            if _is_task(path.name) and path.is_dir():
                yield BaseDirectory(path, self._run, self._data_file())

    def clean_up(self) -> None:
        """Delete everything but the lock; raises LockError if an instance runs."""
        if not self.path.is_dir():
            return
        self.acquire()
        try:
            self.delete_state()
        finally:
            self.release()

    def delete_state(self) -> None:
        """Delete everything that instances keep here, but the lock, which the caller holds. What else there is, such as
        the checkpoint of the Spark host, stays."""
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
        """Return the file on which it depends whether the base of a task can be trusted, None if it has none."""
        return DATA_FILE if self._config["penstock.state.base"] == LMDB and not self._is_shared else None


class _Shared(NamedTuple):
    """The database of all tasks, and its directory."""

    database: SharedLmdb
    directory: BaseDirectory


class _Visit(NamedTuple):
    """The reading of a base that another process may have open."""

    task: TaskId
    snapshot: LmdbSnapshot
    directory: BaseDirectory


class _DirectoryBase:
    """A base in its directory, which it leaves when it is closed (implements Base)."""

    def __init__(self, base: DiskBase, directory: BaseDirectory, on_close: Callable[[_DirectoryBase], object]) -> None:
        self._base = base
        self._directory = directory
        self._on_close = on_close

    def stamp(self) -> bytes | None:
        """Return the stamp of the last commit applied, None if there was none."""
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
        """Return the present committed state, None of a base that is not LMDB; from any thread."""
        return self._base.snapshot() if isinstance(self._base, LmdbEntries) else None

    def close(self) -> None:
        """Release the database and leave the directory; one that is damaged is deleted, so that it is made again."""
        self._base.close()
        self._on_close(self)
        self._directory.leave(self._base.is_damaged)


def _is_task(name: str) -> bool:
    try:
        return str(TaskId.parse(name)) == name
    except ValueError:
        return False


def _is_left(path: Path) -> bool:
    """Return whether `path` is of a deletion that did not end."""
    return path.name.startswith(".") and path.is_dir()
