"""When an application goes on by itself after an error, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BrokerNotFoundError, CorruptedBaseError, KafkaError
from penstock.host.supervision.restarts import Restarts, TaskTimeout


def test_the_wait_doubles_up_to_a_bound_and_the_row_has_an_end() -> None:
    restarts = Restarts(5, 100, 500)
    assert [restarts.next_wait_ms(7) for _ in range(6)] == [100, 200, 400, 500, 500, None]


def test_a_commit_ends_the_row() -> None:
    restarts = Restarts(2, 100, 500)
    assert [restarts.next_wait_ms(commit) for commit in (1, 1, 2, 2, 2, 3)] == [100, 200, 100, 200, None, 100]


@given(st.integers(0, 9), st.integers(0, 5000), st.integers(0, 60_000), st.integers(1, 100))
def test_never_more_than_the_limit_without_a_commit(most: int, wait: int, longest: int, asked: int) -> None:
    restarts = Restarts(most, wait, longest)
    waits = [restarts.next_wait_ms(3) for _ in range(asked)]
    granted = [each for each in waits if each is not None]
    assert len(granted) == min(most, asked)
    assert all(each <= longest for each in granted)
    assert granted == sorted(granted)


def test_what_brokers_do_not_serve_is_tried_again_until_the_timeout_of_tasks() -> None:
    error, timeout = BrokerNotFoundError("none answers"), TaskTimeout(300)
    assert [timeout.allows(error, now) for now in (1_000, 1_100, 1_299, 1_300)] == [True, True, True, False]
    assert timeout.allows(error, 1_301)  # the tasks that the handler has replaced have a time of their own
    timeout.succeeded()
    assert timeout.allows(error, 1_600)
    assert not timeout.allows(KafkaError("no right"), 1_601)
    assert timeout.allows(CorruptedBaseError("/state", "torn"), 1_602)  # it is made again


def test_without_a_timeout_the_first_error_is_reported_and_with_one_never_the_first() -> None:
    error = BrokerNotFoundError("none answers")
    assert not TaskTimeout(0).allows(error, 5)
    short = TaskTimeout(1)
    assert [short.allows(error, now) for now in (5, 60_000)] == [True, False]
