"""Directories and files that belong to this user alone.

What others could write to, they could change or replace by links; what they could read may hold passwords. So each
directory that Penstock makes on a local disk has the mode 0700 and each file 0600, and what is there already must be
this user's: in a directory that all share, such as that of temporary files, anybody may have been first.
"""

from __future__ import annotations

import os
import stat
import tempfile
from itertools import takewhile
from pathlib import Path
from typing import IO

import platformdirs

from penstock.errors import ProcessorStateError

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


def default_directory() -> Path:
    """Return where this user's programs keep state by the convention of the platform, such as ~/.local/state/penstock
    (XDG_STATE_HOME); among the temporary files where that cannot be written. It may not be there yet."""
    chosen = platformdirs.user_state_path("penstock", appauthor=False)
    existing = next(each for each in (chosen, *chosen.parents) if each.exists())
    return chosen if os.access(existing, os.W_OK | os.X_OK) else temporary_directory()


def temporary_directory() -> Path:
    """Return the directory of this user among the temporary files, which may not be there yet."""
    return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"


def private_directory(path: Path) -> Path:
    """Make a directory and those above it that are missing, for this user alone, and return it.

    An existing one is used if it belongs to this user, and from then on nobody else may enter it. One of root's is used
    unchanged, unless everybody may write to it: a volume of a container, for example.

    Raises:
        ProcessorStateError: it is a link, a file or another user's; or it cannot be made.
    """
    try:
        missing = list(takewhile(lambda each: not os.path.lexists(each), (path, *path.parents)))
        for each in reversed(missing):
            each.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ProcessorStateError(
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
            raise ProcessorStateError(
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
        ProcessorStateError: it is a link, or another user's.
        OSError: what `open` raises.
    """
    return open(path, mode, opener=_opened)


def check_nobody_else_wrote(path: Path) -> None:
    """Check a file that code is loaded from.

    Raises:
        ProcessorStateError: another user than root owns it, or everybody may write to it.
        OSError: it cannot be looked at.
    """
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & stat.S_IWOTH:
        raise ProcessorStateError(
            f"The file {path} (owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}) contains code that would "
            f"run as the user {os.geteuid()}, and another user may have written it. If you trust its content, make "
            f"it yours: chown {os.geteuid()} {path} && chmod 600 {path}"
        )


def _opened(path: str, flags: int) -> int:
    if os.path.islink(path):
        raise ProcessorStateError(f"The file {path} is a link, and Penstock does not follow links: delete it.")
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        os.close(descriptor)
        raise ProcessorStateError(f"The file {path} belongs to another user (id {owner}): delete it.")
    return descriptor
