"""The figures of polls and runs, added up."""

from __future__ import annotations

import pytest

from penstock.host.threads.frequent_figures import BLOCKED, POLLING, PROCESSING, PUNCTUATING, FrequentFigures
from penstock.metrics.host_metrics import POLL_RECORDS, PROCESS_RECORDS, HostMeasurements, Operation
from penstock.metrics.measurements import Measurement, TimeShares

WINDOW_MS = 1_000


class Figures:
    """The figures, and where they go."""

    def __init__(self) -> None:
        self.measurements = HostMeasurements(2, WINDOW_MS)
        self.shares = TimeShares((POLLING, PROCESSING, PUNCTUATING), 2, WINDOW_MS, 0)
        self.frequent = FrequentFigures(self.measurements, self.shares, 0)

    def window(self, operation: Operation, now_ms: int) -> Measurement | None:
        found = self.measurements.at(now_ms).operations.get(operation)
        return None if found is None else found.window


@pytest.fixture
def figures() -> Figures:
    return Figures()


def test_polls_become_metrics_with_their_number_and_extremes(figures: Figures) -> None:
    figures.frequent.polled(2, 1, 10)
    figures.frequent.polled(6, 3, 20)
    assert figures.window(POLLING, 20) is None, "two polls of 20 ms wait for others"
    figures.frequent.move(20)
    assert figures.window(POLLING, 20) == Measurement(2, 8.0, 2, 6)
    assert figures.window(Operation(POLL_RECORDS), 20) == Measurement(2, 4.0, 1, 3)
    assert figures.window(BLOCKED, 20) == Measurement(2, 8e6, 2e6, 6e6)
    assert figures.shares.at(20)[POLLING] == 8 / 20


def test_runs_become_metrics_and_those_without_records_only_take_time(figures: Figures) -> None:
    figures.frequent.ran(5, 3.0, 0.0, 10)
    figures.frequent.ran(0, 0.0, 2.0, 20)
    figures.frequent.move(20)
    assert figures.window(Operation(PROCESS_RECORDS), 20) == Measurement(1, 5.0, 5, 5)
    assert (figures.shares.at(20)[PROCESSING], figures.shares.at(20)[PUNCTUATING]) == (3 / 20, 2 / 20)


@pytest.mark.parametrize("kind", ["poll", "run"])
def test_figures_move_on_their_own_after_a_while(figures: Figures, kind: str) -> None:
    for now in (50, 99, 100):
        assert figures.window(POLLING, now) is None
        assert figures.window(Operation(PROCESS_RECORDS), now) is None
        if kind == "poll":
            figures.frequent.polled(1, 1, now)
        else:
            figures.frequent.ran(1, 1.0, 0.0, now)
    moved = figures.window(POLLING if kind == "poll" else Operation(PROCESS_RECORDS), 100)
    assert moved is not None
    assert moved.number == 3


def test_nothing_moves_twice(figures: Figures) -> None:
    figures.frequent.polled(1, 1, 10)
    figures.frequent.move(10)
    figures.frequent.move(20)
    assert figures.window(POLLING, 20) == Measurement(1, 1.0, 1, 1)
