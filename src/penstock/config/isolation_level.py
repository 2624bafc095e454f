"""The isolation levels of interactive queries (KIP-892)."""

from __future__ import annotations

from enum import Enum
from typing import Any


class IsolationLevel(Enum):
    """The changes of state that a query sees (Kafka class: org.apache.kafka.common.IsolationLevel)."""

    READ_UNCOMMITTED = "READ_UNCOMMITTED"
    """Every write of the tasks, committed or not."""
    READ_COMMITTED = "READ_COMMITTED"
    """Committed changes only."""


def checked_level(level: Any) -> IsolationLevel:
    """Return `level`; raises TypeError unless it is an IsolationLevel."""
    if not isinstance(level, IsolationLevel):
        raise TypeError(f"Expected an IsolationLevel, got {level!r}: write IsolationLevel.READ_COMMITTED, for example.")
    return level
