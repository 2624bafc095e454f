"""Where this user's programs keep state, and the checks of its directories and files.

The checks are those of the broker's data directory (`penstock_broker.common.private_files`); the library raises
ProcessorStateError for what they refuse.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import platformdirs

from penstock.errors import ProcessorStateError
from penstock_broker.common import private_files
from penstock_broker.common.private_files import UnsafePathError

DIRECTORY_MODE = private_files.DIRECTORY_MODE
FILE_MODE = private_files.FILE_MODE


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
    """Make a directory and its missing parents, for this user alone, and return it.

    Raises:
        ProcessorStateError: it is a link, a file or another user's; or it cannot be made.
    """
    with _refused():
        return private_files.private_directory(path)


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file of this user, or make one that no other user may read; mode: as that of `open`, with b.

    Raises:
        ProcessorStateError: it is a link, or another user's.
        OSError: what `open` raises.
    """
    with _refused():
        return private_files.open_private(path, mode)


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


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except UnsafePathError as error:
        raise ProcessorStateError(str(error)) from error.__cause__
