"""A base in an LMDB environment of its own, whose map grows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

import lmdb

from penstock.errors import InvalidStateStoreError, ProcessorStateError
from penstock.private_files import FILE_MODE, private_directory
from penstock.state.lmdb.entries import LmdbEntries
from penstock.state.lmdb.environment import (
    DAMAGED,
    FIRST_MAP_BYTES,
    MAX_READERS,
    MOST_DOUBLINGS,
    growing,
    opened_or_empty,
)
from penstock.state.lmdb.snapshot import LmdbSnapshot


class LmdbBase(LmdbEntries):
    """A base on disk that several processes may read (implements Base; replaces Kafka's RocksDBStore).

    Args:
        path: the directory; it is created if missing.
        map_bytes: the initial size of the map (bytes).

    Raises:
        ProcessorStateError: the base cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], map_bytes: int = FIRST_MAP_BYTES) -> None:
        self._path = Path(path)
        self._process = os.getpid()
        self._reading: lmdb.Transaction | None = None
        self._numbers: dict[str, bytes | None] = {}  # as of that transaction
        self._snapshots: WeakSet[LmdbSnapshot] = WeakSet()  # a snapshot without references ends
        self._lock = threading.RLock()  # for snapshots, which other threads create and close
        try:
            private_directory(self._path)
            self._environment = opened_or_empty(self._path, lambda: self._open(map_bytes))
        except (OSError, lmdb.Error) as error:
            raise self._failed("cannot be opened", error) from error

    def close(self) -> None:
        """Close the environment; later calls raise InvalidStateStoreError."""
        with self._lock:
            if self._environment is not None:
                self._end_snapshots()
                self._end_reading()
                self._environment.close()
                self._environment = None

    def snapshot(self) -> LmdbSnapshot:
        """Return the current committed state, in a transaction of its own; thread-safe.

        The snapshot ends when the map grows or the base is closed: its reads raise InvalidStateStoreError then. This
        method also raises it if another process has grown the map since the last read of the base here.
        """
        with self._lock:
            try:
                transaction = self._opened().begin()
            except lmdb.MapResizedError as error:  # only the reading thread may move the map
                why = f"Another process has changed the base {self._path}: read it first."
                raise InvalidStateStoreError(why) from error
            snapshot = LmdbSnapshot(self._path, transaction, self._entries, self._meta, self._forget_snapshot)
            self._snapshots.add(snapshot)
            return snapshot

    def cursor(self) -> AbstractContextManager[lmdb.Cursor]:
        """Return a cursor over the entries; close it before the next `apply`."""
        return cast("AbstractContextManager[lmdb.Cursor]", self._reader().cursor(db=self._entries))

    def number(self, store_name: str) -> bytes | None:
        """Return the two-byte key prefix of a store, None before its first entry."""
        if store_name not in self._numbers:  # a read of LMDB lets other threads run
            self._numbers[store_name] = super().number(store_name)
        return self._numbers[store_name]

    # ---------- helpers

    def _get(self, key: bytes, database: Any) -> bytes | None:
        try:
            return cast("bytes | None", self._reader().get(key, db=database))
        except DAMAGED as error:
            raise self.corrupted(error) from error

    def _open(self, map_bytes: int) -> lmdb.Environment:
        environment = growing(
            lambda: lmdb.open(
                str(self._path),
                map_size=map_bytes,
                sync=False,
                metasync=False,
                max_dbs=2,
                max_readers=MAX_READERS,
                mode=FILE_MODE,
            )
        )
        environment.reader_check()  # frees the slots of readers that were killed
        with growing(lambda: environment.begin(write=True), lambda: environment.set_mapsize(0)) as transaction:
            self._open_databases(environment, transaction, b"")
        return environment

    def _write(self, action: Callable[[lmdb.Transaction], None]) -> None:
        """Run `action` in the write transaction directly after the last read. The map grows as needed."""
        environment = self._opened()
        seen = self._reader().id()
        self._end_reading()
        for _ in range(MOST_DOUBLINGS):
            try:
                with self._begin(write=True) as transaction:
                    if transaction.id() != seen + 1:
                        raise self._moved()
                    action(transaction)
                    size = self._bytes(transaction)
                self._size = size
                return
            except lmdb.MapFullError:
                self._resize(environment.info()["map_size"] * 2)
            except DAMAGED as error:
                raise self.corrupted(error) from error
            except lmdb.Error as error:
                raise self._failed("cannot be written", error) from error
        raise ProcessorStateError(
            f"The base {self._path} is full with a map of {environment.info()['map_size']} bytes: "
            "spread the state over more tasks."
        )

    def _reader(self) -> lmdb.Transaction:
        if self._reading is None:
            self._reading = self._begin(write=False)
        return self._reading

    def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.abort()
            self._reading = None
            self._numbers.clear()

    def _begin(self, write: bool) -> lmdb.Transaction:
        """Return a new transaction, adapting the map if other processes have grown it."""
        return growing(lambda: self._opened().begin(write=write), lambda: self._resize(0))

    def _resize(self, map_bytes: int) -> None:
        """Change the size of the map (0: that of the file). This process must have no transactions."""
        with self._lock:
            self._end_snapshots()
            self._opened().set_mapsize(map_bytes)

    def _end_snapshots(self) -> None:
        for snapshot in list(self._snapshots):
            snapshot.close()

    def _forget_snapshot(self, snapshot: LmdbSnapshot) -> None:
        self._snapshots.discard(snapshot)
