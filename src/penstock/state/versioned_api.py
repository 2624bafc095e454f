"""The protocol of stores that remember what a value was at a time (KIP-889). Times are ms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from penstock.state.api import EngineStore, StateStore

PUT_RETURN_CODE_VALID_TO_UNDEFINED = -1
"""Returned by a put whose version is the latest."""

PUT_RETURN_CODE_NOT_PUT = -(1 << 63)
"""Returned by a put that came too late, and was not made (Java: Long.MIN_VALUE)."""


@dataclass(frozen=True, slots=True)
class VersionedRecord:
    """One version of a value (Kafka class: VersionedRecord).

    timestamp: from when it was valid. valid_to: until when, None for the latest version; typed stores leave it out, as
    Kafka's do.
    """

    value: Any
    timestamp: int
    valid_to: int | None = None


class VersionedKeyValueStore(StateStore, Protocol):
    """A store of keys and values that keeps old versions for its history retention (Kafka class:
    VersionedKeyValueStore)."""

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Store the version of `key` that is valid from `timestamp`; None says that there is no value from then on.

        Returns until when it is valid, PUT_RETURN_CODE_VALID_TO_UNDEFINED for the latest, PUT_RETURN_CODE_NOT_PUT if it
        is older than the history. Raises TypeError for a None key.
        """
        ...

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Say that `key` has no value from `timestamp` on; return the version that was valid then."""
        ...

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest version of `key`, or the one that was valid at `as_of`; None if there is none, or `as_of`
        is before the history and the latest version is later."""
        ...


class EngineVersionedKeyValueStore(VersionedKeyValueStore, EngineStore, Protocol):
    """A versioned store as operators see it; it has no record cache."""
