"""A disk that loses what was not synced: notes what a program syncs, and leaves what a loss of power leaves.

What counts is what the functions of POSIX promise, and no more: the content of a file is durable once the file was
synced, and a name in a directory, made, replaced or deleted, once the directory was synced. A file whose name is
durable and whose content is not is empty. Files are synced once, when they are written.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from penstock.host.storage import files


class Disk:
    """Notes what is synced, from when it is made on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace `files.sync`."""
        self._sync = files.sync
        self._contents: dict[int, bytes] = {}
        self._entries: dict[str, dict[str, int]] = {}
        self.synced = 0
        monkeypatch.setattr(files, "sync", self._note)

    def lose_power(self, directory: Path, bases: Path) -> None:
        """Leave in `directory` what is durable of it; `bases`: a directory of files that nobody syncs, which are torn
        or empty."""
        left = directory.with_name(f"{directory.name}.left")
        shutil.rmtree(left, ignore_errors=True)
        self._copy(str(directory), left)
        shutil.rmtree(directory)
        left.rename(directory)
        self._renamed(str(directory))
        for number, file in enumerate(sorted(bases.rglob("data.mdb"))):
            os.truncate(file, file.stat().st_size // 2 if number % 2 else 0)

    def _note(self, descriptor: int) -> None:
        self._sync(descriptor)
        self.synced += 1
        found = os.fstat(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(found.st_mode):
            self._entries[path] = {each.name: each.inode() for each in os.scandir(path)}
        else:
            if found.st_ino in self._contents:  # of a file that was deleted, and nothing says so but this
                for directory, entries in self._entries.items():
                    self._entries[directory] = {name: at for name, at in entries.items() if at != found.st_ino}
            self._contents[found.st_ino] = Path(path).read_bytes()

    def _copy(self, source: str, target: Path) -> None:
        target.mkdir(parents=True)
        for name, inode in self._entries.get(source, {}).items():
            if Path(source, name).is_dir() or f"{source}/{name}" in self._entries:  # or was, before it was deleted
                self._copy(f"{source}/{name}", target / name)
            else:
                (target / name).write_bytes(self._contents.get(inode, b""))

    def _renamed(self, directory: str) -> None:
        """Take what is left for what is durable: the copies are other files."""
        for path, _, names in os.walk(directory):
            self._entries[path] = {each.name: each.inode() for each in os.scandir(path)}
            for name in names:
                self._contents[os.stat(f"{path}/{name}").st_ino] = Path(path, name).read_bytes()
