"""Several bases in one LMDB environment: two files and two file handles for all of them, whatever processes and threads
have them open.

Rules:
- Each base has two named databases, so it is emptied without a look at the others. A commit of one base is one
  transaction, as in an environment of its own; LMDB lets one transaction write at a time, so commits of different bases
  wait for each other.
- Reads take a transaction each: one that a base held while it has nothing to do would keep LMDB from using again the
  pages that the others replace.
- The map never grows: threads of one process would have to stop for that. It has an address space that no state fills,
  which takes neither memory nor disk.
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
"""Transactions of reads that are kept for the next ones: a new one has to be made for all databases there may be."""

_SEPARATOR: Final = "/"


class SharedLmdb:
    """The environment of one process; close it when all bases are closed."""

    def __init__(self, path: Path, map_bytes: int = MAP_BYTES) -> None:
        """Open or make the environment in the directory `path`, with a map that never grows; raises ProcessorStateError
        if it cannot be opened."""
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
        """Open or make the base `name`; raises ProcessorStateError if it cannot be made."""
        return SharedLmdbBase(self.path, self._environment, name)

    def names(self) -> list[str]:
        """Return the names of all bases that were ever made here."""
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            return sorted({key.decode().rpartition(_SEPARATOR)[0] for key in cursor.iternext(values=False)})

    def empty(self, name: str) -> bool:
        """Empty the base `name`, which nobody has open; return whether there was anything in it."""
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
        environment.reader_check()  # frees the places of readers that were killed
        return environment


class SharedLmdbBase(LmdbEntries):
    """A base in an environment that it shares with others (implements Base). It reads and writes in one thread at a
    time; snapshots of it may be read in others."""

    def __init__(self, path: Path, environment: lmdb.Environment, name: str) -> None:
        """Open or make the base `name` in `environment`, which is in the directory `path`; raises ProcessorStateError
        if it cannot be made."""
        self._path = path / name
        self._process = os.getpid()
        self._environment = environment
        self._snapshots: WeakSet[LmdbSnapshot] = WeakSet()  # one that nobody reads ends
        self._lock = threading.Lock()  # of the snapshots, which other threads take and close
        self._numbers: dict[str, bytes] = {}
        try:
            with environment.begin(write=True) as transaction:
                self._open_databases(environment, transaction, f"{name}{_SEPARATOR}".encode())
        except lmdb.Error as error:
            raise self._failed("cannot be opened", error) from error
        self._seen = super().stamp()

    def stamp(self) -> bytes | None:
        """Return the stamp of the last commit applied, None if there was none; `apply` follows it."""
        self._seen = super().stamp()
        return self._seen

    def is_empty(self) -> bool:
        """Return whether there is neither an entry nor a stamp."""
        with self._opened().begin() as transaction:
            return not any(transaction.stat(database)["entries"] for database in (self._entries, self._meta))

    def snapshot(self) -> LmdbSnapshot:
        """Return the present committed state, in its own transaction; from any thread. It ends when the base is closed:
        reads of it raise InvalidStateStoreError then."""
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
        """Return the two bytes that stand before the keys of a store, None if it never had an entry."""
        number = self._numbers.get(store_name) or super().number(store_name)
        if number is not None:
            self._numbers[store_name] = number
        return number

    @contextmanager
    def cursor(self) -> Iterator[lmdb.Cursor]:
        """Give a cursor over the entries to a block."""
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
        self._numbers.clear()  # of stores that may be dropped
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
