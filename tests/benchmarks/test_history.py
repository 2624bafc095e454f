"""Runs are saved into the history, and compared within each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.history import Rate, Run, runs, save

RATES = (
    Rate("q0", "Penstock on threads", 20.0, "events/s", 5.0),
    Rate("q1", "Penstock on threads", 80.0, "events/s"),
    Rate("q2", "Penstock on threads", 1.0, "events/s"),
    Rate("q0", "Flink SQL", 10.0, "events/s"),
    Rate("q1", "Flink SQL", 10.0, "events/s"),
)


def test_a_run_is_read_as_it_was_saved(tmp_path: Path) -> None:
    run = Run.of_now("nexmark", RATES)
    save(run, tmp_path / "history")
    assert runs(tmp_path / "history") == [run]


def test_runs_are_in_the_order_of_their_dates(tmp_path: Path) -> None:
    later = Run("nexmark", "0.3.0", "a", "2026-11-29", "2 cores", RATES)
    earlier = replace(later, commit="b", date="2026-11-28")
    other = replace(later, benchmark="threads", date="2026-11-01")
    for run in (later, other, earlier):
        save(run, tmp_path)
    assert runs(tmp_path) == [earlier, later, other]


def test_a_run_replaces_the_one_of_the_same_day_and_commit(tmp_path: Path) -> None:
    run = Run("nexmark", "0.3.0", "a", "2026-11-29", "2 cores", RATES)
    save(run, tmp_path)
    save(replace(run, rates=RATES[:2]), tmp_path)
    assert [len(each.rates) for each in runs(tmp_path)] == [2]


def test_a_run_without_rates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="The run of nexmark has no rates to save"):
        save(Run.of_now("nexmark", ()), tmp_path)


def test_systems_are_compared_over_the_rows_that_both_have() -> None:
    assert Run.of_now("nexmark", RATES).ratios() == {("Penstock on threads", "Flink SQL"): pytest.approx(4.0)}
