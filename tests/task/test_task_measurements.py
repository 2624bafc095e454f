"""The measurements of a task between two commits."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.metrics.host_metrics import PUNCTUATE, RECORD_LATENESS
from penstock.metrics.measurements import Measurement
from penstock.metrics.observer import NOT_OBSERVED
from penstock.task.task_measurements import TaskMeasurements


def test_a_punctuation_is_measured_also_if_it_fails() -> None:
    def fail() -> None:
        raise ValueError("no")

    measurements = TaskMeasurements(NOT_OBSERVED, iter([100, 105, 200, 203]).__next__)
    measurements.punctuate(lambda: None)
    with pytest.raises(ValueError, match="no"):
        measurements.punctuate(fail)
    assert measurements.punctuation_nanoseconds == 8
    assert measurements.take()[PUNCTUATE] == Measurement(2, 8.0, 3.0, 5.0)
    assert measurements.take()[PUNCTUATE].number == 0


def test_records_ahead_of_stream_time_are_not_late() -> None:
    measurements = TaskMeasurements(NOT_OBSERVED, None)
    measurements.add_lateness(np.array([10, 10, 10]), np.array([4, 10, 12]))
    assert measurements.take()[RECORD_LATENESS] == Measurement(3, 6.0, 0.0, 6.0)
