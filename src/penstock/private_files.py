"""The user's state directory, and checks of private directories and files.

The checks are those of the broker's data directory (`penstock_broker.common.private_files`); the library raises
ProcessorStateError for their refusals.
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
    """Return the platform's directory for state of this user, such as ~/.local/state/penstock (XDG_STATE_HOME).

    If that is not writable, return a directory among the temporary files. It may not exist yet.
    """
    chosen = platformdirs.user_state_path("penstock", appauthor=False)
    existing = next(each for each in (chosen, *chosen.parents) if each.exists())
    return chosen if os.access(existing, os.W_OK | os.X_OK) else temporary_directory()


def temporary_directory() -> Path:
    """Return this user's directory among the temporary files; it may not exist yet."""
    return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"


def private_directory(path: Path) -> Path:
    """Create a directory and its missing parents, for this user only, and return it.

    Raises:
        ProcessorStateError: it is a link, a file or another user's; or it cannot be created.
    """
    with _refused(" The configuration names its directories with state.dir and penstock.checkpoint.dir."):
        return private_files.private_directory(path)


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file of this user, or create one that no other user may read.

    Args:
        path: of the file.
        mode: as for `open`, with b.

    Raises:
        ProcessorStateError: it is a link, or another user's.
        OSError: as for `open`.
    """
    with _refused():
        return private_files.open_private(path, mode)


def check_nobody_else_wrote(path: Path) -> None:
    """Check a file that contains code to load.

    Raises:
        ProcessorStateError: the owner is neither this user nor root, or everybody may write to it.
        OSError: it cannot be inspected.
    """
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & stat.S_IWOTH:
        raise ProcessorStateError(
            f"The file {path} (owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}) contains code that would "
            f"run as the user {os.geteuid()}, and another user may have written it. If you trust its content, make "
            f"it yours: chown {os.geteuid()} {path} && chmod 600 {path}"
        )


@contextmanager
def _refused(advice: str = "") -> Iterator[None]:
    try:
        yield
    except UnsafePathError as error:
        raise ProcessorStateError(f"{error}{advice}") from error.__cause__
