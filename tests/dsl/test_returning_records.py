"""A topic of records that fail, or are dropped, is none that their operator reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Backoff, Calls, Consumed, KStream, Park, Serdes, StreamsBuilder
from penstock.errors import TopologyError

TEXT = Consumed.with_(Serdes.string(), Serdes.string())
PARK = Park(backoff=Backoff(100), attempts=2, then="back")
CALLS = Calls(then="back")


async def asked(value: str) -> str:
    return value


OPERATORS: dict[str, Callable[[KStream[Any, Any]], object]] = {
    "Calls": lambda stream: stream.map_values(asked, "operator", calls=CALLS),
    "Park": lambda stream: stream.map_values(str.upper, "operator", on_error=PARK),
}


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("source", ["back", ["in", "back"], re.compile("ba.*")])
def test_the_failures_of_an_operator_do_not_go_back_to_its_source(kind: str, source: Any) -> None:
    stream = StreamsBuilder().stream(source, TEXT)
    expected = rf"then= of the {kind} of operator writes the records that fail to topic back, which .* reads: they "
    with pytest.raises(TopologyError, match=rf"{expected}would come back, fail again .* Name a topic of its own"):
        OPERATORS[kind](stream.filter(lambda key, value: True))


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_source_whose_records_join_the_operators_counts(kind: str) -> None:
    builder = StreamsBuilder()
    merged = builder.stream("in", TEXT).merge(builder.stream("back", TEXT))
    with pytest.raises(TopologyError, match="to topic back, which"):
        OPERATORS[kind](merged)
    with pytest.raises(TopologyError, match="to topic back, which"):
        OPERATORS[kind](builder.table("other", TEXT).to_stream().merge(builder.table("back", TEXT).to_stream()))


@pytest.mark.parametrize("kind", OPERATORS)
def test_another_operator_may_read_the_topic(kind: str) -> None:
    builder = StreamsBuilder()
    failed = builder.table("back", TEXT)
    OPERATORS[kind](builder.stream("in", TEXT).left_join(failed, lambda value, last: value))
