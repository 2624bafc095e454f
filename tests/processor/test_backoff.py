"""The waits between the attempts of a retry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Backoff


def test_the_waits_grow_up_to_the_limit() -> None:
    backoff = Backoff(timedelta(seconds=1), factor=4, limit=timedelta(hours=1))
    waits = [backoff.wait_ms(failures) for failures in range(1, 9)]
    assert waits == [1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000, 3_600_000, 3_600_000]
    assert backoff.limit_ms == 3_600_000


def test_a_factor_of_one_waits_the_same_time() -> None:
    assert {Backoff(500, factor=1).wait_ms(failures) for failures in (1, 2, 10**9)} == {500}


def test_the_waits_double_up_to_an_hour_by_default() -> None:
    assert [Backoff(1_000).wait_ms(failures) for failures in (1, 2, 3, 100)] == [1_000, 2_000, 4_000, 3_600_000]


@given(st.integers(1, 10**6), st.floats(1, 10), st.integers(0, 10**9), st.integers(1, 60))
def test_waits_never_shrink_nor_exceed_the_limit(initial: int, factor: float, more: int, failures: int) -> None:
    backoff = Backoff(initial, factor, initial + more)
    assert initial <= backoff.wait_ms(failures) <= backoff.wait_ms(failures + 1) <= initial + more


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"initial": 0}, ValueError, "initial wait of Backoff must be at least 1 ms, got 0"),
        (
            {"initial": "1s"},
            TypeError,
            "Expected the initial wait of Backoff as a timedelta or a whole number of ms|mill",
        ),
        ({"initial": 1, "factor": 0.5}, ValueError, "factor of Backoff must be at least 1, got 0.5"),
        ({"initial": 1, "factor": float("nan")}, ValueError, "at least 1, got nan"),
        ({"initial": 1, "factor": float("inf")}, ValueError, "at least 1, got inf"),
        ({"initial": 1, "factor": "2"}, TypeError, "factor of Backoff as a number, such as 2, got '2'"),
        ({"initial": 1, "factor": True}, TypeError, "factor of Backoff as a number"),
        ({"initial": 10, "limit": 9}, ValueError, "at least the initial wait, 10 ms, and at most a year, got 9"),
        ({"initial": 10, "limit": timedelta(days=400)}, ValueError, "at most a year"),
    ],
)
def test_wrong_waits_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Backoff(**arguments)
