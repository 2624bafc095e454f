"""The directory of a base on this machine: its users, and whether its content can be trusted.

    <path>/<name>   the database, in a directory of the same name
    <path>/owner    the application run that uses it, and the number of successive deaths of processes that had it open
    <path>/open.*   one per process that has it open, locked by that process
    <path>/read.*   one per process that only reads it, without taking part in it, locked by that process
    <path>/seal     size and digest of the database, once the run was closed in an orderly way
    <path>/lock     held while any of these is read or changed; its time is that of the last use

A base is a copy: the source of truth is in segments or topics, so a doubtful base is deleted here and rebuilt. Rules:
- Within one run a base is trusted. Killed processes do not harm it. But if two processes in a row die with the base
  open, the base may be the cause, and it is deleted.
- The base of another run is trusted if the database matches its seal. A missing seal means that the run was killed or
  the machine lost power: the disk may not have all writes.
- A database that checks itself, such as RocksDB with its checksums, needs no seal.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO

import orjson

from penstock.private_files import open_private, private_directory

_log = logging.getLogger(__name__)

_LOCK = "lock"
_MOST_DEATHS = 2
_CHUNK = 1024 * 1024


class BaseDirectory:
    """One process's use of the directory of a base.

    Args:
        path: the directory. The constructor does not read it yet.
        process_id: the application run of this process, a random id (as Kafka Streams names its instances).
        data_file: the file with the database's content; None for a database that checks itself.
        before_taking: called before the base of another run is taken over; raises if this run has ended.
    """

    def __init__(
        self, path: Path, process_id: str, data_file: str | None, before_taking: Callable[[], object] = lambda: None
    ) -> None:
        self._path = path
        self._process_id = process_id
        self._data_file = data_file
        self._before_taking = before_taking
        self._marker: IO[bytes] | None = None
        self._deaths = 0

    @property
    def database(self) -> Path:
        """The directory of the database."""
        return self._path / self._path.name

    def enter(self) -> Path:
        """Use the base until `leave`: delete it if it is not trusted, and return the database's directory.

        The directory may not exist yet. Raises the errors of `before_taking`.
        """
        with _locked(self._path):
            os.utime(self._path / _LOCK)
            found, deaths = self._read_owner()
            if found != self._process_id:
                self._before_taking()
            alive, died = self._markers()
            deaths += died
            if deaths >= _MOST_DEATHS or not self._is_trusted(found, alive):
                self._delete(deaths)
                deaths = 0
            self._remember(found, deaths)
            self._marker = _made(self._path / f"open.{uuid.uuid4().hex}")
            self._deaths = deaths
        return self.database

    def visit(self) -> Path | None:
        """Read another program's base until `leave`; return the database's directory.

        Returns None if it is missing or does not match its seal.
        """
        if not self.database.exists():
            return None
        with _locked(self._path):
            if not self.database.exists():
                return None
            if (self._path / "seal").exists() and not self._is_what_was_sealed():
                return None
            self._marker = _made(self._path / f"read.{uuid.uuid4().hex}")
        return self.database

    def visit_own(self) -> Path | None:
        """Read this run's base until `leave`; return the database's directory.

        Another process may have the base open. Returns None if this run has no base.
        """
        if not self.database.exists():
            return None
        with _locked(self._path):
            if not self.database.exists() or self._read_owner()[0] != self._process_id:
                return None
            self._marker = _made(self._path / f"read.{uuid.uuid4().hex}")
        return self.database

    def leave(self, is_damaged: bool = False) -> None:
        """End the use of the base; may be called more than once.

        is_damaged: whether the next process must rebuild it.
        """
        if self._marker is None:
            return
        self.keep()
        if is_damaged or self._deaths:
            with _locked(self._path):
                if is_damaged:
                    self._delete(0)
                self._write_owner(0)
        Path(self._marker.name).unlink(missing_ok=True)
        self._marker.close()
        self._marker = None

    def seal(self) -> bool:
        """Mark the database as complete, so that another run can trust it.

        Returns False if that is impossible because a process has it open or died with it open.
        """
        if self._data_file is None or not (self.database / self._data_file).is_file():
            return False
        with _locked(self._path):
            alive, died = self._markers()
            found, deaths = self._read_owner()
            if alive or died or deaths or found != self._process_id:
                return False
            _replace(self._path / "seal", orjson.dumps(self._measured()))
        return True

    def keep(self) -> None:
        """Mark an existing base as used now: its user is idle, and may come back."""
        with suppress(FileNotFoundError):
            os.utime(self._path / _LOCK)

    def delete_if_unused(self, since: float) -> bool:
        """Delete the directory if it is unused; return whether it was deleted.

        It is unused if no process has the base open or has used it after `since`. An open base counts as used now, so
        that its time is right even if its process is killed.

        Args:
            since: machine time in seconds.
        """
        if not self._is_unused(since):
            return False
        with _locked(self._path):
            alive, _ = self._markers()
            if alive:
                self.keep()
            if alive or not self._is_unused(since):
                return False
            gone = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}")
            self._path.rename(gone)  # the next process creates a new one
        shutil.rmtree(gone)
        return True

    # ---------- helpers, with the lock held

    def _is_unused(self, since: float) -> bool:
        with suppress(FileNotFoundError):
            return (self._path / _LOCK).stat().st_mtime < since
        return False

    def _is_trusted(self, found: str, alive: bool) -> bool:
        if found == self._process_id:
            return True
        if self._data_file is None or not self.database.exists():
            return True
        if not self._is_what_was_sealed():
            return False
        if not alive:  # it contains the slots of vanished readers
            (self.database / "lock.mdb").unlink(missing_ok=True)
        return True

    def _is_what_was_sealed(self) -> bool:
        with suppress(OSError, orjson.JSONDecodeError):
            return bool(orjson.loads((self._path / "seal").read_bytes()) == self._measured())
        return False

    def _measured(self) -> dict[str, object]:
        assert self._data_file is not None
        digest, size = blake2b(digest_size=32), 0
        with (self.database / self._data_file).open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        return {"size": size, "digest": digest.hexdigest()}

    def _delete(self, deaths: int) -> None:
        if self.database.exists():
            why = "two processes in a row died while it was open" if deaths else "it may be incomplete"
            _log.info("The base %s is rebuilt: %s.", self._path, why)
        shutil.rmtree(self.database, ignore_errors=True)

    def _markers(self) -> tuple[bool, bool]:
        """Return whether a process has the base open, and whether one died with it open.

        Forgets the dead ones.
        """
        alive = died = False
        for path in (*self._path.glob("open.*"), *self._path.glob("read.*")):
            with suppress(FileNotFoundError), path.open("rb") as marker:
                try:
                    fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    alive = True
                    continue
                if path.exists():  # else it was closed between the listing and now
                    died = died or path.name.startswith("open.")
                    path.unlink(missing_ok=True)
        return alive, died

    def _read_owner(self) -> tuple[str, int]:
        with suppress(OSError, orjson.JSONDecodeError, TypeError, KeyError, ValueError):
            fields = orjson.loads((self._path / "owner").read_bytes())
            return str(fields["process_id"]), int(fields["deaths"])
        return "", 0

    def _remember(self, found: str, deaths: int) -> None:
        if found != self._process_id:
            for name in ("seal", "data.mdb", "lock.mdb"):  # earlier versions had their database here
                (self._path / name).unlink(missing_ok=True)
        if found != self._process_id or deaths:
            self._write_owner(deaths)

    def _write_owner(self, deaths: int) -> None:
        _replace(self._path / "owner", orjson.dumps({"process_id": self._process_id, "deaths": deaths}))


def _made(path: Path) -> IO[bytes]:
    """Create a file that stays locked as long as this process has it open."""
    marker = open_private(path, "xb")
    fcntl.flock(marker, fcntl.LOCK_EX)
    return marker


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with open_private(temporary, "xb") as file:
        file.write(content)
    os.replace(temporary, path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the directory `path`, creating the directory, even if deleted meanwhile."""
    private_directory(path)
    while (lock := _lock_of(path)) is None:
        private_directory(path)
    with lock:
        yield


def _lock_of(path: Path) -> IO[bytes] | None:
    """Lock the directory `path` and return its lock, or None if the directory was deleted."""
    with suppress(FileNotFoundError):
        lock = open_private(path / _LOCK, "ab")
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), (path / _LOCK).stat()):
                return lock
        lock.close()
    return None
