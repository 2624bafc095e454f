"""The input of chaos, drawn by seed: rounds of records for each topic, in the order in which they are written."""

from __future__ import annotations

import random
import re
from typing import Final

from tests.host.support import InputRecord

_KEYS: Final = tuple(f"u{number}" for number in range(10))
_START_MS: Final = 1_700_000_000_000
_ROUND_MS: Final = 20_000
_STREAM_RECORDS, _TABLE_RECORDS = 60, 12

_ASSERTION: Final = "rd_slice_narrow_copy: Assertion"

Row = tuple[str, InputRecord]
"""A record and the topic that it goes to, without the prefix; its partition is chosen when it is written."""


def first_round(seed: int) -> list[Row]:
    """Return the records of the table that does not change, before all others in time, and the first of the others."""
    draw = random.Random(f"{seed} first")
    accounts = [_row(draw, "accounts", f"account{n}", _START_MS - 1_000 + n) for n in range(40)]
    return accounts + _tables(draw, _START_MS)


def round_of(seed: int, number: int) -> list[Row]:
    """Return the records of a later round, from 1; times overlap between rounds."""
    draw = random.Random(f"{seed} {number}")
    start = _START_MS + number * _ROUND_MS
    streams = [
        _row(draw, draw.choice(("clicks", "views")), f"{draw.choice('abcdefgh')}{number}.{n}", _time(draw, start))
        for n in range(_STREAM_RECORDS)
    ]
    return streams + _tables(draw, start)


def a_click(seed: int, number: int) -> bytes:
    """Return the value of the last click of a later round."""
    return [row.value or b"" for topic, row in round_of(seed, number) if topic == "clicks"][-1]


def names_damage(log: str, prefix: str) -> bool:
    """Return whether a log has an error on a damaged batch that names its topic, partition and offset.

    The assertion of librdkafka counts too: after a damaged batch, it may read on at a wrong place, and end the process.
    """
    named = re.search(rf"damaged \(reading {prefix}-\S+-\d+ .*at offset \d+\)", log)
    return named is not None or _ASSERTION in log


def _tables(draw: random.Random, start: int) -> list[Row]:
    users = [_row(draw, "users", f"name{draw.randrange(1000)}", start + n) for n in range(_TABLE_RECORDS)]
    orders = []
    for n in range(_TABLE_RECORDS):
        order = f"o{draw.randrange(30)}".encode()
        value = f"{draw.choice(_KEYS)}-{draw.randrange(1000)}".encode() if draw.random() < 0.85 else None
        orders.append(("orders", InputRecord(order, value, start + n)))
    return users + orders


def _time(draw: random.Random, start: int) -> int:
    return start + draw.randrange(2 * _ROUND_MS)


def _row(draw: random.Random, topic: str, value: str, time: int) -> Row:
    key = draw.choice(_KEYS)
    return topic, InputRecord(key.encode(), value.encode(), time)
