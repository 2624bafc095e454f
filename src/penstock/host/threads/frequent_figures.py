"""The figures of polls and runs. There may be thousands a second, so they are added up before they become metrics."""

from __future__ import annotations

from typing import Final

from penstock.metrics.host_metrics import (
    BLOCKED_TIME,
    POLL,
    POLL_RECORDS,
    PROCESS,
    PROCESS_RECORDS,
    PUNCTUATE,
    HostMeasurements,
    Operation,
)
from penstock.metrics.measurements import Measurement, MeasurementSum, TimeShares

POLLING, PROCESSING, PUNCTUATING = Operation(POLL), Operation(PROCESS), Operation(PUNCTUATE)
BLOCKED: Final = Operation(BLOCKED_TIME)
NANOSECONDS_OF_MS: Final = 1_000_000

_POLL_RECORDS, _PROCESS_RECORDS = Operation(POLL_RECORDS), Operation(PROCESS_RECORDS)
_TOGETHER_MS: Final = 100
"""The time whose figures are added up. A sample of the metrics takes much longer."""


class FrequentFigures:
    """Adds up the figures of polls and runs; not thread-safe.

    Args:
        measurements: receive the sums.
        shares: receive the times.
        now_ms: the clock for samples (ms).
    """

    def __init__(self, measurements: HostMeasurements, shares: TimeShares[Operation], now_ms: int) -> None:
        self._measurements = measurements
        self._shares = shares
        self._moved_ms = now_ms
        self._polls, self._polled, self._run = MeasurementSum(), MeasurementSum(), MeasurementSum()
        self._processing_ms = self._punctuating_ms = 0.0

    def polled(self, took_ms: int, records: int, now_ms: int) -> None:
        """Add a poll."""
        self._polls.add(took_ms)
        self._polled.add(records)
        if now_ms - self._moved_ms >= _TOGETHER_MS:
            self.move(now_ms)

    def ran(self, records: int, processing_ms: float, punctuating_ms: float, now_ms: int) -> None:
        """Add a run of a task. processing_ms, punctuating_ms: as a share of the time of all workers."""
        self._processing_ms += processing_ms
        self._punctuating_ms += punctuating_ms
        if records:
            self._run.add(records)
        if now_ms - self._moved_ms >= _TOGETHER_MS:
            self.move(now_ms)

    def move(self, now_ms: int) -> None:
        """Move the sums to the metrics."""
        self._moved_ms = now_ms
        polls = self._polls.take()
        for activity, took_ms in (
            (POLLING, polls.total),
            (PROCESSING, self._processing_ms),
            (PUNCTUATING, self._punctuating_ms),
        ):
            if took_ms:
                self._shares.take(activity, took_ms, now_ms)
        self._processing_ms = self._punctuating_ms = 0.0
        for operation, measured in (
            (POLLING, polls),
            (_POLL_RECORDS, self._polled.take()),
            (_PROCESS_RECORDS, self._run.take()),
            (BLOCKED, _in_nanoseconds(polls)),
        ):
            if measured.number:
                self._measurements.take(operation, measured, now_ms)


def _in_nanoseconds(measured_ms: Measurement) -> Measurement:
    number, *values = measured_ms
    return Measurement(number, *(value * NANOSECONDS_OF_MS for value in values))
