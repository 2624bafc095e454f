"""The operations on grouped streams with windows, and on cogrouped streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock import KGroupedStream
from tests.oracle.interpreter import functions
from tests.oracle.interpreter.operation import AGGREGATION, Operation
from tests.oracle.interpreter.windows import EMIT_STRATEGIES, MERGERS, WINDOWS

WINDOWED = "windowed KStream"
COGROUPED = "CogroupedKStream"
WINDOWED_COGROUPED = "windowed CogroupedKStream"


def _method(name: str) -> Callable[..., Any]:
    """Return what calls the method `name` of its receiver: streams with time windows and sessions are two classes."""

    def call(receiver: Any, **fields: Any) -> Any:
        return getattr(receiver, name)(**fields)

    return call


_FOLD = {"initializer": functions.INITIALIZERS, "aggregator": functions.AGGREGATORS, **AGGREGATION}

WINDOWED_DSL: Mapping[tuple[str, str], Operation] = {
    ("KGroupedStream", "windowed_by"): Operation(KGroupedStream.windowed_by, {"windows": WINDOWS}, WINDOWED),
    (WINDOWED, "emit_strategy"): Operation(
        lambda stream, strategy: stream.emit_strategy(strategy), {"strategy": EMIT_STRATEGIES}, WINDOWED
    ),
    (WINDOWED, "count"): Operation(_method("count"), AGGREGATION, "KTable"),
    (WINDOWED, "reduce"): Operation(_method("reduce"), {"reducer": functions.REDUCERS, **AGGREGATION}, "KTable"),
    (WINDOWED, "aggregate"): Operation(_method("aggregate"), {**_FOLD, "merger": MERGERS}, "KTable"),
    ("KGroupedStream", "cogroup"): Operation(KGroupedStream.cogroup, {"aggregator": functions.AGGREGATORS}, COGROUPED),
    (COGROUPED, "cogroup"): Operation(
        lambda stream, other, aggregator: stream.cogroup(other, aggregator),
        {"aggregator": functions.AGGREGATORS},
        COGROUPED,
        operands=("other",),
    ),
    (COGROUPED, "aggregate"): Operation(
        _method("aggregate"), {"initializer": functions.INITIALIZERS, **AGGREGATION}, "KTable"
    ),
    (COGROUPED, "windowed_by"): Operation(_method("windowed_by"), {"windows": WINDOWS}, WINDOWED_COGROUPED),
    (WINDOWED_COGROUPED, "aggregate"): Operation(
        _method("aggregate"),
        {"initializer": functions.INITIALIZERS, "merger": MERGERS, **AGGREGATION},
        "KTable",
    ),
}
