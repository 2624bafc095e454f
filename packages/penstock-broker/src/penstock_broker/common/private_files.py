"""Directories and files that belong to this user alone.

What others could write to, they could change or replace by links; what they could read may hold passwords. So each
directory that Penstock makes on a local disk has the mode 0700 and each file 0600, and what is there already must be
this user's: in a directory that all share, such as that of temporary files, anybody may have been first.
"""

from __future__ import annotations

import os
import stat
from itertools import takewhile
from pathlib import Path
from typing import IO

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


class UnsafePathError(Exception):
    """A directory or file is not this user's alone, or cannot be used; the message says what to do."""


def private_directory(path: Path) -> Path:
    """Make a directory and those above it that are missing, for this user alone, and return it.

    An existing one is used if it belongs to this user, and from then on nobody else may enter it. One of root's is used
    unchanged, unless everybody may write to it: a volume of a container, for example.

    Raises:
        UnsafePathError: it is a link, a file or another user's; or it cannot be made.
    """
    try:
        missing = list(takewhile(lambda each: not os.path.lexists(each), (path, *path.parents)))
        for each in reversed(missing):
            each.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnsafePathError(
            f"The directory {path} cannot be used: {error.strerror}. It must be a directory, not a link, and writable "
            "for this user; or name another one (state.dir, penstock.checkpoint.dir, --data-dir of a broker)."
        ) from error
    try:
        found = os.fstat(descriptor)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid == os.geteuid():
            if mode & 0o077:
                os.fchmod(descriptor, DIRECTORY_MODE)
        elif found.st_uid != 0 or mode & stat.S_IWOTH:
            raise UnsafePathError(
                f"The directory {path} belongs to another user (id {found.st_uid}, mode {mode:o}), who could read and "
                "change its files. Name another one (state.dir, --data-dir of a broker), or change its owner to the "
                f"user {os.geteuid()}."
            )
    finally:
        os.close(descriptor)
    return path


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file of this user, or make one that nobody else may read; mode: as that of `open`, with b.

    Raises:
        UnsafePathError: it is a link, or another user's.
        OSError: what `open` raises.
    """
    return open(path, mode, opener=_opened)


def _opened(path: str, flags: int) -> int:
    if os.path.islink(path):
        raise UnsafePathError(f"The file {path} is a link, and Penstock does not follow links: delete it.")
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        os.close(descriptor)
        raise UnsafePathError(f"The file {path} belongs to another user (id {owner}): delete it.")
    return descriptor
