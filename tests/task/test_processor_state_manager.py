"""The stores of a task: their changes, their commit, and changes that exceed memory."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import StreamsConfig
from penstock.plan.subtopology import SubtopologySpec
from penstock.state.api import Changes
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.spilled import SpilledChanges
from penstock.state.stores import Stores
from penstock.task.context import TaskContext
from penstock.task.processor_state_manager import ProcessorStateManager
from penstock.task.punctuation import LivingSchedules
from tests.task.topologies import STRING


def manager_of(base: MemoryBase, spilled: SpilledChanges | None = None, **config: Any) -> ProcessorStateManager:
    stores = {
        name: Stores.key_value_store_builder(Stores.in_memory_key_value_store(name), STRING, STRING)
        for name in ("one", "other")
    }
    task = TaskContext("0_0", StreamsConfig(config, environment={}), LivingSchedules(), 0)
    return ProcessorStateManager(SubtopologySpec(0, (), stores), "", task, base, RecordCache(0), spilled=spilled)


def put(manager: ProcessorStateManager, store: str, key: str, value: str | None) -> None:
    written: Any = manager.stores[store].exposed()
    written.put(key, value)


def test_only_stores_with_changes_are_part_of_a_commit() -> None:
    base = MemoryBase()
    manager = manager_of(base)
    assert manager.changes() == {}
    put(manager, "one", "k", "v")
    changes = manager.changes()
    assert changes == {"one": {b"k": b"v"}}
    assert manager.uncommitted_bytes() > 0
    assert base.view("one").get(b"k") is None
    manager.committed(changes, b"stamp")
    assert (manager.changes(), manager.uncommitted_bytes()) == ({}, 0)
    assert (base.view("one").get(b"k"), base.stamp()) == (b"v", b"stamp")


@pytest.mark.parametrize(("bound", "spills"), [(1024, True), (1 << 20, False)])
def test_changes_are_spilled_when_they_exceed_their_bound(bound: int, spills: bool) -> None:
    kept: list[Changes] = []
    base = MemoryBase()
    spilled = SpilledChanges(base, MemoryBase, kept.append)
    manager = manager_of(base, spilled, **{"penstock.uncommitted.max.bytes": bound})
    put(manager, "one", "k", "v")
    put(manager, "other", "k", "w" * 1024)
    manager.evict()
    everything = {"one": {b"k": b"v"}, "other": {b"k": b"w" * 1024}}
    assert (kept, manager.changes()) == (([everything], {}) if spills else ([], everything))
    store: Any = manager.stores["one"].exposed()
    assert store.get("k") == "v"


def test_what_is_not_committed_is_lost_when_the_stores_are_closed() -> None:
    base = MemoryBase()
    manager = manager_of(base)
    put(manager, "one", "k", "v")
    manager.close()
    assert not manager.stores["one"].is_open()
    assert base.view("one").get(b"k") is None, "the base stays open"


def test_the_keys_of_stores_in_memory_are_counted_with_uncommitted_writes() -> None:
    manager = manager_of(MemoryBase())
    put(manager, "one", "k", "v")
    put(manager, "one", "l", "v")
    manager.committed(manager.changes(), b"stamp")
    put(manager, "one", "k", None)
    put(manager, "one", "m", "v")
    put(manager, "one", "n", "v")
    found = {operation: each.most for operation, each in manager.num_keys().items()}
    assert found == {"num-keys/in-memory-state-id/one": 3, "num-keys/in-memory-state-id/other": 0}
