"""Measurements that can be added up: totals for ever, values of the last windows, shares of time, ages."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics import measurements
from penstock.metrics.measurements import (
    NOTHING,
    Measurement,
    MeasurementSum,
    Sampled,
    SampledMeasurement,
    SampledMeasurements,
    TimeShares,
    age_of,
    age_quantile,
    bucket_of,
    buckets_of,
    measured_once,
)

SAMPLES, WINDOW_MS = 3, 10


@given(began=st.integers(-50, 50), steps=st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1))
def test_a_share_is_the_time_taken_in_the_windows_that_count(began: int, steps: list[tuple[int, bool]]) -> None:
    taken, ended = (TimeShares(["work", "rest"], SAMPLES, WINDOW_MS, began) for _ in range(2))
    moments = list(accumulate((step for step, _ in steps), initial=began))
    busy: set[int] = set()
    for (begins, ends), (_, works) in zip(pairwise(moments), steps, strict=True):
        if works:
            busy.update(range(begins, ends))
            taken.take("work", ends - begins, ends)
            ended.begin("work", begins)
            ended.end("work", ends)
        counting = range(max(began, (ends // WINDOW_MS - SAMPLES + 1) * WINDOW_MS), ends)
        share = len(busy.intersection(counting)) / len(counting) if counting else 0.0
        for shares in (taken, ended):
            assert shares.at(ends) == {"work": pytest.approx(share), "rest": 0.0}


def test_what_has_not_ended_counts() -> None:
    shares = TimeShares(["work"], SAMPLES, WINDOW_MS, 0)
    shares.begin("work", 6)
    assert shares.at(8) == {"work": 0.25}
    assert shares.at(1_000) == {"work": 1.0}
    shares.end("work", 1_000)
    shares.end("work", 1_005)  # it has ended already
    assert shares.at(1_005) == {"work": pytest.approx(20 / 25)}


def test_activities_of_several_threads_take_no_more_than_all_the_time() -> None:
    shares = TimeShares(["work"], SAMPLES, WINDOW_MS, 0)
    for _ in range(2):
        shares.take("work", 8.0, 10)
    assert shares.at(10) == {"work": 1.0}


SAMPLE_MS = 30_000


FINITE = st.floats(-1e9, 1e9)


def of(*values: float) -> Measurement:
    measured = NOTHING
    for value in values:
        measured = measured.plus(Measurement(1, value, value, value))
    return measured


def test_rates_are_of_the_last_windows_totals_of_all() -> None:
    sampled = SampledMeasurement(2, SAMPLE_MS)
    sampled.take(of(1.0), 1_000_000)
    assert sampled.at(1_000_000) == Sampled(1, 1.0, of(1.0), 30.0)  # the first window is taken for full
    sampled.take(of(2.0), 1_000_000 + SAMPLE_MS - 1)
    sampled.take(of(3.0), 1_000_000 + SAMPLE_MS)
    assert sampled.at(1_000_000 + SAMPLE_MS + 15_000) == Sampled(3, 6.0, of(1.0, 2.0, 3.0), 45.0)
    sampled.take(of(4.0), 1_000_000 + 2 * SAMPLE_MS)
    assert sampled.at(1_000_000 + 2 * SAMPLE_MS) == Sampled(4, 10.0, of(3.0, 4.0), 30.0)
    assert sampled.at(1_000_000 + 9 * SAMPLE_MS) == Sampled(4, 10.0, NOTHING, 30.0)


@given(st.lists(st.tuples(st.integers(0, 20_000), FINITE), max_size=40), st.integers(1, 4))
def test_a_window_has_what_was_measured_within_it(steps: list[tuple[int, float]], samples: int) -> None:
    sampled = SampledMeasurement(samples, SAMPLE_MS)
    now, taken = 0, []
    for step, value in steps:
        now += step
        sampled.take(of(value), now)
        taken.append((now, value))
    result = sampled.at(now)
    assert result.number == len(taken)
    assert result.window.number <= len(taken)
    assert result.seconds >= SAMPLE_MS / 1000 * max(samples - 1, 1)
    certain = [value for at, value in taken if now - at < (samples - 1) * SAMPLE_MS]
    possible = [value for at, value in taken if now - at < (samples + 1) * SAMPLE_MS]
    assert len(certain) <= result.window.number <= len(possible)
    if result.window.number:
        assert result.window.most in possible


@given(st.lists(FINITE, min_size=1), st.data())
def test_measurements_are_the_same_however_they_are_added_up(values: list[float], data: st.DataObject) -> None:
    cuts = sorted({0, len(values), *data.draw(st.lists(st.integers(0, len(values))))})
    total = NOTHING
    for start, stop in pairwise(cuts):
        total = total.plus(of(*values[start:stop]))
    assert total._replace(total=0.0) == of(*values)._replace(total=0.0)
    assert total.total == pytest.approx(sum(values), abs=1e-3)


def test_names_without_an_end_are_left_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(measurements, "MOST_KEYS", 2)
    kept: SampledMeasurements[str] = SampledMeasurements(2, SAMPLE_MS)
    for key in "abcd":
        kept.take(key, of(1.0), 0)
    kept.take("a", of(1.0), 0)
    assert {key: sampled.number for key, sampled in kept.at(0).items()} == {"a": 2, "b": 1}
    assert len(caplog.records) == 1


def test_what_is_forgotten_makes_room_and_may_keep_its_total() -> None:
    kept: SampledMeasurements[str] = SampledMeasurements(2, SAMPLE_MS)
    kept.take("gone", of(2.0, 3.0), 0)
    gone = kept.forget(lambda key: key == "gone")
    assert kept.at(0) == {}
    kept.add_total_of("all", gone["gone"])
    assert kept.at(0) == {"all": Sampled(2, 5.0, NOTHING, 30.0)}


@given(st.floats(0, 1e12))
def test_the_bucket_of_an_age_is_at_most_a_fifth_wide(age: float) -> None:
    bucket = bucket_of(age)
    assert age_of(bucket) <= age * 1.0001
    assert age < age_of(bucket + 1) * 1.0001
    assert bucket == 0 or age_of(bucket + 1) <= 1.2 * age_of(bucket)


def test_ages_below_a_millisecond_are_in_one_bucket_and_doublings_in_four() -> None:
    assert buckets_of(np.array([0, 0.9, 1, 2, 4])).tolist() == [0, 0, 1, 5, 9]
    assert [age_of(bucket) for bucket in (0, 0.5, 1, 5, 9)] == [0, 0.5, 1, 2, 4]


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        ({}, 0.5, math.nan),
        ({1: 0}, 0.5, math.nan),
        ({1: 3, 9: 1}, 0.5, age_of(1 + 2 / 3)),
        ({1: 1, 9: 1}, 1.0, age_of(10)),
    ],
)
def test_a_quantile_is_within_the_bucket_that_it_falls_into(
    buckets: dict[int, int], share: float, expected: float
) -> None:
    assert age_quantile(buckets, share) == pytest.approx(expected, nan_ok=True)


def test_one_value_is_its_own_minimum_and_maximum() -> None:
    assert measured_once(2) == Measurement(1, 2.0, 2, 2)
    assert NOTHING.plus(measured_once(2)) == measured_once(2)


@given(st.lists(st.integers(-100, 100)))
def test_a_sum_is_that_of_the_measurements_of_its_values(values: list[int]) -> None:
    added = MeasurementSum()
    expected = NOTHING
    for value in values:
        added.add(value)
        expected = expected.plus(measured_once(value))
    assert added.take() == expected
    assert added.take() == NOTHING
