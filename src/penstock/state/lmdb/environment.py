"""Opening of LMDB environments, and the errors of damaged files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import lmdb

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

FIRST_MAP_BYTES: Final = 1 << 30
DATA_FILE: Final = "data.mdb"
"""Name of the file with the content of a base."""

MOST_DOUBLINGS: Final = 16
MAX_READERS: Final = 512

DAMAGED = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
    lmdb.PanicError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.BadTxnError,
    lmdb.BadDbiError,
    lmdb.BadValsizeError,
    lmdb.ProblemError,
)
"""Errors that LMDB raises only for damaged files, given the calls of this package."""


def opened_or_empty(path: Path, open_environment: Callable[[], lmdb.Environment]) -> lmdb.Environment:
    """Return the environment in the directory `path`, replacing an unreadable file by an empty one."""
    try:
        return open_environment()
    except DAMAGED as error:
        _log.warning("The base %s is damaged (%s): it starts empty.", path, error)
    for name in (DATA_FILE, "lock.mdb"):
        (path / name).unlink(missing_ok=True)
    return open_environment()


def growing(action: Callable[[], _T], adapt: Callable[[], None] = lambda: None) -> _T:
    """Run `action`; while another process grows the map meanwhile, call `adapt` and run it again."""
    for _ in range(MOST_DOUBLINGS):
        try:
            return action()
        except lmdb.MapResizedError:
            adapt()
    return action()
