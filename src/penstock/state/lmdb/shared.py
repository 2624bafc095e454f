"""Several bases in one LMDB environment, with two files and two file handles.

This holds for any number of processes and threads that open them.

Rules:
- Each base has two named databases, so it can be emptied without the others. A commit of one base is one transaction,
  as in an environment of its own; LMDB allows one write transaction at a time, so commits of different bases wait for
  each other.
- Each read has its own transaction: an idle base with an open one would keep LMDB from reusing the pages that the
  others replace.
- The map never grows, because all threads of the process would have to stop for that. Its address space is larger than
  any state, and takes neither memory nor disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import lmdb

from penstock.errors import ProcessorStateError
from penstock.private_files import FILE_MODE, private_directory
from penstock.state.lmdb.entries import LmdbEntries
from penstock.state.lmdb.environment import DAMAGED, opened_or_empty
from penstock.state.lmdb.reader import STAMP
from penstock.state.lmdb.snapshot import LmdbSnapshot

MAP_BYTES: Final = 1 << 40
_MAX_DATABASES: Final = 8192
_MAX_READERS: Final = 4096
_SPARE_TRANSACTIONS: Final = 16
"""Number of read transactions kept for reuse. A new one allocates memory for all possible databases."""

_SEPARATOR: Final = "/"


class SharedLmdb:
    """The environment of one process; close it after all its bases.

    Args:
        path: the directory; it is created if missing.
        map_bytes: the size of the map (bytes), which never grows.

    Raises:
        ProcessorStateError: the environment cannot be opened.
    """

    def __init__(self, path: Path, map_bytes: int = MAP_BYTES) -> None:
        self.path = path
        try:
            private_directory(path)
            self._environment: lmdb.Environment = opened_or_empty(path, lambda: self._open(map_bytes))
        except (OSError, lmdb.Error) as error:
            raise ProcessorStateError(
                f"The shared base {path} cannot be opened: {error}. Is there space on the disk, may this user write "
                f"there, and may a process have {map_bytes} bytes of addresses (ulimit -v)? Otherwise remove "
                "penstock.state.shared."
            ) from error

    def base(self, name: str) -> SharedLmdbBase:
        """Open or create the base `name`; raises ProcessorStateError if it cannot be created."""
        return SharedLmdbBase(self.path, self._environment, name)

    def names(self) -> list[str]:
        """Return the names of all bases ever created here."""
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            return sorted({key.decode().rpartition(_SEPARATOR)[0] for key in cursor.iternext(values=False)})

    def empty(self, name: str) -> bool:
        """Empty the base `name`, which must not be open; return whether it had content."""
        base = self.base(name)
        has_any = not base.is_empty()
        if has_any:
            base.clear()
        base.close()
        return has_any

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _open(self, map_bytes: int) -> lmdb.Environment:
        environment = lmdb.open(
            str(self.path),
            map_size=map_bytes,
            sync=False,
            metasync=False,
            max_dbs=_MAX_DATABASES,
            max_readers=_MAX_READERS,
            max_spare_txns=_SPARE_TRANSACTIONS,
            mode=FILE_MODE,
        )
        environment.reader_check()  # frees the slots of readers that were killed
        return environment


class SharedLmdbBase(LmdbEntries):
    """A base in a shared environment (implements Base), used by one thread at a time.

    Other threads may read its snapshots.

    Args:
        path: the directory of the environment.
        environment: the shared environment.
        name: the name of the base; it is created if missing.

    Raises:
        ProcessorStateError: the base cannot be created.
    """

    def __init__(self, path: Path, environment: lmdb.Environment, name: str) -> None:
        self._path = path / name
        self._process = os.getpid()
        self._environment = environment
        self._snapshots: WeakSet[LmdbSnapshot] = WeakSet()  # a snapshot without references ends
        self._lock = threading.Lock()  # for snapshots, which other threads create and close
        self._numbers: dict[str, bytes] = {}
        try:
            with environment.begin(write=True) as transaction:
                self._open_databases(environment, transaction, f"{name}{_SEPARATOR}".encode())
        except lmdb.Error as error:
            raise self._failed("cannot be opened", error) from error
        self._seen = super().stamp()

    def stamp(self) -> bytes | None:
        """Return the stamp of the last commit, None if absent. The next `apply` must follow that commit."""
        self._seen = super().stamp()
        return self._seen

    def is_empty(self) -> bool:
        """Return whether the base has neither entries nor a stamp."""
        with self._opened().begin() as transaction:
            return not any(transaction.stat(database)["entries"] for database in (self._entries, self._meta))

    def snapshot(self) -> LmdbSnapshot:
        """Return the current committed state, in a transaction of its own; thread-safe.

        The snapshot ends when the base is closed: its reads raise InvalidStateStoreError then.
        """
        with self._lock:
            transaction = self._opened().begin()
            snapshot = LmdbSnapshot(self._path, transaction, self._entries, self._meta, self._snapshots.discard)
            self._snapshots.add(snapshot)
            return snapshot

    def close(self) -> None:
        """Release the base; later calls raise InvalidStateStoreError."""
        with self._lock:
            for snapshot in list(self._snapshots):
                snapshot.close()
            self._environment = None

    def number(self, store_name: str) -> bytes | None:
        """Return the two-byte key prefix of a store, None before its first entry."""
        number = self._numbers.get(store_name) or super().number(store_name)
        if number is not None:
            self._numbers[store_name] = number
        return number

    @contextmanager
    def cursor(self) -> Iterator[lmdb.Cursor]:
        """Provide a cursor over the entries in a transaction of its own."""
        with self._opened().begin() as transaction, transaction.cursor(db=self._entries) as cursor:
            yield cursor

    # ---------- helpers

    def _get(self, key: bytes, database: Any) -> bytes | None:
        transaction = self._opened().begin()
        try:
            return transaction.get(key, db=database)
        except DAMAGED as error:
            raise self.corrupted(error) from error
        finally:
            transaction.abort()

    def _write(self, action: Callable[[lmdb.Transaction], None]) -> None:
        environment = self._opened()
        self._numbers.clear()  # their stores may be dropped
        try:
            with environment.begin(write=True) as transaction:
                if transaction.get(STAMP, db=self._meta) != self._seen:
                    raise self._moved()
                action(transaction)
                size = self._bytes(transaction)
                stamp = transaction.get(STAMP, db=self._meta)
        except lmdb.MapFullError as error:
            size = environment.info()["map_size"]
            raise ProcessorStateError(
                f"The base {self._path} is full with a map of {size} bytes: spread the state over more instances."
            ) from error
        except DAMAGED as error:
            raise self.corrupted(error) from error
        except lmdb.Error as error:
            raise self._failed("cannot be written", error) from error
        self._seen, self._size = stamp, size
