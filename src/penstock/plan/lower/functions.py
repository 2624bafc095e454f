"""Lowering of operators with a function: it runs in the task, parks records, or is called outside of the task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.plan import nodes as n
from penstock.plan.lower.calling import add_calls
from penstock.plan.lower.lowering import Lowering
from penstock.plan.lower.parked import add_parking
from penstock.processor.api import Processor


def add_function(
    lowering: Lowering,
    node: n.FunctionNode,
    operator: Callable[..., Processor],
    function: Callable[..., Any],
    *options: Any,
) -> None:
    """Add the processors of `node`, with their stores, topics and sinks.

    Args:
        lowering: the topology under construction.
        node: the node.
        operator: makes the operator with a function and the options.
        function: the function of the user.
        options: the further arguments of the operator.
    """
    if node.calling is not None:
        add_calls(lowering, node, node.calling, operator, *options)
        return
    make = partial(operator, function, *options)
    if node.parking is None:
        lowering.add_processor(node, make)
    else:
        add_parking(lowering, node, node.parking, make)
