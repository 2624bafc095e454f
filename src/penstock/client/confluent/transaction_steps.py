"""The steps of a transaction, as calls of librdkafka that fail for a moment, or do not return."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from penstock.background import in_background
from penstock.client.confluent.connection import RETRY_SECONDS, passing


class UnansweredError(KafkaException):
    """A producer has not returned from a step of its transaction: it cannot abort, and what it has done is unknown."""


def until(seconds: float, step: Callable[[], object]) -> None:
    """Run a step of the transaction protocol, repeated while its error is a passing one, for at most `seconds`; raises
    KafkaException."""
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
    """Run a step that may not return in spite of its timeout: librdkafka waits for a group coordinator that went away.
    Raises UnansweredError after `seconds`, and abandons the waiting thread with its producer. throttled_until: returns
    until when (s, monotonic) brokers make the client wait, a time that does not count."""
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
