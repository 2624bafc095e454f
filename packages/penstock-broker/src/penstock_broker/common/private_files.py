"""Directories and files that only this user can access.

Files that other users can write could be changed or replaced by links; files that they can read may hold passwords. So
every directory that Penstock creates on a local disk has mode 0700 and every file 0600, and existing ones must belong
to this user: in a shared directory, such as that of temporary files, another user may have created them first.
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
    """A path is not private to this user or cannot be used.

    The message says how to fix it.
    """


def private_directory(path: Path) -> Path:
    """Create a private directory with its missing parents, and return it.

    An existing directory is used if it belongs to this user, and becomes private. A directory of root is used unchanged
    unless it is world-writable: a volume of a container, for example.

    Raises:
        UnsafePathError: it is a link, a file or another user's; or it cannot be created.
    """
    try:
        missing = list(takewhile(lambda each: not os.path.lexists(each), (path, *path.parents)))
        for each in reversed(missing):
            each.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnsafePathError(
            f"The directory {path} cannot be used: {error.strerror}. It must be a directory, not a link, and writable "
            "for this user; or choose another one (--data-dir of a broker)."
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
                f"change its files. Change its owner to the user {os.geteuid()}; or choose another one (--data-dir of "
                "a broker)."
            )
    finally:
        os.close(descriptor)
    return path


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file of this user, or create a private one.

    `mode` is that of `open`, with b.

    Raises:
        UnsafePathError: it is a link, or another user's.
        OSError: as raised by `open`.
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
