"""Why records are dropped: a reason for each place where a processor, a store or a handler gives a record up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple


class DropReason(StrEnum):
    """Why a record, or the part of it that one window takes, has no result."""

    NULL_KEY = "null-key"
    NULL_VALUE = "null-value"
    LATE = "late"
    """Its window is closed, or the store no longer retains its time."""
    OUT_OF_ORDER = "out-of-order"
    """A versioned table has a newer value of the key."""
    OUTDATED = "outdated"
    """The row of a foreign-key join has changed since it asked for this answer."""
    INVALID_TIMESTAMP = "invalid-timestamp"
    DESERIALIZATION = "deserialization"
    """It cannot be read, and the handler continues."""
    PROCESSING = "processing"
    """A processor failed, and the handler continues."""
    SERIALIZATION = "serialization"
    """It cannot be written, and the handler continues."""
    NO_PARTITION = "no-partition"
    """The partitioner names none."""


PASSED: Final = frozenset((DropReason.DESERIALIZATION, DropReason.PROCESSING, DropReason.SERIALIZATION))
"""Why a handler of exceptions was asked about a record and let it pass."""


class Dropped(NamedTuple):
    """What is counted together: the records that the node or store `place` drops for a reason."""

    place: str
    reason: DropReason


def null_part(key: Any) -> DropReason:
    """Return why a record is dropped that lacks its key or its value."""
    return DropReason.NULL_KEY if key is None else DropReason.NULL_VALUE


def by_place(dropped: Mapping[Dropped, int]) -> Counter[str]:
    """Return how many records each node or store has dropped, for any reason."""
    found: Counter[str] = Counter()
    for (place, _), records in dropped.items():
        found[place] += records
    return found
