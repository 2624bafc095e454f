"""Lowering of operators with a function, which may park the records on which it fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.plan import nodes as n
from penstock.plan.lower.lowering import Lowering
from penstock.plan.names import check_name
from penstock.plan.subtopology import ParkedSinkSpec
from penstock.processor.api import Processor
from penstock.processor.park import StreamPark

DEAD_LETTERS_SUFFIX = "-dead-letters"
"""The end of the name of the sink for records that fail each time."""


def add_function(lowering: Lowering, node: n.FunctionNode, make: Callable[[], Processor]) -> None:
    """Add the processor of `node`, made by `make`, with a store and a sink if it parks records."""
    parking = node.parking
    if parking is None:
        lowering.add_processor(node, make)
        return
    store = parking.store
    lowering.add_processor(node, partial(StreamPark, make, store.name, parking.rules), store)
    if parking.dead_letters is not None:
        lowering.topology.add_dropped_sink(
            ParkedSinkSpec(
                name=check_name(node.name + DEAD_LETTERS_SUFFIX),
                parents=(node.name,),
                topic=parking.dead_letters,
                key_serde=parking.key_serde,
                value_serde=parking.value_serde,
            )
        )
