"""Files in one directory on any file system of pyarrow.

Each appears complete or not at all.

The way of writing a file depends on the file system:
- with atomic replacing renames (a local disk): under a temporary name, then renamed;
- on object stores (S3, GCS, Azure): in one request, which takes effect when it ends; there are no directories;
- on all others (HDFS, file systems of fsspec or of a user): under a temporary name, then renamed; an existing file is
  replaced in two steps, and in between readers find the new one next to it.

Several processes may write a file named by its content at the same time (`write_once`): attempts of one task, one of
which is late. A file that is replaced has one writer at a time.

A file is durable when `write` or `write_once` returns, as far as its file system guarantees that:
- on a local disk it survives a loss of power: its content, its name and its parent directories are synced;
- object stores acknowledge a request when the object is stored durably;
- HDFS has the content in the memory of each of its data nodes when the file is closed, and writes it to their disks
  later: if all of them lose power at the same time, the last seconds may be lost;
- all others (fsspec, NFS and other mounted file systems) have their own guarantees.

On a local file system, directories and files are private to this user; others apply their own default permissions.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConfigError
from penstock.extras import load
from penstock.private_files import DIRECTORY_MODE, check_nobody_else_wrote, open_private

if TYPE_CHECKING:
    from pyarrow import fs

_MOVES = 5
"""Number of attempts to rename a file before the error is raised."""

_LOOKS = 3
"""Number of times a reader looks for a file replaced in two steps. It tolerates as many replacements meanwhile."""

_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


class FoundFile(NamedTuple):
    """A file or a directory. modified_ms: time of its last change, None if the file system has no such times."""

    name: str
    modified_ms: int | None
    is_directory: bool


class Files:
    """Reads and writes the files of one directory, which any number of processes may share.

    Args:
        uri: a path, or a URI of a file system of pyarrow (file, hdfs, s3, gs, abfs, fsspec+...).

    Raises:
        ConfigError: the URI has another file system, or pyarrow is missing.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        arrow = _arrow_files()
        self._files: fs.FileSystem
        if "://" in uri:
            try:
                self._files, root = arrow.FileSystem.from_uri(uri)
            except (ValueError, ImportError) as error:
                # without the cause, whose text contains the complete URI
                text = str(error).replace(uri, without_secrets(uri))
                raise ConfigError(f"Cannot store files at {without_secrets(uri)}: {text}") from None
        else:
            self._files, root = arrow.LocalFileSystem(), os.path.abspath(uri)
        self._root: str = root.rstrip("/")
        self._is_local = isinstance(self._files, arrow.LocalFileSystem)
        self._is_object_store = self._files.type_name in _OBJECT_STORES
        self._made: set[str] = set()

    @property
    def local_path(self) -> str | None:
        """The path of the directory on a local file system, None elsewhere."""
        return self._root if self._is_local else None

    def below(self, name: str) -> Files:
        """Return the subdirectory `name`."""
        lower = copy(self)
        lower._root = f"{self._root}/{name}"
        lower._made = set()  # a process that lives long opens a directory for each epoch
        lower.uri = lower._root
        if "://" in self.uri:
            base, mark, query = self.uri.partition("?")
            lower.uri = f"{base.rstrip('/')}/{name}{mark}{query}"
        return lower

    # ---------- reading

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        return self._existing(path, self._read_whole)

    def read_code(self, path: str) -> bytes | None:
        """Return the content of a file that contains code.

        Raises ProcessorStateError if the file is on a local disk, and another user may have written it.
        """
        if self._is_local:
            with suppress(FileNotFoundError):
                check_nobody_else_wrote(Path(self._path(path)))
        return self.read(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes | None:
        """Return `length` bytes of a file from `offset`, None if it does not exist."""

        def read(target: str) -> bytes:
            with self._files.open_input_file(target) as file:
                return bytes(file.read_at(length, offset))

        return self._existing(path, read)

    def find(self, directory: str) -> list[FoundFile]:
        """Return the entries of a directory, empty if missing. Temporary files begin with a dot."""
        selector = _arrow_files().FileSelector(self._path(directory), allow_not_found=True)
        try:
            infos = self._files.get_file_info(selector)
        except FileNotFoundError:  # it was created after the listing, but before the check for its existence
            infos = self._files.get_file_info(selector)
        return [
            FoundFile(
                info.base_name,
                None if info.mtime_ns is None else int(info.mtime_ns) // 1_000_000,
                info.type == _arrow_files().FileType.Directory,
            )
            for info in infos
        ]

    def _existing(self, path: str, read: Callable[[str], bytes]) -> bytes | None:
        target = self._path(path)
        replaced_in_one_step = self._is_local or self._is_object_store
        for each in (target,) if replaced_in_one_step else ((target, _beside(target)) * _LOOKS + (target,)):
            try:
                return read(each)
            except FileNotFoundError:
                continue
        return None

    def _read_whole(self, target: str) -> bytes:
        with self._files.open_input_stream(target) as stream:
            return bytes(stream.read())

    # ---------- writing

    def write(self, path: str, data: bytes, before_rename: Callable[[], None] | None = None) -> None:
        """Write or replace a file; `before_rename` is called once it exists under a temporary name."""
        target = self._path(path)
        if self._is_object_store:
            self._write_whole(target, data)
            return
        temporary = self._write_beside(target, data, before_rename)
        if self._is_local:
            os.replace(temporary, target)
            sync_path(os.path.dirname(target))
        elif self._files.get_file_info(target).type == _arrow_files().FileType.NotFound:
            self._files.move(temporary, target)
        else:
            self._replace(temporary, target)

    def write_once(self, path: str, data: bytes, before_rename: Callable[[], None] | None = None) -> None:
        """Write a file with deterministic content, unless it exists.

        Any number of processes may write it at the same time. before_rename: as for `write`.
        """
        if self._is_local or self._is_object_store:
            self.write(path, data, before_rename)
            return
        target = self._path(path)
        temporary = self._write_beside(target, data, before_rename)
        for attempt in range(1, _MOVES + 1):
            if self._files.get_file_info(target).size == len(data):  # None if it does not exist
                self._delete(temporary)
                return
            try:
                self._files.move(temporary, target)
                return
            except OSError:  # another process was faster, or is about to be
                if attempt == _MOVES:
                    raise

    def sync_since(self, modified_ns: int) -> int:
        """Sync the files and directories modified since `modified_ns` (ns) by programs that do not sync.

        Returns the time of the newest, for the next call. It does nothing on file systems that are not local.
        """
        newest = modified_ns
        if self._is_local and not modified_ns:
            make_directory(self._root)
            sync_path(os.path.dirname(self._root))
        for directory, _, names in os.walk(self._root) if self._is_local else ():
            for path in (*(f"{directory}/{name}" for name in names), directory):
                with suppress(FileNotFoundError):
                    found = os.stat(path).st_mtime_ns
                    if found >= modified_ns:
                        sync_path(path)
                        newest = max(newest, found)
        return newest

    def _write_beside(self, target: str, data: bytes, before_rename: Callable[[], None] | None) -> str:
        """Write a temporary file in the directory of `target`, and return its path."""
        directory, _, _ = target.rpartition("/")
        if directory not in self._made:
            self._make(directory)
        temporary = f"{directory}/.{uuid.uuid4().hex}.tmp"
        try:
            try:
                self._write_whole(temporary, data)
            except FileNotFoundError:  # another process has deleted the directory since its creation
                self._make(directory)
                self._write_whole(temporary, data)
        except OSError:  # such as a full disk: the incomplete file takes space that others need
            with suppress(OSError):
                self._delete(temporary)
            raise
        if before_rename is not None:
            before_rename()
        return temporary

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        self._delete(self._path(path))

    def delete_directory(self, path: str) -> None:
        """Delete a directory with its content if it exists."""
        self._made.clear()
        try:
            self._files.delete_dir(self._path(path))
        except FileNotFoundError:
            return

    def clear(self) -> None:
        """Delete the content of the directory."""
        self._made.clear()
        self._files.delete_dir_contents(self._root, missing_dir_ok=True)

    def _make(self, directory: str) -> None:
        if self._is_local:
            make_directory(directory)
        else:
            self._files.create_dir(directory, recursive=True)
        self._made.add(directory)

    def _replace(self, temporary: str, target: str) -> None:
        beside = _beside(target)
        self._delete(beside)
        self._files.move(temporary, beside)
        self._delete(target)
        self._files.move(beside, target)

    def _write_whole(self, target: str, data: bytes) -> None:
        if self._is_local:
            with open_private(Path(target), "xb") as file:
                _write_all(file.fileno(), data)
                sync(file.fileno())
        else:
            with self._files.open_output_stream(target) as stream:
                stream.write(data)

    def _delete(self, target: str) -> None:
        try:
            self._files.delete_file(target)
        except FileNotFoundError:
            return

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def without_secrets(uri: str) -> str:
    """Return a URI for logs and errors, without user, password and query. The query may contain keys."""
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return uri
    place, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _arrow_files() -> Any:
    """Return pyarrow's file systems, loaded only when a directory is opened."""
    return load("pyarrow.fs", "A directory of checkpoints, savepoints or snapshots")


def _beside(target: str) -> str:
    directory, _, name = target.rpartition("/")
    return f"{directory}/.{name}.new"


# ---------- local disks


def sync(descriptor: int) -> None:
    """Sync an open file's content, or an open directory's entries, to the disk."""
    full_sync: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync leaves the data in the disk's cache
    if full_sync is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full_sync)


def sync_path(path: str) -> None:
    """Sync the content of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str) -> None:
    """Create a directory and its parents durably, if they do not exist."""
    missing: list[str] = []
    above = path
    while not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    for each in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(each, DIRECTORY_MODE)
        sync_path(os.path.dirname(each))


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
