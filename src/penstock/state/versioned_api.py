"""The protocol of stores that keep the history of values (KIP-889). Times are ms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from penstock.config.isolation_level import IsolationLevel
from penstock.state.api import EngineStore, WritableStateStore

PUT_RETURN_CODE_VALID_TO_UNDEFINED = -1
"""Returned by a put of the latest version."""

PUT_RETURN_CODE_NOT_PUT = -(1 << 63)
"""Returned by a put that was late and rejected (Java: Long.MIN_VALUE)."""


@dataclass(frozen=True, slots=True)
class VersionedRecord:
    """One version of a value (Kafka class: VersionedRecord).

    Args:
        timestamp: start of its validity.
        valid_to: end of its validity, None for the latest version; typed stores omit it, like Kafka's.
    """

    value: Any
    timestamp: int
    valid_to: int | None = None


class VersionedKeyValueStore(WritableStateStore, Protocol):
    """A store that keeps old versions for its history retention (Kafka class: VersionedKeyValueStore)."""

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Store the version of `key` that is valid from `timestamp`; None deletes the key.

        Returns the end of its validity: PUT_RETURN_CODE_VALID_TO_UNDEFINED for the latest version,
        PUT_RETURN_CODE_NOT_PUT if it is older than the history. Raises TypeError for a None key.
        """
        ...

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Delete `key` from `timestamp` on; return the version that was valid then."""
        ...

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest version of `key`, or the version valid at `as_of`.

        Returns None if absent, or if `as_of` is before the history and the latest version is later.
        """
        ...

    def read_only(self, isolation_level: IsolationLevel) -> VersionedKeyValueStore:
        """Return this store for reads at an isolation level, as `ReadOnlyKeyValueStore.read_only` (KIP-892)."""
        ...


class EngineVersionedKeyValueStore(VersionedKeyValueStore, EngineStore, Protocol):
    """The operators' view of a versioned store; it has no record cache."""
