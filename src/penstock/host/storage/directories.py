"""Local directories of an application, private to its user."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

from penstock.config import StreamsConfig
from penstock.private_files import default_directory, private_directory, temporary_directory

_log = logging.getLogger(__name__)


def application_path(config: StreamsConfig) -> Path:
    """Return <state.dir>/<application.id>, which may not exist; the id is safe in paths."""
    return Path(config["state.dir"]) / str(config.required("application.id"))


def application_directory(config: StreamsConfig) -> Path:
    """Create and return <state.dir>/<application.id>, private to this user.

    Raises ProcessorStateError if it belongs to another user.
    """
    path = application_path(config)
    if path.parent in (default_directory(), temporary_directory()):
        private_directory(path.parent)  # it may be among the temporary files, where any user may have created it
    return private_directory(path)


def warn_of_temporary_state(config: StreamsConfig) -> None:
    """Log a warning if an application's checkpoint is among temporary files.

    That is the case if no better place is writable.
    """
    if Path(config["state.dir"]) == temporary_directory() and config["penstock.checkpoint.dir"] is None:
        _log.warning(
            "The checkpoint of %s is among the temporary files (%s), because the state directory of this user is not "
            "writable. A restart of the machine may delete it: set state.dir or penstock.checkpoint.dir.",
            config["application.id"],
            config["state.dir"],
        )


def own_checkpoint_directory(path: Path) -> None:
    """Create the directory of a checkpoint, private to this user.

    An existing one is unchanged; if all users may write to it, a warning is logged, because write access to a
    checkpoint allows running code as its user.
    """
    if not path.is_dir():
        private_directory(path)
    elif path.stat().st_mode & stat.S_IWOTH:
        _log.warning(
            "All users may write to the checkpoint %s, and thus run code as this user: chmod o-w %s", path, path
        )
