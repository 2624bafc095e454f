"""The base on disk for state beyond memory: one RocksDB database per task (Kafka class: RocksDBStore).

Only one process may have it open at a time. No other module imports rocksdict.

Rules:
- All stores are in one database; each entry's key starts with two bytes for its store. Two zero bytes are the prefix of
  the stamp, the numbers of the stores and their entry counts. A commit is one write batch that includes the stamp.
- There is no write-ahead log, as in Kafka: a base is a copy. After a crash it has the state of some commit, identified
  by its stamp. `close` writes everything that is in memory.
- A rebuild fills a new database next to the old one and then replaces it.
- A database stays open as long as an iterator over it lives, so the base ends the remaining ones when it closes.
- RocksDB verifies checksums. A database found damaged at opening is replaced by an empty one; later damage is a
  CorruptedBaseError. An iterator of rocksdict merely ends there, so each end is verified.
- Options are Kafka's; `rocksdb.config.setter` may change them.
- Open it after a fork, never before.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import rocksdict

from penstock.config import StreamsConfig
from penstock.errors import CorruptedBaseError, InvalidStateStoreError, LockError, ProcessorStateError, StreamsError
from penstock.metrics.measurements import Measurement
from penstock.private_files import private_directory
from penstock.state.api import BaseView, Changes
from penstock.state.layouts import after_prefix
from penstock.state.rocksdb_measurements import Statistics, properties
from penstock.state.rocksdb_options import RocksDBConfigSetter
from penstock_broker.common.clock import SystemClock

BLOCK_CACHE_BYTES = 50 << 20
WRITE_BUFFER_BYTES = 16 << 20
BLOCK_BYTES = 4096
MAX_WRITE_BUFFERS = 3
BLOOM_FILTER_BITS = 10

_log = logging.getLogger(__name__)

_NANOSECONDS = SystemClock().nanoseconds
_FIRST_MEASURED = 1_000_000_000
_MEASURED_EVERY = 10_000_000_000
"""Interval (ns) between measurements of an open database: reading its statistics takes milliseconds."""

_Database = Any
"""A rocksdict.Rdict in raw mode, for bytes only; its own types cover all modes."""

_LOCKED = re.compile(r"[Ll]ock (file|hold)")
_DAMAGED = re.compile(r"^Corruption|No such file or directory")

_Entries = Generator[tuple[bytes, bytes], None, None]

_BEGUN = b"", b""
"""The item of an iterator before its entries."""

_STORE_SIZE = 2
_META = bytes(_STORE_SIZE)
_STAMP = _META + b"stamp"
_NUMBER = _META + b"number:"
_COUNT = _META + b"count:"
_COUNT_SIZE = 8


class RocksDBBase:
    """A base on disk (implements Base).

    The constructor opens or creates the database.

    Args:
        path: the directory.
        config: the configuration; its `rocksdb.config.setter` sets the options.
        nanoseconds: the clock for the intervals between measurements.

    Raises:
        LockError: the database is open elsewhere.
        ProcessorStateError: it cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: StreamsConfig | None = None,
        nanoseconds: Callable[[], int] = _NANOSECONDS,
    ) -> None:
        self._path = Path(path)
        self._config = config
        setter = None if config is None else config["rocksdb.config.setter"]
        self._setter: RocksDBConfigSetter | None = setter() if isinstance(setter, type) else setter
        self._last_measured: dict[str, Measurement] = {}
        self._statistics = Statistics()
        self._nanoseconds = nanoseconds
        self._measured_at, self._measured_every = nanoseconds(), _FIRST_MEASURED
        self._has_statistics = config is not None and config["metrics.recording.level"] != "INFO"
        self._options = self._make_options()
        self._no_log = rocksdict.WriteOptions()
        self._no_log.disable_wal = True  # type: ignore[method-assign, assignment]  # the stubs say that it is a method
        self.is_damaged = False
        """Whether RocksDB has found damage since the base was opened."""
        self._iterators: WeakSet[_Entries] = WeakSet()
        self._numbers: dict[str, bytes] = {}
        self._database: _Database | None = None
        if not self._is_whole():
            self._make_again()

    def stamp(self) -> bytes | None:
        """Return the stamp of the last applied commit, or None before the first."""
        stamp: bytes | None = self.read(_STAMP)
        return stamp

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store."""
        return _RocksDBView(self, store_name)

    def apply(self, changes: Changes, stamp: bytes) -> None:
        """Apply the changes of one commit and set the stamp, in one write batch.

        Raises ProcessorStateError if the batch cannot be written.
        """
        self._apply(self.database(), changes, stamp)

    def measured(self) -> Mapping[str, Measurement]:
        """Return RocksDB's measurements, with the statistics since the previous one.

        The statistics need a `metrics.recording.level` of at least DEBUG. A closed base returns its measurement at the
        close. RocksDB is measured one second after opening, then ever less often, finally every 10 s; between
        measurements the result is empty.
        """
        if self._database is None:
            return self._last_measured
        now = self._nanoseconds()
        if now - self._measured_at < self._measured_every:
            return {}
        self._measured_at, self._measured_every = now, min(2 * self._measured_every, _MEASURED_EVERY)
        return self._measure(self._database)

    def _measure(self, database: _Database) -> dict[str, Measurement]:
        measured = dict(properties(database.property_int_value))
        if self._has_statistics:
            measured.update(self._statistics.since(self._options.get_statistics() or ""))
        return measured

    def rebuild(self, commits: Callable[[], Iterable[Changes]], stamp: bytes) -> None:
        """Replace all entries by the changes of `commits`, in order, and set the stamp.

        They go to a new database, which replaces the old one when complete. Raises like `apply`.
        """
        beside = self._path.with_name(self._path.name + ".rebuild")
        known, self._numbers = self._numbers, {}
        shutil.rmtree(beside, ignore_errors=True)
        database = self._open(beside)
        try:
            for changes in commits():
                self._apply(database, changes, None)
            self._apply(database, {}, stamp)
        except BaseException:
            self._numbers = known
            database.close()
            raise
        database.flush()
        database.close()
        self._close_database()
        shutil.rmtree(self._path)
        beside.rename(self._path)
        self._database = self._open(self._path)

    def clear(self) -> None:
        """Drop all entries and the stamp, in one write batch; raises like `apply`."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.delete_range(_META, b"\xff" * (_STORE_SIZE + 1))
        self._write(self.database(), batch)
        self._numbers.clear()

    def close(self) -> None:
        """Write the data in memory and close the database; later calls raise InvalidStateStoreError."""
        if self._database is not None:
            self._database.flush()
            self._last_measured = self._measure(self._database)
            self._close_database()
            if self._setter is not None:
                self._setter.close(self._path.name, self._options)

    # ---------- interface for views

    def database(self) -> _Database:
        """Return the open database; raises InvalidStateStoreError if it is closed."""
        if self._database is None:
            raise InvalidStateStoreError(
                f"The base in {self._path} is closed: create a new one, or keep the task that owns it open."
            )
        return self._database

    def kept(self, entries: _Entries) -> _Entries:
        """Return `entries`, made to end when the database is closed."""
        next(entries)  # since Python 3.12, close() keeps the arguments of a generator that has not started
        self._iterators.add(entries)
        return entries

    def read(self, keys: bytes | list[bytes]) -> Any:
        """Return a key's value, or the list of several keys' values; raises CorruptedBaseError."""
        return self._get(self.database(), keys)

    def verify_end(
        self, position: Callable[[rocksdict.RdictIter], None], step: Callable[[rocksdict.RdictIter], None]
    ) -> None:
        """Raise CorruptedBaseError if damage has ended an iteration.

        Args:
            position: moves an iterator to its last entry, if any.
            step: moves it from there to the end.
        """
        entries = self.database().iter()
        try:
            position(entries)
            if entries.valid():
                step(entries)
            entries.status()
        except Exception as error:  # rocksdict raises Exception itself
            raise self._failed("cannot be read", error) from error
        finally:
            del entries  # the database stays open as long as an error's frame refers to it

    def number(self, store_name: str) -> bytes | None:
        """Return the two-byte key prefix of a store, or None before its first entry."""
        self.database()
        return self._numbers.get(store_name)

    def count(self, number: bytes) -> int:
        """Return the number of entries of a store."""
        return int.from_bytes(self.read(_COUNT + number) or b"", "big")

    # ---------- helpers

    def _close_database(self) -> None:
        for entries in list(self._iterators):
            entries.close()
        self.database().close()
        self._database = None

    def _make_options(self) -> rocksdict.Options:
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(BLOCK_CACHE_BYTES))
        table.set_block_size(BLOCK_BYTES)
        table.set_bloom_filter(BLOOM_FILTER_BITS, False)
        options = rocksdict.Options(raw_mode=True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_max_write_buffer_number(MAX_WRITE_BUFFERS)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
        if self._has_statistics:
            options.enable_statistics()
        if self._setter is not None and self._config is not None:
            self._setter.set_config(self._path.name, options, self._config)
        return options

    def _is_whole(self) -> bool:
        """Open the database, and return whether it opened without damage."""
        try:
            self._open_with_numbers()
        except CorruptedBaseError as error:  # its frames keep iterators alive, and so the database, until it is handled
            _log.warning("%s", error)
        return not self.is_damaged

    def _make_again(self) -> None:
        if self._database is not None:
            self._close_database()
        self._numbers.clear()
        shutil.rmtree(self._path, ignore_errors=True)
        self._open_with_numbers()
        self.is_damaged = False

    def _open_with_numbers(self) -> None:
        self._database = self._open(self._path)
        for key, number in self.kept(_forward(self, _NUMBER, after_prefix(_NUMBER))):
            self._numbers[key[len(_NUMBER) - _STORE_SIZE :].decode()] = number

    def _open(self, path: Path) -> _Database:
        try:
            private_directory(path.parent)
            return rocksdict.Rdict(str(path), self._options)
        except Exception as error:  # rocksdict raises Exception itself
            if _LOCKED.search(str(error)):
                raise LockError(f"The base in {self._path} is already open, here or in another process.") from error
            raise self._failed("cannot be opened", error) from error

    def _apply(self, database: _Database, changes: Changes, stamp: bytes | None) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for store_name, changed in changes.items():
            number = self._numbers.get(store_name)
            if number is None:
                number = self._numbers[store_name] = (len(self._numbers) + 1).to_bytes(_STORE_SIZE, "big")
                batch.put(_NUMBER + store_name.encode(), number)
            keys = [number + key for key in changed]
            before = self._get(database, keys) if keys else []
            for key, value in zip(keys, changed.values(), strict=True):
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            grown = len(keys) - sum(value is None for value in changed.values())
            grown -= len(before) - sum(value is None for value in before)
            count = int.from_bytes(self._get(database, _COUNT + number) or b"", "big") + grown
            batch.put(_COUNT + number, count.to_bytes(_COUNT_SIZE, "big"))
        if stamp is not None:
            batch.put(_STAMP, stamp)
        self._write(database, batch)

    def _get(self, database: _Database, keys: bytes | list[bytes]) -> Any:
        try:
            return database.get(keys)
        except Exception as error:  # rocksdict raises Exception itself
            raise self._failed("cannot be read", error) from error

    def _write(self, database: _Database, batch: rocksdict.WriteBatch) -> None:
        try:
            database.write(batch, self._no_log)
        except Exception as error:  # rocksdict raises Exception itself
            raise self._failed("cannot be written", error) from error

    def _failed(self, what: str, error: Exception) -> StreamsError:
        if _DAMAGED.search(str(error)):
            self.is_damaged = True
            return CorruptedBaseError(str(self._path), str(error))
        return ProcessorStateError(
            f"The base in {self._path} {what}: {error}. Is the disk full, or does another process have it open?"
        )


class _RocksDBView:
    """The committed entries of one store (implements BaseView)."""

    def __init__(self, base: RocksDBBase, store_name: str) -> None:
        self._base = base
        self._store_name = store_name

    def get(self, key: bytes) -> bytes | None:
        number = self._base.number(self._store_name)
        if number is None:
            return None
        value: bytes | None = self._base.read(number + key)
        return value

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        number = self._base.number(self._store_name)
        if number is None or not keys:
            return [None] * len(keys)
        values: list[bytes | None] = self._base.read([number + key for key in keys])
        return values

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        number = self._base.number(self._store_name)
        if number is None:
            return iter(())
        first = number + (from_key or b"")
        last = after_prefix(number) if to_key is None else number + to_key
        return self._base.kept((_backward if reverse else _forward)(self._base, first, last))

    def approximate_num_entries(self) -> int:
        number = self._base.number(self._store_name)
        return 0 if number is None else self._base.count(number)


def _forward(base: RocksDBBase, first: bytes, last: bytes | None) -> _Entries:
    entries, key = base.database().items(from_key=first), first
    yield _BEGUN
    for key, value in entries:
        if last is not None and key >= last:
            return
        yield key[_STORE_SIZE:], value
    del entries
    base.verify_end(lambda end: end.seek(key), rocksdict.RdictIter.next)


def _backward(base: RocksDBBase, first: bytes, last: bytes | None) -> _Entries:
    entries, key = base.database().items(backwards=True, from_key=last), last
    yield _BEGUN
    for key, value in entries:
        if key < first:
            return
        if key != last:  # it starts at the bound, which is exclusive
            yield key[_STORE_SIZE:], value
    del entries
    base.verify_end(lambda end: end.seek_to_last() if key is None else end.seek_for_prev(key), rocksdict.RdictIter.prev)
