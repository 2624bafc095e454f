"""Opens bases on disk by name. That of RocksDB is imported by its name, so that nobody needs a package that nobody asks
for."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from penstock import extras
from penstock.config import StreamsConfig
from penstock.state.api import DiskBase
from penstock.state.lmdb import FIRST_MAP_BYTES, LmdbBase

LMDB, ROCKSDB = "lmdb", "rocksdb"


def open_base(kind: str, path: Path, config: StreamsConfig, content_bytes: int = 0) -> DiskBase:
    """Open or make the base in the directory `path`.

    Args:
        kind: LMDB or ROCKSDB.
        path: the directory, of this base alone.
        config: of the application; that of RocksDB takes its options from it.
        content_bytes: how many bytes of keys and values are to be expected.

    Raises:
        ConfigError: a package is not installed.
        LockError: another process has the base open, and only one may.
        ProcessorStateError: it cannot be opened.
    """
    if kind == LMDB:  # in a map of twice the content: when a map grows, a rebuild starts over
        return LmdbBase(path, max(FIRST_MAP_BYTES, 4 * content_bytes))
    base: DiskBase = _rocksdb().RocksDBBase(path, config)
    return base


def check_installed(kind: str) -> None:
    """Raise ConfigError if a base of this kind needs a package that is not installed."""
    if kind == ROCKSDB:
        _rocksdb()


def _rocksdb() -> ModuleType:
    return extras.load("penstock.state.rocksdb", f"penstock.state.base={ROCKSDB}")
