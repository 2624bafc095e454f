"""How users change the options of RocksDB. It does not need rocksdict, which only state/rocksdb.py imports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.config import StreamsConfig

if TYPE_CHECKING:
    import rocksdict


class RocksDBConfigSetter(ABC):
    """Changes the options of each database; name it or its class in `rocksdb.config.setter` (Kafka class:
    RocksDBConfigSetter)."""

    @abstractmethod
    def set_config(self, name: str, options: rocksdict.Options, config: StreamsConfig) -> None:
        """Change `options` of the database `name`, which is that of its directory, before it is opened."""
        raise NotImplementedError

    @abstractmethod
    def close(self, name: str, options: rocksdict.Options) -> None:
        """Release what `set_config` made for the database, which is closed now."""
        raise NotImplementedError
