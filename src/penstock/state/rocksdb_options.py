"""User settings of RocksDB's options, without importing rocksdict: only state/rocksdb.py does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.config import StreamsConfig

if TYPE_CHECKING:
    import rocksdict


class RocksDBConfigSetter(ABC):
    """Changes the options of each database (Kafka class: RocksDBConfigSetter).

    Set `rocksdb.config.setter` to the class or its name.
    """

    @abstractmethod
    def set_config(self, name: str, options: rocksdict.Options, config: StreamsConfig) -> None:
        """Change `options` of the database `name` before it is opened.

        The name is that of the database's directory.
        """
        raise NotImplementedError

    @abstractmethod
    def close(self, name: str, options: rocksdict.Options) -> None:
        """Release resources of `set_config` for the database, which is closed now."""
        raise NotImplementedError
