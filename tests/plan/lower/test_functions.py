"""Lowering of operators with a function: in the task, parking, or called outside of it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Backoff, Calls, Consumed, Park, Serdes, StreamsBuilder
from penstock.plan.subtopology import ProcessorSpec
from penstock.processor.call_answers import StreamCallAnswers
from penstock.processor.park import StreamPark
from penstock.processor.stateless import StreamMapValues


async def service(value: str) -> str:
    return value


@pytest.mark.parametrize(
    ("function", "options", "kind"),
    [
        (str.upper, {}, StreamMapValues),
        (str.upper, {"on_error": Park(backoff=Backoff(1), attempts=2)}, StreamPark),
        (service, {"calls": Calls()}, StreamCallAnswers),
    ],
)
def test_the_options_select_the_processor(function: Any, options: dict[str, Any], kind: type) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.string()))
    stream.map_values(function, "map", **options).to("out")
    (part,) = builder.build().build("app").subtopologies
    (node,) = [node for node in part.nodes if isinstance(node, ProcessorSpec) and node.name == "map"]
    assert isinstance(node.supplier.get(), kind)
