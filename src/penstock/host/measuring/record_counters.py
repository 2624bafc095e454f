"""The number of records and bytes that a host reads and writes by topic, and of records by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set

from penstock.host.api import HostStatistics
from penstock.metrics.drop_reasons import Dropped
from penstock.metrics.host_metrics import Operation, dropped_of
from penstock.metrics.measurements import Measurement

Totals = dict[str, tuple[int, int]]
"""Records and bytes by topic."""


class RecordCounters:
    """Sums records and bytes; not thread-safe.

    Args:
        is_internal: whether a topic is the application's own.
        answers: the topics of the answers of calls, which are among these.
    """

    def __init__(
        self, is_internal: Callable[[str], bool] = lambda topic: False, answers: Set[str] = frozenset()
    ) -> None:
        self.is_internal = is_internal
        """Whether a topic is the application's own."""
        self._answers = answers
        self.processed: Counter[str] = Counter()
        """Processed records by task."""
        self.dropped: Counter[str] = Counter()
        """Records without a result by task."""
        self.dropped_for: Counter[Dropped] = Counter()
        """Records without a result by node or store, and reason."""
        self._consumed: Totals = {}
        self._produced: Totals = {}

    def consumed(self, topic: str, records: int, size: int) -> None:
        """Add arrived records. size: in bytes."""
        _add(self._consumed, topic, records, size)

    def produced(self, topic: str, records: int, size: int) -> None:
        """Add records being written. size: in bytes."""
        _add(self._produced, topic, records, size)

    def measured(self, operation: Operation, measurement: Measurement) -> None:
        """Add the dropped records of a measurement of a task, if it is one of them."""
        if dropped := dropped_of(operation):
            self.dropped_for[dropped] += measurement.number

    def snapshot(self) -> HostStatistics:
        """Return the figures of topics and tasks."""
        outside = [figures for topic, figures in self._consumed.items() if not self.is_internal(topic)]
        written = [figures for topic, figures in self._produced.items() if not self.is_internal(topic)]
        return HostStatistics(
            records_in=sum(records for records, _ in outside),
            bytes_in=sum(size for _, size in outside),
            records_out=sum(records for records, _ in written),
            answers_in=sum(self._consumed[topic][0] for topic in self._answers & self._consumed.keys()),
            consumed=dict(self._consumed),
            produced=dict(self._produced),
            processed=dict(self.processed),
            dropped=dict(self.dropped),
        )


def _add(totals: Totals, topic: str, records: int, size: int) -> None:
    records_before, size_before = totals.get(topic, (0, 0))
    totals[topic] = records_before + records, size_before + size
