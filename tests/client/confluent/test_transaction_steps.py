"""Steps of a transaction: what is repeated, and calls that do not return."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from penstock.client.confluent.transaction_steps import UnansweredError, returning, until

PASSING = Code(Code.NOT_COORDINATOR)


def failing(*codes: Code) -> tuple[Callable[[], None], list[Code]]:
    """Return a step that fails with these codes, one after the other, and those that are left."""
    left = list(codes)

    def step() -> None:
        if left:
            raise KafkaException(left.pop(0))

    return step, left


def test_a_step_is_repeated_while_its_errors_pass() -> None:
    step, left = failing(PASSING, Code(Code._TIMED_OUT))
    until(60, step)
    assert left == []


@pytest.mark.parametrize(
    "code",
    [
        Code(Code.INVALID_TXN_STATE),
        Code(Code.NOT_COORDINATOR, "x", fatal=True),
        Code(Code.NOT_COORDINATOR, "x", txn_requires_abort=True),
    ],
)
def test_an_error_that_does_not_pass_is_raised_at_once(code: Code) -> None:
    step, left = failing(code, PASSING)
    with pytest.raises(KafkaException):
        until(60, step)
    assert left == [PASSING]


def test_after_the_limit_the_last_error_is_raised() -> None:
    step, left = failing(PASSING, PASSING)
    with pytest.raises(KafkaException):
        until(0, step)
    assert len(left) == 1


def test_the_error_of_a_step_that_returns_is_raised() -> None:
    step, _ = failing(Code(Code._FENCED))
    with pytest.raises(KafkaException) as caught:
        returning(60, step)
    assert not isinstance(caught.value, UnansweredError)
    returning(60, lambda: None)


@pytest.mark.parametrize("throttled", [0.0, 0.05])
def test_a_step_that_does_not_return_is_left_alone_after_the_limit(throttled: float) -> None:
    release, began = Event(), time.monotonic()
    try:
        with pytest.raises(UnansweredError, match="got no answer"):
            returning(0.01, release.wait, lambda: began + throttled)
        assert time.monotonic() >= began + throttled + 0.01
    finally:
        release.set()
