"""The entries of one base, and their changes by commits."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import lmdb

from penstock.errors import CorruptedBaseError, InvalidStateStoreError, ProcessorStateError, TaskMigratedError
from penstock.metrics.host_metrics import STATE_SIZE
from penstock.metrics.measurements import Measurement
from penstock.state.api import Changes
from penstock.state.lmdb.reader import COUNT, ENTRIES, META, NUMBER, STAMP, Entries, LmdbReader
from penstock.state.lmdb.snapshot import LmdbSnapshot
from penstock.state.lmdb.stored_keys import LONGEST_KEY, STORE_SIZE, long_key, long_value


class LmdbEntries(LmdbReader):
    """The entries and the stamp of one base, in two LMDB databases (implements Base)."""

    _process: int
    _environment: lmdb.Environment | None
    _size: int | None = None
    is_damaged = False
    """Whether LMDB has detected damage, so that the database must be rebuilt."""

    def apply(self, changes: Changes, stamp: bytes) -> None:
        """Apply the changes of one commit and set the stamp, in one transaction.

        Raises TaskMigratedError if another process changed the base since its last read here, ProcessorStateError if
        the base cannot be written.
        """

        def write(transaction: lmdb.Transaction) -> None:
            self._apply_changes(transaction, changes)
            transaction.put(STAMP, stamp, db=self._meta)

        self._write(write)

    def measured(self) -> Mapping[str, Measurement]:
        """Return the size (bytes) of all stores after the last commit applied here.

        The result is empty before the first commit.
        """
        return {} if self._size is None else {STATE_SIZE: Measurement(1, self._size, self._size, self._size)}

    def rebuild(self, commits: Callable[[], Iterable[Changes]], stamp: bytes) -> None:
        """Replace all entries by the changes of `commits`, and set the stamp, in one transaction.

        `commits` is called again if the map must grow. Raises the errors of `apply`.
        """

        def write(transaction: lmdb.Transaction) -> None:
            self._drop_all(transaction)
            for changes in commits():
                self._apply_changes(transaction, changes)
            transaction.put(STAMP, stamp, db=self._meta)

        self._write(write)

    def clear(self) -> None:
        """Drop all entries and the stamp, in one transaction; raises the errors of `apply`."""
        self._write(self._drop_all)

    @abstractmethod
    def close(self) -> None:
        """Release the base; later calls raise InvalidStateStoreError."""

    @abstractmethod
    def snapshot(self) -> LmdbSnapshot:
        """Return the current committed state, in a transaction of its own; thread-safe."""

    def corrupted(self, error: Exception) -> CorruptedBaseError:
        """Return the error for damage that LMDB detected, and mark the base as damaged."""
        self.is_damaged = True
        return super().corrupted(error)

    # ---------- helpers

    def _opened(self) -> lmdb.Environment:
        """Return the environment; raises InvalidStateStoreError if it is closed or was opened by another process."""
        if self._environment is None:
            raise InvalidStateStoreError(f"The base {self._path} is closed: open it again.")
        if os.getpid() != self._process:
            raise InvalidStateStoreError(
                f"The base {self._path} was opened before a fork: open it in the process using it."
            )
        return self._environment

    @abstractmethod
    def _write(self, action: Callable[[lmdb.Transaction], None]) -> None:
        """Run `action` in the write transaction directly after the last read."""

    def _moved(self) -> TaskMigratedError:
        return TaskMigratedError(
            f"Another process has advanced the base {self._path}: this one must read its stamp again."
        )

    def _open_databases(self, environment: lmdb.Environment, transaction: lmdb.Transaction, prefix: bytes) -> None:
        """Open or create the two databases; prefix: of their names."""
        self._entries = environment.open_db(prefix + ENTRIES, txn=transaction)
        self._meta = environment.open_db(prefix + META, txn=transaction)

    def _drop_all(self, transaction: lmdb.Transaction) -> None:
        transaction.drop(self._entries, delete=False)
        transaction.drop(self._meta, delete=False)

    def _apply_changes(self, transaction: lmdb.Transaction, changes: Changes) -> None:
        for store_name, changed in changes.items():
            self._apply_store(transaction, store_name, changed)

    def _apply_store(
        self, transaction: lmdb.Transaction, store_name: str, changed: Mapping[bytes, bytes | None]
    ) -> None:
        number = self._number_for_writing(transaction, store_name)
        before = transaction.stat(self._entries)["entries"]
        keys, values = list(changed), list(changed.values())
        if keys and max(map(len, keys)) > LONGEST_KEY:
            values = [long_value(*entry) for entry in changed.items()]
            keys = [long_key(number, key) if len(key) > LONGEST_KEY else number + key for key in keys]
        else:
            keys = list(map(number.__add__, keys))
        entries: Iterable[tuple[bytes, bytes | None]] = zip(keys, values, strict=True)
        if None in values:
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    transaction.delete(key, db=self._entries)
            entries = (entry for entry in entries if entry[1] is not None)
        with transaction.cursor(db=self._entries) as cursor:
            cursor.putmulti(cast("Iterable[tuple[bytes, bytes]]", entries))
        grown = transaction.stat(self._entries)["entries"] - before
        count = _count(transaction, self._meta, number) + grown
        transaction.put(COUNT + number, count.to_bytes(8, "big"), db=self._meta)

    def _number_for_writing(self, transaction: lmdb.Transaction, store_name: str) -> bytes:
        name = NUMBER + store_name.encode()
        number = cast("bytes | None", transaction.get(name, db=self._meta))
        if number is None:
            taken = sum(
                1 for key, _ in cast(Entries, iter(transaction.cursor(db=self._meta))) if key.startswith(NUMBER)
            )
            number = taken.to_bytes(STORE_SIZE, "big")
            transaction.put(name, number, db=self._meta)
        return number

    def _bytes(self, transaction: lmdb.Transaction) -> int:
        """Return the size (bytes) of the pages with entries."""
        stat = transaction.stat(self._entries)
        return stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])

    def _failed(self, what: str, error: Exception) -> ProcessorStateError:
        return ProcessorStateError(
            f"The base {self._path} {what}: {error}. Is there space on the disk, may this user write there, "
            "and is it not open in this process already?"
        )


def _count(transaction: lmdb.Transaction, meta: Any, number: bytes) -> int:
    return int.from_bytes(cast(bytes, transaction.get(COUNT + number, b"", db=meta)), "big")
