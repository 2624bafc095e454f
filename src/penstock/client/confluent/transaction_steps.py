"""Calls of librdkafka in a transaction, which may fail temporarily or never return."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from penstock.background import in_background
from penstock.client.confluent.connection import RETRY_SECONDS, passing


class UnansweredError(KafkaException):
    """A call of a producer in a transaction has not returned; its effect is unknown, and an abort is impossible."""


def until(seconds: float, step: Callable[[], object]) -> None:
    """Run a step of the transaction protocol, and retry after temporary errors.

    Args:
        seconds: the limit (s) of all attempts.
        step: the step. Its KafkaException is raised if it is permanent, or after the limit.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            step()
            return
        except KafkaException as error:
            code: Code = error.args[0]
            if code.fatal() or code.txn_requires_abort() or not passing(code) or time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_SECONDS)


def returning(seconds: float, step: Callable[[], object], throttled_until: Callable[[], float] = lambda: 0.0) -> None:
    """Run a step that may ignore its own timeout: librdkafka waits for a group coordinator that has disappeared.

    Args:
        seconds: the limit (s). After it, UnansweredError is raised, and the thread is abandoned with its producer.
        step: the step.
        throttled_until: returns the end (s, monotonic) of the brokers' throttling, which does not count.
    """
    deadline = time.monotonic() + seconds
    future = in_background("penstock-transaction", step)
    try:
        while True:
            try:
                future.result(max(deadline - time.monotonic(), 0))
                return
            except TimeoutError as error:
                deadline = throttled_until() + seconds
                if time.monotonic() >= deadline:
                    raise UnansweredError(
                        Code(Code._TIMED_OUT, "the request for the offsets of the transaction got no answer")
                    ) from error
    finally:
        del future  # it has the error, whose frames have it: a reference cycle
