"""Deletion of processed records from topics with no other reader than the application.

These are repartition topics, and topics between DataFrames and the application; their records would otherwise be kept
forever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.client.api import Admin
from penstock.errors import KafkaError
from penstock.record import TopicPartition


class RecordPurge:
    """Deletes records at intervals, retrying refused deletions in the next interval.

    Args:
        interval_ms: time (ms) between two deletions (`repartition.purge.interval.ms`).
        clock: returns the time in ms.
    """

    def __init__(self, interval_ms: int, clock: Callable[[], int]) -> None:
        self._interval_ms = interval_ms
        self._clock = clock
        self._purged_at = clock()

    def is_due(self) -> bool:
        """Return whether a deletion is due."""
        return self._clock() - self._purged_at >= self._interval_ms

    def purge(self, admin: Admin, positions: Mapping[TopicPartition, int]) -> None:
        """Delete the records before `positions` if due; positions: committed, so that no reader goes back."""
        if not positions or not self.is_due():
            return
        self._purged_at = self._clock()
        try:
            admin.delete_records({partition: offset for partition, offset in positions.items() if offset > 0})
        except KafkaError:
            return
