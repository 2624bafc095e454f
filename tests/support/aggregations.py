"""States of ready aggregations in a test: of values in order, and after a round trip through the serde of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from penstock.aggregations import Aggregation
from penstock.serdes import JsonSerde, Serde

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTS = st.integers()
NUMBERS = st.one_of(INTS, FLOATS)


def store_serde(aggregation: Aggregation[Any, Any], value_serde: Serde | None = None) -> Serde:
    """Return the serde of the states of values with `value_serde`, JSON by default."""
    part_serde = aggregation.part_serde(value_serde or JsonSerde())
    serde = aggregation.state_serde(part_serde) or aggregation.result_serde(part_serde)
    assert serde is not None
    return serde.with_defaults(None, JsonSerde())


def state_of(aggregation: Aggregation[Any, Any], values: Sequence[Any]) -> Any:
    """Return the state after `values`, kept in memory."""
    state = aggregation.initial()
    for value in values:
        state = aggregation.added(state, value)
    return state


def stored_state_of(aggregation: Aggregation[Any, Any], values: Sequence[Any], serde: Serde | None = None) -> Any:
    """Return the state after `values`, written and read after each of them."""
    serde = serde or store_serde(aggregation)
    state = aggregation.initial()
    for value in values:
        state = aggregation.added(state, value)
        state = None if state is None else serde.deserialize("t", serde.serialize("t", state))
    return state


def result_of(aggregation: Aggregation[Any, Any], values: Sequence[Any]) -> Any:
    """Return the result after `values`."""
    return aggregation.result(state_of(aggregation, values))
