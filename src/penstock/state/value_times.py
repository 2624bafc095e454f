"""The timestamp in the bytes of a value: at the start, or after the headers that are kept with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.state.headers_layout import without_headers
from penstock.state.layouts import TIMESTAMP_SIZE, pack_timestamp, timestamp_of


class ValueTimes(NamedTuple):
    """Reads and replaces the timestamp (ms) in the bytes of a value.

    Args:
        timestamp_of: returns the timestamp of a value.
        with_timestamp: returns a value with another timestamp.
    """

    timestamp_of: Callable[[bytes], int]
    with_timestamp: Callable[[bytes, int], bytes]


def _with_timestamp(value: bytes, timestamp: int) -> bytes:
    return pack_timestamp(timestamp) + value[TIMESTAMP_SIZE:]


def _timestamp_after_headers(value: bytes) -> int:
    return timestamp_of(without_headers(value))


def _with_timestamp_after_headers(value: bytes, timestamp: int) -> bytes:
    rest = without_headers(value)
    return value[: len(value) - len(rest)] + _with_timestamp(rest, timestamp)


AT_START: Final = ValueTimes(timestamp_of, _with_timestamp)
"""Of values without headers."""

AFTER_HEADERS: Final = ValueTimes(_timestamp_after_headers, _with_timestamp_after_headers)
"""Of values with headers."""
