"""Opens bases on disk by name.

RocksDB's module is imported on demand, since its package is optional.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from penstock import extras
from penstock.config import StreamsConfig
from penstock.state.api import DiskBase
from penstock.state.lmdb import FIRST_MAP_BYTES, LmdbBase

LMDB, ROCKSDB = "lmdb", "rocksdb"


def open_base(kind: str, path: Path, config: StreamsConfig, content_bytes: int = 0) -> DiskBase:
    """Open or create the base in the directory `path`.

    Args:
        kind: LMDB or ROCKSDB.
        path: the directory, used by this base alone.
        config: of the application; provides RocksDB's options.
        content_bytes: expected bytes of keys and values.

    Raises:
        ConfigError: a package is not installed.
        LockError: another process has the base open, and only one may.
        ProcessorStateError: the base cannot be opened.
    """
    if kind == LMDB:  # in a map of twice the content: when a map grows, a rebuild starts over
        return LmdbBase(path, max(FIRST_MAP_BYTES, 4 * content_bytes))
    base: DiskBase = _rocksdb().RocksDBBase(path, config)
    return base


def check_installed(kind: str) -> None:
    """Raise ConfigError if a base of this kind needs a missing package."""
    if kind == ROCKSDB:
        _rocksdb()


def _rocksdb() -> ModuleType:
    return extras.load("penstock.state.rocksdb", f"penstock.state.base={ROCKSDB}")
