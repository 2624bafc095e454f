"""The rate of starts is limited."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.host.calls.rate import RateLimiter


def test_starts_keep_their_distance() -> None:
    limiter = RateLimiter(10)
    assert limiter.wait(100.0) == 0
    limiter.start(100.0)
    assert round(limiter.wait(100.04), 6) == 0.05  # 10 ms less, for late timers
    assert limiter.wait(100.2) == 0


@given(st.floats(1, 10_000), st.lists(st.floats(0, 0.3), min_size=1, max_size=100))
def test_no_second_has_more_starts_than_the_rate(rate: float, pauses: list[float]) -> None:
    limiter, now, starts = RateLimiter(rate), 0.0, []
    for pause in pauses:
        now += pause
        for _ in range(20):  # as many at once as are allowed
            if limiter.wait(now) > 0:
                break
            limiter.start(now)
            starts.append(now)
    for number, first in enumerate(starts):
        within = [start for start in starts[number:] if start < first + 1]
        assert len(within) <= rate * 1.01 + 1 + 1e-6 * rate
