"""The places of tasks' bases on a machine, and opening them in a worker.

<state.dir>/<application.id>/
  bases/<task>             LMDB; any worker may have it open
  bases-rocksdb/<task>     RocksDB, if `penstock.state.base` is rocksdb; one worker at a time
  global                   LMDB, of the global stores (`global_state`)
  uncommitted/<task>/      changes that exceed the memory of an attempt, until it ends

`base_directory` describes their content, and when they are trusted.
"""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

from penstock.config import StreamsConfig
from penstock.errors import LockError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.application_description import DESCRIPTIONS_AT_HAND, ApplicationDescription
from penstock.host.storage.directories import application_directory
from penstock.state.api import Base
from penstock.state.base_directory import BaseDirectory
from penstock.state.lmdb import DATA_FILE, LmdbBase
from penstock.state.open import LMDB, ROCKSDB, open_base
from penstock_broker.common.clock import Clock, SystemClock, elapsed_milliseconds

_log = logging.getLogger(__name__)

_DIRECTORIES = {LMDB: "bases", ROCKSDB: "bases-rocksdb"}
GLOBAL_DIRECTORY = "global"
_CLEAN_MS = 60_000
_MOST_DELETED = 100
_EPOCHS_SEEN = 3
"""The current epoch, one that ran completely, and an earlier one in which this process already existed."""

_PATIENCE_SECONDS = 60
_LOOK_SECONDS = 0.05


class TaskBase:
    """The base of a task, opened by one worker.

    Opening waits for a worker that has it open, if only one may.

    Args:
        description: of the application.
        checkpoint: of the application.
        task: id of the task.
        content_bytes: approximate size of the base's content.

    Attributes:
        is_new: whether this machine had no base that could be trusted.

    Raises:
        LockError: another worker had it open for a minute: an abandoned attempt of the task that still runs.
        ProcessorStateError: it cannot be opened.
        TaskMigratedError: another run of the application uses it, and is newer by `checkpoint`.
    """

    def __init__(
        self, description: ApplicationDescription, checkpoint: Checkpoint, task: str, content_bytes: int
    ) -> None:
        kind = description.config["penstock.state.base"]
        for other in _DIRECTORIES.keys() - {kind}:  # of a run with another configuration: outdated and superfluous
            shutil.rmtree(_directory(description, _DIRECTORIES[other], task), ignore_errors=True)
        self._directory = task_directory(description, task, checkpoint)
        database = self._directory.enter()
        self.is_new = not database.exists()
        try:
            self.base = _open_patiently(kind, database, description.config, content_bytes)
        except BaseException:
            self._directory.leave()
            raise

    def is_at(self, path: str) -> bool:
        """Return whether this is the base in the directory `path`."""
        return str(self._directory.database) == path

    def close(self, is_damaged: bool) -> None:
        """Release the base; is_damaged: the next worker rebuilds it."""
        self.base.close()
        self._directory.leave(is_damaged)


def task_directory(description: ApplicationDescription, task: str, checkpoint: Checkpoint) -> BaseDirectory:
    """Return the directory of the base of `task` on each machine."""
    kind = description.config["penstock.state.base"]
    data_file = DATA_FILE if kind == LMDB else None
    alone = partial(checkpoint.check_generation, description.generation)
    return BaseDirectory(_directory(description, _DIRECTORIES[kind], task), description.process_id, data_file, alone)


def seal_bases(directory: Path, process_id: str) -> None:
    """Mark the bases of an application below `directory` on this machine as intact.

    Only bases of the run `process_id`, which has ended in an orderly way, are marked.
    """
    paths = [*(directory / _DIRECTORIES[LMDB]).glob("*"), directory / GLOBAL_DIRECTORY]
    for path in paths:
        BaseDirectory(path, process_id, DATA_FILE).seal()


def _open_patiently(kind: str, path: Path, config: StreamsConfig, content_bytes: int) -> Base:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return open_base(kind, path, config, content_bytes)
        except LockError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOOK_SECONDS)


class BaseCleaner:
    """Deletes the bases of tasks that now run on other machines (Kafka class: StateDirectory).

    Each epoch runs every task, or keeps the base of one that has nothing to do. So a base that was not used in a whole
    epoch belongs to a task that ran elsewhere, however long the application had nothing to do before.

    Args:
        directory: of the application on this machine.
        delay_ms: how long an unused base is kept.
        wall_clock: by which files are dated.
        elapsed_ms: a monotonic clock.
    """

    def __init__(self, directory: Path, delay_ms: int, wall_clock: Clock, elapsed_ms: Callable[[], int]) -> None:
        self._directory = directory
        self._delay_ms = delay_ms
        self._wall_clock = wall_clock
        self._elapsed_ms = elapsed_ms
        self._begun: deque[tuple[int, int]] = deque(maxlen=_EPOCHS_SEEN)
        self._looked_ms = elapsed_ms()

    def look(self, epoch: int) -> None:
        """Delete bases that are due, if it is time.

        Called with each epoch in which this process takes part.
        """
        now = self._wall_clock.milliseconds()
        if not self._begun or self._begun[-1][0] != epoch:
            self._begun.append((epoch, now))
        if len(self._begun) < _EPOCHS_SEEN or self._elapsed_ms() - self._looked_ms < min(self._delay_ms, _CLEAN_MS):
            return
        self._looked_ms = self._elapsed_ms()
        since = min(self._begun[0][1], now - self._delay_ms) / 1000
        left = _MOST_DELETED
        for path in chain.from_iterable((self._directory / kind).glob("*") for kind in _DIRECTORIES.values()):
            with suppress(OSError):  # another worker deletes it too
                if BaseDirectory(path, "", None).delete_if_unused(since):
                    _log.info("The base %s is deleted: its task runs on another machine.", path)
                    left -= 1
            if left == 0:
                return


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def base_cleaner(directory: Path, delay_ms: int) -> BaseCleaner:
    """Return the cleaner of unused bases below `directory`; one per application and process."""
    return BaseCleaner(directory, delay_ms, SystemClock(), elapsed_milliseconds)


def keep_base(description: ApplicationDescription, task: str, checkpoint: Checkpoint) -> None:
    """Keep the base of `task` on this machine.

    The task is placed here and has nothing to do in this epoch.
    """
    task_directory(description, task, checkpoint).keep()


def clean_bases(description: ApplicationDescription, epoch: int) -> None:
    """Delete bases of tasks that left this machine longer than `state.cleanup.delay.ms` ago."""
    base_cleaner(application_directory(description.config), description.config["state.cleanup.delay.ms"]).look(epoch)


class Scratch:
    """A place on disk for the uncommitted changes of one attempt of a task.

    The constructor deletes the remains of killed attempts.
    """

    def __init__(self, description: ApplicationDescription, task: str) -> None:
        self._directory = _directory(description, "uncommitted", task)
        self.clear()

    def open(self) -> Base:
        """Return an empty base."""
        return LmdbBase(self._directory / uuid.uuid4().hex)

    def clear(self) -> None:
        """Delete the existing base; a process that has it open may keep using it."""
        shutil.rmtree(self._directory, ignore_errors=True)


def _directory(description: ApplicationDescription, kind: str, task: str) -> Path:
    return application_directory(description.config) / kind / task
