"""The figures of calls add up between two looks."""

from __future__ import annotations

from penstock.host.calls.measuring import CallCounters, CallFigures
from penstock.metrics.measurements import Measurement


def test_figures_count_since_the_last_look_and_keep_the_present() -> None:
    counters = CallCounters()
    counters.set(2, 5)
    counters.attempted(10)
    counters.attempted(30)
    counters.retried()
    counters.answered(0)
    counters.answered(1)
    assert counters.take() == CallFigures(2, 5, 2, 1, 1, Measurement(2, 40, 10, 30), (10, 30))
    assert counters.take() == CallFigures(2, 5, percentiles=(10, 30))


def test_percentiles_are_those_of_the_last_attempts() -> None:
    counters = CallCounters()
    assert counters.take().percentiles is None
    for milliseconds in range(2_000):
        counters.attempted(milliseconds)
    assert counters.take().percentiles == (1_499, 1_989)
    for _ in range(1_000):
        counters.attempted(7)
    assert counters.take().percentiles == (7, 7)
