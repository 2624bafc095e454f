"""The base on disk: one LMDB environment a task; several processes of a machine may have it open, one writes at a time.
Only this module and `shared_lmdb` import lmdb.

Rules:
- One database holds the entries of all stores, each key behind two bytes for its store; another holds the stamp, the
  numbers of the stores and how many entries each has. All of a commit is written in one transaction, the stamp with it.
- LMDB takes keys of 511 bytes. A key of more than 500 is kept as its first 480 bytes and a digest, with the whole key
  before the value; a range sorts entries that share those 480 bytes by their whole keys, so that order is always that
  of the bytes.
- All reads go through one read transaction, taken when first needed and given up by `apply` and `clear`: what was read
  is the state that `stamp` named. `apply` fails if another process has moved the base since.
- The map begins at 1 GiB of address space (not of disk) and doubles when it is full. It moves then, so snapshots that
  this process has taken of it end; those of other processes (`snapshot_of`) do not.
- Nothing is synced: a base is a copy, segments are the truth. Whether what is on the disk can be trusted is decided
  before it is opened (`base_directory`): LMDB has no checksums, and a damaged file may give wrong entries or end the
  process. What LMDB notices itself is a CorruptedBaseError; a file that it cannot open at all is replaced by an empty
  one.
- Open it after a fork, never before.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast
from weakref import WeakSet

import lmdb

from penstock.errors import CorruptedBaseError, InvalidStateStoreError, ProcessorStateError, TaskMigratedError
from penstock.metrics.host_metrics import STATE_SIZE
from penstock.metrics.measurements import Measurement
from penstock.private_files import FILE_MODE, private_directory
from penstock.state.api import BaseView, Changes
from penstock.state.layouts import after_prefix

_log = logging.getLogger(__name__)
_Entries = Iterator[tuple[bytes, bytes]]
_T = TypeVar("_T")

FIRST_MAP_BYTES = 1 << 30
DATA_FILE = "data.mdb"
"""The file of a base that has its content."""

_MOST_DOUBLINGS = 16
_MAX_READERS = 512
_LONGEST_KEY = 500
_KEPT = 480
_DIGEST_SIZE = 29  # prefix, 480 bytes and digest make 511, which no shorter key can have
_STORE_SIZE = 2
_LONG = _STORE_SIZE + _KEPT + _DIGEST_SIZE
_GROUPED = _STORE_SIZE + _KEPT
_KEY_LENGTH_SIZE = 4
_FIRST_CHUNK, _CHUNK = 8, 512

_ENTRIES = b"entries"
_META = b"meta"
STAMP = b"stamp"
_NUMBER = b"number:"
_COUNT = b"count:"

DAMAGED = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
    lmdb.PanicError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.BadTxnError,
    lmdb.BadDbiError,
    lmdb.BadValsizeError,
    lmdb.ProblemError,
)
"""What LMDB raises for a file that is not whole, and for nothing else that is done here."""


class LmdbEntries(ABC):
    """The entries and the stamp of one base, in two databases of an LMDB environment (implements Base)."""

    _path: Path
    _process: int
    _environment: lmdb.Environment | None
    _entries: Any
    _meta: Any
    _size: int | None = None
    is_damaged = False
    """Whether LMDB has noticed that the database is damaged: it is to be made again."""

    def stamp(self) -> bytes | None:
        """Return the stamp of the last commit applied, None if there was none, as of the transaction that all reads
        use."""
        return self._get(STAMP, self._meta)

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store."""
        return _LmdbView(self, store_name)

    def apply(self, changes: Changes, stamp: bytes) -> None:
        """Apply the changes of one commit and set the stamp, in one transaction.

        Raises TaskMigratedError if another process changed the base since it was last read here, ProcessorStateError if
        it cannot be written.
        """

        def write(transaction: lmdb.Transaction) -> None:
            self._apply_changes(transaction, changes)
            transaction.put(STAMP, stamp, db=self._meta)

        self._write(write)

    def measured(self) -> Mapping[str, Measurement]:
        """Return the bytes of the entries of all stores after the last commit that was applied here; nothing before
        one."""
        return {} if self._size is None else {STATE_SIZE: Measurement(1, self._size, self._size, self._size)}

    def rebuild(self, commits: Callable[[], Iterable[Changes]], stamp: bytes) -> None:
        """Drop all entries, apply the changes of `commits` in order and set the stamp, in one transaction.

        `commits` is called again if the map must grow. Raises as `apply`.
        """

        def write(transaction: lmdb.Transaction) -> None:
            self._drop_all(transaction)
            for changes in commits():
                self._apply_changes(transaction, changes)
            transaction.put(STAMP, stamp, db=self._meta)

        self._write(write)

    def clear(self) -> None:
        """Drop all entries and the stamp, in one transaction; raises as `apply`."""
        self._write(self._drop_all)

    @abstractmethod
    def close(self) -> None:
        """Release the base; later calls raise InvalidStateStoreError."""

    @abstractmethod
    def snapshot(self) -> LmdbSnapshot:
        """Return the present committed state, in its own transaction; from any thread."""

    # ---------- for views

    def number(self, store_name: str) -> bytes | None:
        """Return the two bytes that stand before the keys of a store, None if it never had an entry."""
        return self._get(_NUMBER + store_name.encode(), self._meta)

    def count(self, number: bytes) -> int:
        """Return how many entries a store has."""
        return int.from_bytes(self._get(_COUNT + number, self._meta) or b"", "big")

    @abstractmethod
    def cursor(self) -> AbstractContextManager[lmdb.Cursor]:
        """Return a cursor over the entries; close it before the next `apply`."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value under a key as it is stored; raises CorruptedBaseError."""
        return self._get(key, self._entries)

    def corrupted(self, error: Exception) -> CorruptedBaseError:
        """Return the error for what LMDB noticed while it read."""
        self.is_damaged = True
        return _corrupted(self._path, error)

    # ---------- helpers

    def _opened(self) -> lmdb.Environment:
        """Return the environment; raises InvalidStateStoreError if the base is closed or was opened by another
        process."""
        if self._environment is None:
            raise InvalidStateStoreError(f"The base {self._path} is closed: open it again.")
        if os.getpid() != self._process:
            raise InvalidStateStoreError(
                f"The base {self._path} was opened before a fork: open it in the process using it."
            )
        return self._environment

    @abstractmethod
    def _get(self, key: bytes, database: Any) -> bytes | None:
        """Return what a database has under a key; raises CorruptedBaseError."""

    @abstractmethod
    def _write(self, action: Callable[[lmdb.Transaction], None]) -> None:
        """Run `action` in a write transaction that follows what was read."""

    def _moved(self) -> TaskMigratedError:
        return TaskMigratedError(
            f"Another process has advanced the base {self._path}: this one must read its stamp again."
        )

    def _open_databases(self, environment: lmdb.Environment, transaction: lmdb.Transaction, prefix: bytes) -> None:
        """Open or make the two databases. prefix: of their names."""
        self._entries = environment.open_db(prefix + _ENTRIES, txn=transaction)
        self._meta = environment.open_db(prefix + _META, txn=transaction)

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
        if keys and max(map(len, keys)) > _LONGEST_KEY:
            values = [_long_value(*entry) for entry in changed.items()]
            keys = [_long_key(number, key) if len(key) > _LONGEST_KEY else number + key for key in keys]
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
        transaction.put(_COUNT + number, count.to_bytes(8, "big"), db=self._meta)

    def _number_for_writing(self, transaction: lmdb.Transaction, store_name: str) -> bytes:
        name = _NUMBER + store_name.encode()
        number = cast("bytes | None", transaction.get(name, db=self._meta))
        if number is None:
            taken = sum(
                1 for key, _ in cast(_Entries, iter(transaction.cursor(db=self._meta))) if key.startswith(_NUMBER)
            )
            number = taken.to_bytes(_STORE_SIZE, "big")
            transaction.put(name, number, db=self._meta)
        return number

    def _bytes(self, transaction: lmdb.Transaction) -> int:
        """Return the bytes of the pages that have the entries."""
        stat = transaction.stat(self._entries)
        return stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])

    def _failed(self, what: str, error: Exception) -> ProcessorStateError:
        return ProcessorStateError(
            f"The base {self._path} {what}: {error}. Is there space on the disk, may this user write there, "
            "and is it not open in this process already?"
        )


class LmdbBase(LmdbEntries):
    """A base on disk that several processes may read (implements Base; replaces Kafka's RocksDBStore)."""

    def __init__(self, path: str | os.PathLike[str], map_bytes: int = FIRST_MAP_BYTES) -> None:
        """Open or make the base in the directory `path`; `map_bytes` is the first size of the map.

        Raises ProcessorStateError if it cannot be opened.
        """
        self._path = Path(path)
        self._process = os.getpid()
        self._reading: lmdb.Transaction | None = None
        self._snapshots: WeakSet[LmdbSnapshot] = WeakSet()  # one that nobody reads ends
        self._lock = threading.RLock()  # of the snapshots, which other threads take and close
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
        """Return the present committed state, in its own transaction; from any thread. It ends when the map grows or
        the base is closed: reads of it raise InvalidStateStoreError then. So does this method if another process has
        let the map grow since the base was last read here."""
        with self._lock:
            try:
                transaction = self._opened().begin()
            except lmdb.MapResizedError as error:  # only the thread that reads knows when the map may move
                why = f"Another process has changed the base {self._path}: read it first."
                raise InvalidStateStoreError(why) from error
            snapshot = LmdbSnapshot(self._path, transaction, self._entries, self._meta, self._forget_snapshot)
            self._snapshots.add(snapshot)
            return snapshot

    def cursor(self) -> AbstractContextManager[lmdb.Cursor]:
        """Return a cursor over the entries; close it before the next `apply`."""
        return cast("AbstractContextManager[lmdb.Cursor]", self._reader().cursor(db=self._entries))

    # ---------- helpers

    def _get(self, key: bytes, database: Any) -> bytes | None:
        try:
            return cast("bytes | None", self._reader().get(key, db=database))
        except DAMAGED as error:
            raise self.corrupted(error) from error

    def _open(self, map_bytes: int) -> lmdb.Environment:
        environment = _growing(
            lambda: lmdb.open(
                str(self._path),
                map_size=map_bytes,
                sync=False,
                metasync=False,
                max_dbs=2,
                max_readers=_MAX_READERS,
                mode=FILE_MODE,
            )
        )
        environment.reader_check()  # frees the places of readers that were killed
        with _growing(lambda: environment.begin(write=True), lambda: environment.set_mapsize(0)) as transaction:
            self._open_databases(environment, transaction, b"")
        return environment

    def _write(self, action: Callable[[lmdb.Transaction], None]) -> None:
        """Run `action` in a write transaction that follows what was read, as often as the map must grow for it."""
        environment = self._opened()
        seen = self._reader().id()
        self._end_reading()
        for _ in range(_MOST_DOUBLINGS):
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

    def _begin(self, write: bool) -> lmdb.Transaction:
        """Return a new transaction, in a map of the size that other processes may have given it."""
        return _growing(lambda: self._opened().begin(write=write), lambda: self._resize(0))

    def _resize(self, map_bytes: int) -> None:
        """Give the map another size (0: that of the file), which no transaction of this process may see."""
        with self._lock:
            self._end_snapshots()
            self._opened().set_mapsize(map_bytes)

    def _end_snapshots(self) -> None:
        for snapshot in list(self._snapshots):
            snapshot.close()

    def _forget_snapshot(self, snapshot: LmdbSnapshot) -> None:
        self._snapshots.discard(snapshot)


class LmdbSnapshot:
    """A base as it was at one commit (implements BaseSnapshot): a read transaction, which one thread uses at a time."""

    def __init__(
        self,
        path: Path,
        transaction: lmdb.Transaction,
        entries: Any,
        meta: Any,
        on_close: Callable[[LmdbSnapshot], object],
    ) -> None:
        """Read the databases `entries` and `meta` of the base `path` in `transaction`. on_close: called once, behind
        the end of the transaction."""
        self._path = path
        self._transaction: lmdb.Transaction | None = transaction
        self._entries = entries
        self._meta = meta
        self._on_close = on_close
        self._lock = threading.Lock()

    def stamp(self) -> bytes | None:
        """Return the stamp of the commit, None for an empty base."""
        return self._get(STAMP, self._meta)

    def view(self, store_name: str) -> BaseView:
        """Return the entries of one store."""
        return _LmdbView(self, store_name)

    def close(self) -> None:
        """End the transaction; later reads raise InvalidStateStoreError."""
        with self._lock:
            if self._transaction is None:
                return
            self._transaction.abort()
            self._transaction = None
        self._on_close(self)

    # ---------- for views

    def number(self, store_name: str) -> bytes | None:
        """Return the two bytes that stand before the keys of a store, None if it never had an entry."""
        return self._get(_NUMBER + store_name.encode(), self._meta)

    def count(self, number: bytes) -> int:
        """Return how many entries a store has."""
        return int.from_bytes(self._get(_COUNT + number, self._meta) or b"", "big")

    @contextmanager
    def cursor(self) -> Iterator[lmdb.Cursor]:
        """Give a cursor over the entries to one thread."""
        with self._lock, self._opened().cursor(db=self._entries) as cursor:
            yield cursor

    def get(self, key: bytes) -> bytes | None:
        """Return the value under a key as it is stored; raises CorruptedBaseError."""
        return self._get(key, self._entries)

    def corrupted(self, error: Exception) -> CorruptedBaseError:
        """Return the error for what LMDB noticed while it read."""
        return _corrupted(self._path, error)

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
    """Return the committed state of the base in the directory `path`, which another process may have open and this one
    has not, in an environment of its own; None if there is nothing in it.

    Raises ProcessorStateError if it cannot be read.
    """
    if not (path / DATA_FILE).is_file():
        return None
    try:
        environment = _growing(
            lambda: lmdb.open(str(path), readonly=True, create=False, max_dbs=2, max_readers=_MAX_READERS)
        )
        try:
            transaction = _growing(environment.begin, lambda: environment.set_mapsize(0))
            entries, meta = (environment.open_db(name, transaction, create=False) for name in (_ENTRIES, _META))
        except BaseException:
            environment.close()
            raise
    except lmdb.NotFoundError:
        return None
    except lmdb.Error as error:
        raise ProcessorStateError(f"The base {path} cannot be read: {error}") from error
    return LmdbSnapshot(path, transaction, entries, meta, lambda _: environment.close())


class _LmdbView:
    """The committed entries of one store (implements BaseView)."""

    def __init__(self, base: LmdbEntries | LmdbSnapshot, store_name: str) -> None:
        self._base = base
        self._store_name = store_name

    def get(self, key: bytes) -> bytes | None:
        number = self._base.number(self._store_name)
        if number is None:
            return None
        if len(key) > _LONGEST_KEY:
            data = self._base.get(_long_key(number, key))
            return None if data is None else data[_KEY_LENGTH_SIZE + len(key) :]
        return self._base.get(number + key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        number = self._base.number(self._store_name)
        if number is None:
            return [None] * len(keys)
        if any(len(key) > _LONGEST_KEY for key in keys):
            return [self.get(key) for key in keys]
        stored = [number + key for key in keys]
        try:
            with self._base.cursor() as cursor:
                found = dict(cast(_Entries, cursor.getmulti(sorted(stored))))  # in order: each page is met once
        except DAMAGED as error:
            raise self._base.corrupted(error) from error
        return list(map(found.get, stored))

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        number = self._base.number(self._store_name)
        if number is None:
            return iter(())
        low, high = _bounds(number, from_key, to_key)
        return chain.from_iterable(
            _in_order(chunk, from_key, to_key, reverse) for chunk in self._chunks(low, high, reverse)
        )

    def _chunks(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the entries as stored with low <= key < high in chunks, ever larger ones, so that no cursor stays open
        where the caller writes or stops."""
        size = _FIRST_CHUNK
        while True:
            try:
                chunk = self._read_backwards(low, high) if reverse else self._read_forwards(low, high, size)
            except DAMAGED as error:
                raise self._base.corrupted(error) from error
            if not chunk:
                return
            yield chunk
            size = min(4 * size, _CHUNK)
            if reverse:
                high = chunk[-1][0]
            else:
                low = chunk[-1][0] + b"\x00"

    def approximate_num_entries(self) -> int:
        number = self._base.number(self._store_name)
        return 0 if number is None else self._base.count(number)

    def _read_forwards(self, low: bytes, high: bytes | None, size: int) -> list[tuple[bytes, bytes]]:
        """Return about `size` entries as stored with low <= key < high, whole groups of keys that share their first
        bytes."""
        with self._base.cursor() as cursor:
            if not cursor.set_range(low):
                return []
            entries = cast(_Entries, cursor.iternext())
            chunk = list(islice(entries, size))
            for entry in entries if len(chunk[-1][0]) >= _GROUPED else ():
                if not _same_group(chunk[-1][0], entry[0]):
                    break
                chunk.append(entry)
        return chunk if high is None else chunk[: bisect_left(chunk, high, key=itemgetter(0))]

    def _read_backwards(self, low: bytes, high: bytes | None) -> list[tuple[bytes, bytes]]:
        """As `_read_forwards`, from the largest key down."""
        chunk: list[tuple[bytes, bytes]] = []
        with self._base.cursor() as cursor:
            placed = cursor.last() if high is None or not cursor.set_range(high) else cursor.prev()
            if placed:
                for entry in cast(_Entries, cursor.iterprev()):
                    if entry[0] < low or (len(chunk) >= _CHUNK and not _same_group(chunk[-1][0], entry[0])):
                        break
                    chunk.append(entry)
        return chunk


def _corrupted(path: Path, error: Exception) -> CorruptedBaseError:
    return CorruptedBaseError(str(path), str(error))


def opened_or_empty(path: Path, open_environment: Callable[[], lmdb.Environment]) -> lmdb.Environment:
    """Return the environment in the directory `path`; a file that LMDB cannot read is replaced by an empty one."""
    try:
        return open_environment()
    except DAMAGED as error:
        _log.warning("The base %s is damaged (%s): it starts empty.", path, error)
    for name in (DATA_FILE, "lock.mdb"):
        (path / name).unlink(missing_ok=True)
    return open_environment()


def _growing(action: Callable[[], _T], adapt: Callable[[], None] = lambda: None) -> _T:
    """Do `action`; while another process lets the map grow meanwhile, `adapt` and do it again."""
    for _ in range(_MOST_DOUBLINGS):
        try:
            return action()
        except lmdb.MapResizedError:
            adapt()
    return action()


def _bounds(number: bytes, from_key: bytes | None, to_key: bytes | None) -> tuple[bytes, bytes | None]:
    """Return between which stored keys the entries with from_key <= key < to_key lie; others with the same first bytes
    may lie there too."""
    low = number if from_key is None else number + from_key[:_KEPT]
    if to_key is None:
        return low, after_prefix(number)
    if len(to_key) <= _KEPT:
        return low, number + to_key
    return low, after_prefix(number + to_key[:_KEPT])


def _long_key(number: bytes, key: bytes) -> bytes:
    return number + key[:_KEPT] + blake2b(key, digest_size=_DIGEST_SIZE).digest()


def _long_value(key: bytes, value: bytes | None) -> bytes | None:
    if value is None or len(key) <= _LONGEST_KEY:
        return value
    return len(key).to_bytes(_KEY_LENGTH_SIZE, "big") + key + value


def _same_group(one: bytes, other: bytes) -> bool:
    return len(one) >= _GROUPED and one[:_GROUPED] == other[:_GROUPED]


def _in_order(
    chunk: list[tuple[bytes, bytes]], from_key: bytes | None, to_key: bytes | None, reverse: bool
) -> Iterable[tuple[bytes, bytes]]:
    """Return those entries of a chunk with from_key <= key < to_key, with their whole keys and in the order of these;
    only among those that share their first bytes with a bound may others be."""
    stored, values = zip(*chunk, strict=True)
    if max(map(len, stored)) < _GROUPED:
        return zip([key[_STORE_SIZE:] for key in stored], values, strict=True)
    return [
        entry
        for entry in sorted(map(_whole, stored, values), reverse=reverse)
        if (from_key is None or entry[0] >= from_key) and (to_key is None or entry[0] < to_key)
    ]


def _whole(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    if len(stored) != _LONG:
        return stored[_STORE_SIZE:], value
    start = _KEY_LENGTH_SIZE + int.from_bytes(value[:_KEY_LENGTH_SIZE], "big")
    return value[_KEY_LENGTH_SIZE:start], value[start:]


def _count(transaction: lmdb.Transaction, meta: Any, number: bytes) -> int:
    return int.from_bytes(cast(bytes, transaction.get(_COUNT + number, b"", db=meta)), "big")
