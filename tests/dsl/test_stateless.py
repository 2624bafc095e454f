"""The stateless operators of KStream: what their nodes say of records that may be parked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Backoff, KStream, Park, StreamsBuilder

PARK = Park(backoff=Backoff(1_000), attempts=3)

OPERATORS: dict[str, Callable[[KStream[Any, Any], Park | None], Any]] = {
    "filter": lambda stream, park: stream.filter(lambda k, v: True, "op", on_error=park),
    "filter_not": lambda stream, park: stream.filter_not(lambda k, v: True, "op", on_error=park),
    "map_values": lambda stream, park: stream.map_values(lambda v: v, "op", on_error=park),
    "flat_map_values": lambda stream, park: stream.flat_map_values(lambda v: [v], "op", on_error=park),
    "peek": lambda stream, park: stream.peek(lambda k, v: None, "op", on_error=park),
    "foreach": lambda stream, park: stream.foreach(lambda k, v: None, "op", on_error=park),
    "map": lambda stream, park: stream.map(lambda k, v: (k, v), "op", on_error=park),
    "flat_map": lambda stream, park: stream.flat_map(lambda k, v: [(k, v)], "op", on_error=park),
    "select_key": lambda stream, park: stream.select_key(lambda k, v: v, "op", on_error=park),
}


@pytest.mark.parametrize("build", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("park", [None, PARK])
def test_each_operator_has_a_store_only_if_it_parks(
    build: Callable[[KStream[Any, Any], Park | None], Any], park: Park | None
) -> None:
    builder = StreamsBuilder()
    build(builder.stream("in"), park)
    shown = str(builder.build().describe())
    assert f"Processor: op (stores: [{'' if park is None else 'op-parked'}])" in shown
