"""The records that a host has read, processed, dropped and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RecordCounts:
    """Numbers of records since the start of a host.

    Args:
        consumed: records and bytes read, by topic.
        produced: records and bytes written, by topic.
        processed: records by task.
        dropped: records without a result, by task.
    """

    consumed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    produced: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    processed: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
