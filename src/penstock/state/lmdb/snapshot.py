"""Snapshots of a base at one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import lmdb

from penstock.errors import InvalidStateStoreError, ProcessorStateError
from penstock.state.lmdb.environment import DAMAGED, DATA_FILE, MAX_READERS, growing
from penstock.state.lmdb.reader import ENTRIES, META, LmdbReader


class LmdbSnapshot(LmdbReader):
    """A base at one commit (implements BaseSnapshot).

    It is a read transaction, used by one thread at a time.

    Args:
        path: the path of the base, for errors.
        transaction: the read transaction, which the snapshot owns.
        entries: the database of entries.
        meta: the database of metadata.
        on_close: called once, after the end of the transaction.
    """

    def __init__(
        self,
        path: Path,
        transaction: lmdb.Transaction,
        entries: Any,
        meta: Any,
        on_close: Callable[[LmdbSnapshot], object],
    ) -> None:
        self._path = path
        self._transaction: lmdb.Transaction | None = transaction
        self._entries = entries
        self._meta = meta
        self._on_close = on_close
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the transaction; later reads raise InvalidStateStoreError."""
        with self._lock:
            if self._transaction is None:
                return
            self._transaction.abort()
            self._transaction = None
        self._on_close(self)

    @contextmanager
    def cursor(self) -> Iterator[lmdb.Cursor]:
        """Provide a cursor over the entries to one thread."""
        with self._lock, self._opened().cursor(db=self._entries) as cursor:
            yield cursor

    def _get(self, key: bytes, database: Any) -> bytes | None:
        with self._lock:
            try:
                return cast("bytes | None", self._opened().get(key, db=database))
            except DAMAGED as error:
                raise self.corrupted(error) from error

    def _opened(self) -> lmdb.Transaction:
        if self._transaction is None:
            raise InvalidStateStoreError(
                f"The snapshot of the base {self._path} is too old or closed: read the store again."
            )
        return self._transaction


def snapshot_of(path: Path) -> LmdbSnapshot | None:
    """Return the committed state of the base in the directory `path`, None without content.

    Another process may have the base open, but not this one. The snapshot has an environment of its own. Raises
    ProcessorStateError if the base cannot be read.
    """
    if not (path / DATA_FILE).is_file():
        return None
    try:
        environment = growing(
            lambda: lmdb.open(str(path), readonly=True, create=False, max_dbs=2, max_readers=MAX_READERS)
        )
        try:
            transaction = growing(environment.begin, lambda: environment.set_mapsize(0))
            entries, meta = (environment.open_db(name, transaction, create=False) for name in (ENTRIES, META))
        except BaseException:
            environment.close()
            raise
    except lmdb.NotFoundError:
        return None
    except lmdb.Error as error:
        raise ProcessorStateError(f"The base {path} cannot be read: {error}") from error
    return LmdbSnapshot(path, transaction, entries, meta, lambda _: environment.close())
