"""Lowering of operators that park the records on which their functions fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.plan import nodes as n
from penstock.plan.lower.lowering import Lowering
from penstock.processor.api import Processor
from penstock.processor.park import StreamPark


def add_parking(lowering: Lowering, node: n.FunctionNode, parking: n.Parking, make: Callable[[], Processor]) -> None:
    """Add the processor of `node`, whose operator `make` makes, with its store and its sink of dead letters."""
    store = parking.store
    lowering.add_processor(node, partial(StreamPark, make, store.name, parking.rules), store)
    lowering.add_dead_letters(node, parking.dead_letters, parking.key_serde, parking.value_serde)
