"""The figures of calls as measurements of their operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.host.calls.measuring import CallFigures
from penstock.metrics.host_metrics import (
    CALL,
    CALL_LATENCIES,
    CALL_RETRIES,
    CALLS_ANSWERED,
    CALLS_FAILED,
    CALLS_IN_FLIGHT,
    CALLS_WAITING,
    NODE_ID,
    Operation,
)
from penstock.metrics.measurements import Measurement, measured_once


def measured_calls(figures: Mapping[str, CallFigures]) -> Iterator[tuple[Operation, Measurement]]:
    """Yield the measurements of operators with calls in a process. figures: by operator, since the last call."""
    for node, each in figures.items():
        for name, number in ((CALLS_IN_FLIGHT, each.in_flight), (CALLS_WAITING, each.waiting)):
            yield _operation(name, node), measured_once(number)
        for name, number in (
            (CALLS_ANSWERED, each.answered),
            (CALLS_FAILED, each.failed),
            (CALL_RETRIES, each.retries),
        ):
            yield _operation(name, node), Measurement(number, float(number))
        yield _operation(CALL, node), each.latency
        for name, milliseconds in zip(CALL_LATENCIES, each.percentiles or (), strict=False):
            yield _operation(name, node), measured_once(milliseconds)


def _operation(name: str, node: str) -> Operation:
    return Operation(name, "", NODE_ID, node)
