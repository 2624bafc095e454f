"""Measurements: recorded values as a few numbers that can be added up, also over a recent window.

A `Measurement` is the report of a task for one epoch, or of a sensor; `SampledMeasurements` adds them up for the
metrics. Windows follow Kafka's rules: `metrics.num.samples` samples of `metrics.sample.window.ms` each; each new sample
replaces the oldest.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

_log = logging.getLogger(__name__)

MOST_KEYS: Final = 10_000
"""The maximum number of separate measurements: names derived from records would be unbounded."""

_Key = TypeVar("_Key", bound=Hashable)


class Measurement(NamedTuple):
    """Recorded values: their number, sum, minimum and maximum."""

    number: int = 0
    total: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def plus(self, other: Measurement) -> Measurement:
        """Return the sum of both."""
        return Measurement(
            self.number + other.number,
            self.total + other.total,
            min(self.least, other.least),
            max(self.most, other.most),
        )


NOTHING: Final = Measurement()
"""The measurement of no values."""


class MeasurementSum:
    """Adds up values that are recorded too often for a `Measurement` of each."""

    __slots__ = ("_least", "_most", "_number", "_total")

    def __init__(self) -> None:
        self._number, self._total, self._least, self._most = NOTHING

    def add(self, value: float) -> None:
        """Add one value."""
        self._number += 1
        self._total += value
        if value < self._least:
            self._least = value
        if value > self._most:
            self._most = value

    def take(self) -> Measurement:
        """Remove and return the values; `NOTHING` without any."""
        taken = Measurement(self._number, self._total, self._least, self._most) if self._number else NOTHING
        self._number, self._total, self._least, self._most = NOTHING
        return taken


def measured_once(value: float) -> Measurement:
    """Return the measurement of one value."""
    return Measurement(1, float(value), value, value)


_BUCKETS_PER_DOUBLING: Final = 4
"""Buckets of ages per doubling; the error of a quantile is at most a fifth."""


def bucket_of(age_ms: float) -> int:
    """Return the bucket of an age (ms)."""
    return int(buckets_of(np.array([age_ms]))[0])


def buckets_of(ages_ms: NDArray[Any]) -> NDArray[np.int64]:
    """Return the bucket of each age (ms): 0 below 1 ms, then four per doubling."""
    doublings = np.log2(np.maximum(ages_ms, 1))
    return np.where(ages_ms < 1, 0, 1 + np.floor(_BUCKETS_PER_DOUBLING * doublings)).astype(np.int64)


def age_of(bucket: float) -> float:
    """Return the start of a bucket (ms); fractions are positions within a bucket."""
    return bucket if bucket < 1 else 2.0 ** ((bucket - 1) / _BUCKETS_PER_DOUBLING)


def age_quantile(buckets: Mapping[int, int], share: float) -> float:
    """Return the quantile (ms) of the ages. NaN without ages.

    Args:
        buckets: the number of ages by bucket.
        share: the part of the ages up to the quantile, from 0 to 1.
    """
    wanted = share * sum(buckets.values())
    for bucket, number in sorted(buckets.items()):
        if number and wanted <= number:
            return age_of(bucket + wanted / number)
        wanted -= number
    return math.nan


class Sampled(NamedTuple):
    """Measurements at one moment.

    Args:
        number: the number of all values since the beginning.
        total: the sum of all values since the beginning.
        window: the recent values.
        seconds: the duration of the window.
    """

    number: int
    total: float
    window: Measurement
    seconds: float


class SampledMeasurement:
    """One sequence of measurements (Kafka class: SampledStat).

    Args:
        samples: the number of samples.
        window_ms: the duration of a sample in ms.
    """

    def __init__(self, samples: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._most = samples
        self._samples: deque[tuple[int, Measurement]] = deque(maxlen=samples)  # with their start times
        self._count = 0
        self._total = 0.0

    def take(self, measurement: Measurement, now_ms: int) -> None:
        """Add a measurement up to `now_ms`."""
        self._count += measurement.number
        self._total += measurement.total
        if self._samples and now_ms < self._samples[-1][0] + self._window_ms:
            began, before = self._samples.pop()
            self._samples.append((began, before.plus(measurement)))
        else:
            self._samples.append((now_ms, measurement))

    def add_total_of(self, other: SampledMeasurement) -> None:
        """Add the total of `other` without its recent samples."""
        self._count += other._count
        self._total += other._total

    def at(self, now_ms: int) -> Sampled:
        """Return the measurements at `now_ms`."""
        while self._samples and now_ms - self._samples[0][0] >= self._most * self._window_ms:
            self._samples.popleft()
        window = NOTHING
        for _, measurement in self._samples:
            window = window.plus(measurement)
        passed = now_ms - self._samples[0][0] if self._samples else 0
        # as in Kafka's Rate: all samples but the last count as full
        missing = max(self._most - 1 - passed // self._window_ms, 0)
        milliseconds = max(passed + missing * self._window_ms, self._window_ms)
        return Sampled(self._count, self._total, window, milliseconds / 1000)


class TimeShares(Generic[_Key]):
    """The share of the time of each activity of a thread, over recent windows.

    Args:
        keys: the activities.
        samples: the number of windows; the newest is incomplete.
        window_ms: the duration of a window in ms.
        began_ms: the start of the measurement.
    """

    def __init__(self, keys: Iterable[_Key], samples: int, window_ms: int, began_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._began_ms = began_ms
        self._busy: dict[_Key, dict[int, float]] = {key: {} for key in keys}  # ms, by window number
        self._open: dict[_Key, int] = {}

    def begin(self, key: _Key, now_ms: int) -> None:
        """Record the start of an activity."""
        self._open[key] = now_ms

    def end(self, key: _Key, now_ms: int) -> None:
        """Record the end of an activity; ignored without a start."""
        began = self._open.pop(key, None)
        if began is not None:
            self.take(key, now_ms - began, now_ms)

    def take(self, key: _Key, took_ms: float, now_ms: int) -> None:
        """Add the last `took_ms` before `now_ms` to an activity."""
        windows = self._busy[key]
        for window, part in self._parts(max(now_ms - took_ms, self._first(now_ms) * self._window_ms), now_ms):
            windows[window] = windows.get(window, 0.0) + part
        while len(windows) > self._samples:
            del windows[min(windows)]

    def at(self, now_ms: int) -> dict[_Key, float]:
        """Return the share (0 to 1) of each activity at `now_ms`, open activities included."""
        first = self._first(now_ms)
        since = max(self._began_ms, first * self._window_ms)
        shares = {}
        for key, windows in self._busy.items():
            busy = sum(part for window, part in windows.items() if window >= first)
            if key in self._open:
                busy += now_ms - max(self._open[key], since)
            shares[key] = min(busy / (now_ms - since), 1.0) if now_ms > since else 0.0
        return shares

    def _first(self, now_ms: int) -> int:
        """Return the number of the oldest window in the samples."""
        return now_ms // self._window_ms - self._samples + 1

    def _parts(self, began_ms: float, now_ms: int) -> Iterator[tuple[int, float]]:
        """Yield the part of the time from `began_ms` to `now_ms` in each window."""
        while began_ms < now_ms:
            window = int(began_ms // self._window_ms)
            end = min((window + 1) * self._window_ms, now_ms)
            yield window, end - began_ms
            began_ms = end


class SampledMeasurements(Generic[_Key]):
    """Sequences of measurements by key, at most MOST_KEYS; others are dropped with a log line.

    Args:
        samples: the number of samples per key.
        window_ms: the duration of a sample in ms.
    """

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._measurements: dict[_Key, SampledMeasurement] = {}
        self._left_out = False

    def take(self, key: _Key, measurement: Measurement, now_ms: int) -> None:
        """Add a measurement of `key` up to `now_ms`."""
        known = self._measurements.get(key)
        if known is None:
            if len(self._measurements) >= MOST_KEYS:
                self._leave_out(key)
                return
            known = self._measurements[key] = SampledMeasurement(self._samples, self._window_ms)
        known.take(measurement, now_ms)

    def forget(self, is_gone: Callable[[_Key], bool]) -> dict[_Key, SampledMeasurement]:
        """Remove and return the measurements of obsolete keys, to make room for others."""
        return {key: self._measurements.pop(key) for key in [*filter(is_gone, self._measurements)]}

    def add_total_of(self, key: _Key, other: SampledMeasurement) -> None:
        """Add the total of `other` to `key`, without its recent samples."""
        known = self._measurements.setdefault(key, SampledMeasurement(self._samples, self._window_ms))
        known.add_total_of(other)

    def at(self, now_ms: int) -> dict[_Key, Sampled]:
        """Return the measurements of each key at `now_ms`."""
        return {key: measurement.at(now_ms) for key, measurement in self._measurements.items()}

    def _leave_out(self, key: _Key) -> None:
        if not self._left_out:
            self._left_out = True
            _log.warning("More than %d different metrics are measured; %s and others are left out.", MOST_KEYS, key)
