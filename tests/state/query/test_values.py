"""Formats of stored values in query results."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.record import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders
from penstock.state.query.values import aggregation_of, as_it_is, plain_of, timestamped_of
from tests.support.value_stores import HEADERS, key_values, sessions, timestamped, with_headers

COMPLETE = ValueTimestampHeaders("A", 5, HEADERS)
SESSION = AggregationWithHeaders("A", HEADERS)


@pytest.mark.parametrize(
    ("store", "stored", "plain", "with_time", "aggregate"),
    [
        (key_values(), "A", "A", "A", "A"),
        (timestamped(), ValueAndTimestamp("A", 5), "A", ValueAndTimestamp("A", 5), ValueAndTimestamp("A", 5)),
        (with_headers(), COMPLETE, "A", ValueAndTimestamp("A", 5), COMPLETE),
        (sessions(), SESSION, "A", "A", "A"),
    ],
    ids=["plain", "timestamped", "with headers", "session with headers"],
)
def test_each_format_strips_its_part_of_a_value(
    store: Any, stored: Any, plain: Any, with_time: Any, aggregate: Any
) -> None:
    assert plain_of(store)(stored) == plain
    shown = timestamped_of(store)(stored)
    assert (shown, type(shown)) == (with_time, type(with_time))
    assert aggregation_of(store)(stored) == aggregate
    assert as_it_is(stored) is stored


def test_an_aggregate_that_is_hidden_from_operators_is_plain_already() -> None:
    assert aggregation_of(sessions())("plain") == "plain"
