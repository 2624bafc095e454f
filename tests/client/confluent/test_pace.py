"""Producers whose brokers take records slowly: what waits is known, and transactions get the time that they need."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.confluent import pace
from penstock.client.confluent.pace import Pace, TransactionTimeout


def test_the_time_for_what_waits_is_that_which_the_brokers_took_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    measured = Pace()
    measured.give(300, waiting=0)
    now += 0.5
    assert measured.seconds_left(waiting=300) == 0  # not known yet
    now += 9.5
    assert measured.seconds_left(waiting=200) == 20
    measured.give(50, waiting=0)
    assert (measured.taken(waiting=20), measured.seconds_left(waiting=20)) == (30, 0)


def test_what_waits_in_a_new_producer_says_nothing_of_its_brokers() -> None:
    assert Pace().seconds_left(waiting=3) == 0


@given(st.integers(100, 900_000), st.integers(0, 10_000), st.integers(1, 10_000), st.floats(0, 900))
def test_transactions_that_brokers_take_slowly_get_the_time_that_they_need(
    given_ms: int, waiting: int, taken: int, seconds: float
) -> None:
    timeout = TransactionTimeout(given_ms)
    needed = max(given_ms / 1000, seconds) * (waiting + taken) / taken
    while timeout.seconds < needed and timeout.lengthen(seconds, waiting, taken):
        pass
    assert timeout.seconds >= min(needed, 900)
    assert timeout.ms <= max(900_000, given_ms)


def test_brokers_that_take_nothing_do_not_make_the_time_long() -> None:
    timeout = TransactionTimeout(10_000)
    while timeout.lengthen(timeout.seconds, waiting=100, taken=0):
        pass
    assert timeout.seconds == 60


def test_brokers_that_refuse_a_long_time_get_a_shorter_one_and_no_longer_one_again() -> None:
    timeout = TransactionTimeout(10_000)
    assert timeout.lengthen(10, waiting=900, taken=100)
    longest = timeout.ms
    assert timeout.refused()
    assert 10_000 <= timeout.ms <= longest // 2
    assert not timeout.lengthen(10, waiting=900, taken=100)
    while timeout.refused():
        pass
    assert timeout.ms == 10_000


def test_the_given_time_holds_again_after_quick_transactions() -> None:
    timeout = TransactionTimeout(10_000)
    assert timeout.lengthen(10, waiting=900, taken=100)
    quick = [timeout.committed(seconds) for seconds in (0.1, 9, *[0.1] * pace._QUICK_COMMITS)]
    assert (quick.index(True), timeout.ms) == (len(quick) - 1, 10_000)
