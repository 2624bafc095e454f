"""The measurements of a task between two commits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.metrics.host_metrics import PUNCTUATE, RECORD_LATENESS
from penstock.metrics.measurements import NOTHING, Measurement
from penstock.metrics.observer import TaskObserver
from penstock.record import Int64Array


class TaskMeasurements:
    """Measures records and punctuations of a task, beside its observer.

    observer: receives what nodes and stores report. nanoseconds: measures durations, None on a host that shows none.
    """

    def __init__(self, observer: TaskObserver, nanoseconds: Callable[[], int] | None) -> None:
        self.observer = observer
        self._nanoseconds = nanoseconds
        self._lateness = self._punctuations = NOTHING

    def took(self, stream_times: Int64Array, timestamps: Int64Array) -> None:
        """Add by how much (ms) records are behind stream time; 0 for those ahead of it, which a policy may allow."""
        late = stream_times - timestamps
        np.maximum(late, 0, out=late)
        self._lateness = self._lateness.plus(Measurement(len(late), float(late.sum()), 0.0, float(late.max())))

    def punctuate(self, call: Callable[[], None]) -> None:
        """Call a punctuator, and add its duration unless it fails."""
        if self._nanoseconds is None:
            call()
            return
        began = self._nanoseconds()
        call()
        took = float(self._nanoseconds() - began)
        self._punctuations = self._punctuations.plus(Measurement(1, took, took, took))

    @property
    def punctuation_nanoseconds(self) -> int:
        """The duration of the punctuations since `take`, 0 without a clock for durations."""
        return int(self._punctuations.total)

    def take(self) -> dict[str, Measurement]:
        """Give up what was measured since the last call, by operation."""
        measured = self.observer.take()
        measured.update({RECORD_LATENESS: self._lateness, PUNCTUATE: self._punctuations})
        self._lateness = self._punctuations = NOTHING
        return measured
