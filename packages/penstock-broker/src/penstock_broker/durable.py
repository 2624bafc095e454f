"""Files and names that a loss of power leaves as they are.

Contains what every file of the broker needs that is not appended to. Not here: segments, which are forced to disk by
their own rules (segment.py).

Rule: a file is on disk before it gets its name, so that a start finds the file before or the whole new one. Indexes are
left out: they have checksums and are made again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from penstock_broker.common.private_files import FILE_MODE


def sync_path(path: Path) -> None:
    """Force a file to disk, or the names in a directory.

    Args:
        path: the file or the directory.

    Raises:
        OSError: that failed, or it is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that another start finds as it was before or complete, also after a loss of power.

    Args:
        path: the file.
        content: its bytes.

    Raises:
        OSError: it cannot be written; the file is as before.
    """
    _write(path, content, os.fsync)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that another start finds as it was before or complete, unless the machine loses its power.

    Args:
        path: the file.
        content: its bytes, with a checksum; after a loss of power they may be missing.

    Raises:
        OSError: it cannot be written; the file is as before.
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
