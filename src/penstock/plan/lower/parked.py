"""Lowering of operators that park the records on which their functions fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.plan import nodes as n
from penstock.plan.internal_topics import requests_topic_name
from penstock.plan.lower.lowering import Lowering
from penstock.plan.names import check_name
from penstock.plan.subtopology import requests_source
from penstock.processor.api import Processor
from penstock.processor.park import StreamPark


def add_parking(lowering: Lowering, node: n.FunctionNode, parking: n.Parking, make: Callable[[], Processor]) -> None:
    """Add the processor of `node`, whose operator `make` makes, with its store and its sink of dead letters.

    It also receives the requests of `penstock parked`, which are records of a topic of their own.
    """
    store = parking.store
    requests = check_name(requests_topic_name(store.name))
    lowering.topology.add_task_source(requests_source(requests, store.name))
    make_park = partial(StreamPark, make, store.name, parking.rules)
    lowering.add_processor_below(node.name, [*lowering.parents(node), requests], make_park, store)
    lowering.topology.add_dead_letters(node.name, parking.dead_letters, parking.key_serde, parking.value_serde)
