"""Sweeps of a task: when they run, and where they continue."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import OnExpiry, Processor, ProcessorContext, Record, Stores, Topology, TtlClock, ValueAndTimestamp
from penstock.processor.api import PunctuationType
from penstock.state import expiry
from penstock.state.memory import MemoryBase
from penstock.state.ttl import Ttl
from penstock.task.environment import TaskEnvironment
from penstock.task.punctuation import EpochSchedules
from penstock.task.task_checkpoint import TaskCheckpoint
from tests.task.topologies import STRING, batch_of, task_of


class Put(Processor):
    """Puts each record into its store."""

    def init(self, context: ProcessorContext) -> None:
        self.store: Any = context.get_state_store("s")

    def process(self, record: Record[Any, Any]) -> None:
        self.store.put(record.key, ValueAndTimestamp(record.value, record.timestamp))


def put_topology(clock: TtlClock) -> Topology:
    store = Stores.timestamped_key_value_store_builder(Stores.in_memory_key_value_store("s"), STRING, STRING)
    topology = Topology()
    topology.add_source("source", "in").add_processor("put", Put, "source")
    return topology.add_state_store(store.with_ttl(20_000, clock=clock), "put")
