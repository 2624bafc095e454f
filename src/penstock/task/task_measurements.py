"""The measurements of a task between two commits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.metrics.host_metrics import PUNCTUATE, RECORD_LATENESS
from penstock.metrics.measurements import NOTHING, Measurement
from penstock.metrics.observer import TaskObserver
from penstock.record import Int64Array


class TaskMeasurements:
    """Measures records and punctuations of a task, in addition to its observer.

    Args:
        observer: receives the reports of nodes and stores.
        nanoseconds: the clock for durations; None on a host that does not show them.
    """

    def __init__(self, observer: TaskObserver, nanoseconds: Callable[[], int] | None) -> None:
        self.observer = observer
        self._nanoseconds = nanoseconds
        self._lateness = self._punctuations = NOTHING

    def add_lateness(self, stream_times: Int64Array, timestamps: Int64Array) -> None:
        """Add the lateness (ms) of records.

        It is 0 for records ahead of stream time, which a policy may allow.
        """
        late = stream_times - timestamps
        if len(late) == 1:  # one call of numpy in place of four
            latest = sum_ms = max(0, int(late[0]))
        else:
            np.maximum(late, 0, out=late)
            latest, sum_ms = int(late.max()), int(late.sum())
        self._lateness = self._lateness.plus(Measurement(len(late), float(sum_ms), 0.0, float(latest)))

    def punctuate(self, call: Callable[[], None]) -> None:
        """Call a punctuator, and add its duration, also if it fails (Kafka method: maybeMeasureLatency)."""
        if self._nanoseconds is None:
            call()
            return
        began = self._nanoseconds()
        try:
            call()
        finally:
            duration = float(self._nanoseconds() - began)
            self._punctuations = self._punctuations.plus(Measurement(1, duration, duration, duration))

    @property
    def punctuation_nanoseconds(self) -> int:
        """The duration of the punctuations since `take`, 0 without a clock for durations."""
        return int(self._punctuations.total)

    def take(self) -> dict[str, Measurement]:
        """Remove and return the measurements since the last call, by operation."""
        measured = self.observer.take()
        measured.update({RECORD_LATENESS: self._lateness, PUNCTUATE: self._punctuations})
        self._lateness = self._punctuations = NOTHING
        return measured
