"""The arguments of Calls and Retry."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Calls, Retry
from penstock.errors import TopologyError


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"capacity": 0}, ValueError, "capacity of Calls to be 1 or more, got 0"),
        ({"capacity": 1.5}, TypeError, "capacity of Calls as a whole number, got 1.5"),
        ({"threads": -1}, ValueError, "threads of Calls to be 0 or more, got -1"),
        ({"max_records": 0}, ValueError, "max_records of Calls"),
        ({"max_bytes": True}, TypeError, "max_bytes of Calls as a whole number"),
        ({"batch_size": 0}, ValueError, "batch_size of Calls to be 1 or more, got 0"),
        ({"batch_size": 1.5}, TypeError, "batch_size of Calls as a whole number, got 1.5"),
        ({"batch_wait": -1}, ValueError, "batch_wait of Calls must not be negative, got -1"),
        ({"batch_wait": "1s"}, TypeError, "batch_wait of Calls"),
        ({"timeout": 0}, ValueError, "timeout of Calls must be at least 1 ms, got 0"),
        ({"timeout": 5}, ValueError, r"so 5 is 5 ms: write timedelta\(seconds=5\), or timedelta\(milliseconds=5\) if"),
        ({"timeout": "5s"}, TypeError, "timeout of Calls"),
        ({"retry": 5}, TypeError, r"Expected a Retry for Calls, got 5: write Retry\(attempts=5\)"),
        ({"rate": "many"}, TypeError, "rate of Calls as a number per second, got 'many'"),
        ({"rate": 0}, ValueError, "rate of Calls must be larger than 0, got 0"),
        ({"rate": float("nan")}, ValueError, "rate of Calls must be larger than 0"),
        ({"order": "any"}, ValueError, "order of Calls as one of 'key', 'partition', 'unordered', got 'any'"),
        ({"open": 5}, TypeError, "open of Calls, which returns a context manager, got 5"),
        ({"on_failure": "fail"}, ValueError, "on_failure of Calls as one of 'raise', 'skip', got 'fail'"),
        ({"on_failure": "skip", "then": "x"}, ValueError, "either on_failure or then"),
        ({"then": 5}, TypeError, "the name of a topic for then of Calls, got 5"),
        ({"then": "no topic"}, TopologyError, "no topic"),
        ({"answer_serde": str}, TypeError, "as answer_serde of Calls, got .* write Serdes.msgpack.str."),
        ({"store_name": "a b"}, TopologyError, "a b"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Calls(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"attempts": 0}, ValueError, "attempts of Retry to be 1 or more"),
        ({"attempts": 2, "backoff": 5}, TypeError, r"Expected a Backoff for Retry, got 5: write Backoff\(timedelta"),
        ({"attempts": 2, "on": 5}, TypeError, "types of errors for on of Retry, got 5"),
        ({"attempts": 2, "on": (OSError, str)}, TypeError, "types of errors for on of Retry, got <class 'str'>"),
        ({"attempts": 2, "on": BaseException}, TypeError, "types of errors for on of Retry"),
    ],
)
def test_wrong_retries_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Retry(**arguments)
