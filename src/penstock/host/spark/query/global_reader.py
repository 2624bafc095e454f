"""Reads the global stores of this machine outside the tasks.

Meanwhile workers keep them up to date. A read shows one commit of the base: that of the newest epoch, or an earlier one
while a large update is in progress. A machine without workers of the application has no base to read.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.config import StreamsConfig
from penstock.errors import StateStoreNotAvailableError
from penstock.host.spark.worker.global_state import clocks_of, global_directory, lock_path
from penstock.plan.subtopology import TaskId
from penstock.private_files import open_private
from penstock.state.api import StateStore, StoreBuilder
from penstock.state.base_directory import BaseDirectory
from penstock.state.lmdb import DATA_FILE, LmdbBase
from penstock.task.standby_task import StandbySnapshot

_GLOBAL_TASK = TaskId(-1, -1)
_MAP_BYTES = 1 << 40  # address space only: the map cannot grow while snapshots are open
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.02


class GlobalStateReader:
    """Reads the global stores of one application. Thread-safe; opens nothing before the first read.

    Args:
        stores: the global stores, by name.
        config: of the application.
    """

    def __init__(self, stores: Mapping[str, StoreBuilder], config: StreamsConfig) -> None:
        self._stores = stores
        self._config = config
        self._lock = threading.Lock()
        self._base: LmdbBase | None = None
        self._directory = BaseDirectory(global_directory(config), "", DATA_FILE)

    def store(self, name: str) -> StateStore:
        """Return the current store `name`.

        Raises StateStoreNotAvailableError if it is not on this machine yet, IncompatibleCheckpointError if the stores
        there have other layouts than those of the program.
        """
        with self._lock:
            if self._base is None:
                self._base = self._open()
            snapshot = self._base.snapshot()
        stamp = snapshot.stamp()
        if stamp is None:
            raise self._not_there(name)
        try:
            clocks = clocks_of(stamp, self._stores, self._config)
        except BaseException:
            snapshot.close()
            raise
        found = StandbySnapshot(_GLOBAL_TASK, self._stores, self._config, snapshot, clocks).store(name)
        if found is None:
            raise self._not_there(name)
        return found

    def close(self) -> None:
        """Release the base; stores that were returned become unreadable."""
        with self._lock:
            if self._base is not None:
                self._base.close()
                self._base = None
            self._directory.leave()

    def _open(self) -> LmdbBase:
        directory = global_directory(self._config)
        if not directory.is_dir():
            raise self._not_there(", ".join(sorted(self._stores)))
        with open_private(lock_path(self._config), "ab") as lock:
            self._wait(lock.fileno(), directory)
            database = self._directory.visit()
            if database is None:
                raise self._not_there(", ".join(sorted(self._stores)))
            return LmdbBase(database, _MAP_BYTES)

    def _wait(self, lock: int, directory: Path) -> None:
        """Acquire the lock for creating and updating the base."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StateStoreNotAvailableError(
                        f"The global stores in {directory} are being built from their topics; ask again later."
                    ) from None
            time.sleep(_LOOK_SECONDS)

    def _not_there(self, name: str) -> StateStoreNotAvailableError:
        return StateStoreNotAvailableError(
            f"The global store {name} is not on this machine, in {global_directory(self._config)}: no epoch of the "
            "application has run here yet."
        )
