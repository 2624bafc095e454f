"""The clocks: which of them moves by itself, and which of them a host takes."""

from __future__ import annotations

import time

import pytest

from penstock_broker.common.clock import Clocks, ElapsedClock, MockClock, SystemClock


def test_a_mock_clock_moves_only_by_its_steps() -> None:
    clock = MockClock(5)
    clock.advance(0)
    clock.advance(7)
    assert clock.milliseconds() == 12
    with pytest.raises(ValueError, match="expected a step of 0 ms or more, got -1"):
        clock.advance(-1)
    assert clock.milliseconds() == 12


def test_a_clock_that_is_given_serves_for_both_purposes() -> None:
    clock = MockClock()
    assert Clocks.of(clock) == (clock, clock)
    wall, elapsed = Clocks.of(None)
    assert (type(wall), type(elapsed)) == (SystemClock, ElapsedClock)


def test_intervals_do_not_see_a_jump_of_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ElapsedClock().milliseconds()
    monkeypatch.setattr(time, "time", lambda: 1_234.5678)
    assert SystemClock().milliseconds() == 1_234_567  # a jump of decades
    assert 0 <= ElapsedClock().milliseconds() - before < 10_000_000
