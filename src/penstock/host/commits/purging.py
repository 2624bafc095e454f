"""Deletes the records that have been read of topics that an application alone reads, repartition topics and those
between DataFrames and it: they would stay for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.client.api import Admin
from penstock.errors import KafkaError
from penstock.record import TopicPartition


class RecordPurge:
    """Deletes from time to time; repeats the next time what a broker refuses."""

    def __init__(self, interval_ms: int, clock: Callable[[], int]) -> None:
        """Begin to wait. interval_ms: between two deletions (`repartition.purge.interval.ms`). clock: gives ms."""
        self._interval_ms = interval_ms
        self._clock = clock
        self._purged_at = clock()

    def is_due(self) -> bool:
        """Return whether it is time to delete."""
        return self._clock() - self._purged_at >= self._interval_ms

    def purge(self, admin: Admin, positions: Mapping[TopicPartition, int]) -> None:
        """Delete the records before `positions` if it is time to; positions: committed, so that nobody goes back."""
        if not positions or not self.is_due():
            return
        self._purged_at = self._clock()
        try:
            admin.delete_records({partition: offset for partition, offset in positions.items() if offset > 0})
        except KafkaError:
            return
