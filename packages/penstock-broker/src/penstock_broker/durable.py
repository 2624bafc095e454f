"""Files and names that survive a power failure unchanged.

Contains the steps for all files of the broker that are not appended to. Not here: segments, which are forced to disk by
their own rules (segment.py).

Rule: a file is on disk before it gets its name, so that a start finds either the previous file or the whole new one.
Indexes are exempt: they have checksums and are rebuilt.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from penstock_broker.common.private_files import FILE_MODE


def sync_path(path: Path) -> None:
    """Force a file, or the names in a directory, to disk.

    Args:
        path: the file or the directory.

    Raises:
        OSError: the sync failed, or the path is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file atomically, even if the machine loses power.

    Args:
        path: the file.
        content: its bytes.

    Raises:
        OSError: the file cannot be written; its previous content is unchanged.
    """
    _write(path, content, os.fsync)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically, unless the machine loses power.

    Args:
        path: the file.
        content: its bytes, with a checksum; a power failure may lose them.

    Raises:
        OSError: the file cannot be written; its previous content is unchanged.
    """
    _write(path, content, lambda _: None)


def _write(path: Path, content: bytes, before_rename: Callable[[int], None]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            before_rename(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
