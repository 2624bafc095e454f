"""Reasons for dropped records, one per case in processors, stores and handlers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple


class DropReason(StrEnum):
    """The reason why a record, or its part for one window, has no result."""

    NULL_KEY = "null-key"
    NULL_VALUE = "null-value"
    LATE = "late"
    """The window is closed, or the store no longer retains its time."""
    DUPLICATE = "duplicate"
    """A record with the same key, or the same key and id, came before within the interval."""
    OUT_OF_ORDER = "out-of-order"
    """A versioned table has a newer value of the key."""
    OUTDATED = "outdated"
    """The row of a foreign-key join has changed since its subscription."""
    INVALID_TIMESTAMP = "invalid-timestamp"
    DESERIALIZATION = "deserialization"
    """The record could not be deserialised, and the handler continued."""
    PROCESSING = "processing"
    """A processor failed, and the handler continued."""
    SERIALIZATION = "serialization"
    """The record could not be serialised, and the handler continued."""
    NO_PARTITION = "no-partition"
    """The partitioner returned no partition."""


PASSED: Final = frozenset((DropReason.DESERIALIZATION, DropReason.PROCESSING, DropReason.SERIALIZATION))
"""The reasons of exception handlers that continue without a record."""


INTENDED: Final = frozenset((DropReason.DUPLICATE,))
"""The reasons of operators whose purpose is to drop records."""


class Dropped(NamedTuple):
    """The key of a counter: a node or store, and the reason of its dropped records."""

    place: str
    reason: DropReason


def null_part(key: Any) -> DropReason:
    """Return the reason for a record without a key or a value."""
    return DropReason.NULL_KEY if key is None else DropReason.NULL_VALUE


def by_place(dropped: Mapping[Dropped, int]) -> Counter[str]:
    """Return the number of dropped records by node or store, for all reasons."""
    found: Counter[str] = Counter()
    for (place, _), records in dropped.items():
        found[place] += records
    return found
