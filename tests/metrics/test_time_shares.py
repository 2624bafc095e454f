"""The share of the time that activities take, of the last windows."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.measurements import TimeShares

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
