"""Operators with effects outside of Kafka are found, with their lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Backoff, Calls, Consumed, KStream, Named, Park, Printed, Serdes, StreamsBuilder
from penstock.errors import StreamsError
from penstock.plan.subtopology import BuiltTopology
from penstock.shadow.effects import check_no_effects, effects_of

PARK = Park(backoff=Backoff(1_000), attempts=2)


def built(operator: Callable[[KStream[Any, Any]], object]) -> BuiltTopology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.string()))
    operator(stream)
    stream.map_values(str).to("out")
    return builder.build().build("app")


def act(key: Any, value: Any) -> None:
    """Do nothing."""


async def ask(value: str) -> str:
    return value


@pytest.mark.parametrize(
    ("operator", "what"),
    [
        (lambda stream: stream.foreach(act, named=Named.as_("node")), "runs an action for each record (foreach)"),
        (lambda stream: stream.peek(act, named=Named.as_("node")), "runs an action for each record (peek)"),
        (lambda stream: stream.foreach(act, "node", on_error=PARK), "runs an action for each record (foreach)"),
        (lambda stream: stream.map_values(ask, "node", calls=Calls()), "calls a service"),
        (lambda stream: stream.print(Printed.to_sys_out().with_name("node")), "prints each record"),
    ],
)
def test_an_effect_is_found(operator: Callable[[KStream[Any, Any]], object], what: str) -> None:
    (found,) = effects_of(built(operator))
    assert (found.node, found.what) == ("node", what)
    assert found.line is not None
    assert __file__ in found.line


def test_operators_without_effects_pass() -> None:
    check_no_effects("old", built(lambda stream: stream.filter(lambda key, value: True)))


def test_an_effect_is_refused_with_its_place() -> None:
    with pytest.raises(StreamsError, match=r"The new version has effects .*\n  - node \(created at .*test_effects.py:"):
        check_no_effects("new", built(lambda stream: stream.peek(act, named=Named.as_("node"))))
