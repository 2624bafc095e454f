"""The number of keys of stores in memory, at each recording level (KIP-1250)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    Grouped,
    Materialized,
    Serdes,
    SessionWindows,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()
LINES = [("k", "one", 1_000), ("k", "two", 1_500), ("l", "three", 2_000), ("k", "four", 12_000), ("l", None, 13_000)]


def counts(topology: Topology, **config: Any) -> dict[tuple[str, str], Any]:
    """Return the metric of each store, by its tag and its name."""
    values = {"default.key.serde": STRING, "default.value.serde": STRING, **config}
    with TopologyTestDriver(topology, values, 0) as driver:
        lines = driver.create_input_topic("in", STRING, STRING)
        for key, value, timestamp in LINES:
            lines.pipe_input(key, value, timestamp)
        found = {name: metric.metric_value for name, metric in driver.metrics().items() if name.name == "num-keys"}
    assert all(name.group == "stream-state-metrics" for name in found)
    assert all([key for key, _ in name.tag_items][:-1] == ["client-id", "thread-id", "task-id"] for name in found), (
        found
    )
    return {name.tag_items[-1]: value for name, value in found.items()}


def tables(in_memory: bool) -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("in")
    kind = Materialized.as_
    lines.to_table(materialized=kind("latest").with_store_type("in_memory" if in_memory else "rocksdb"))
    groups = lines.filter(lambda key, value: value is not None).group_by_key(Grouped.with_(STRING, STRING))
    type = "in_memory" if in_memory else "rocksdb"
    windows = TimeWindows.of_size_with_no_grace(10_000)
    groups.windowed_by(windows).count(materialized=kind("windows").with_store_type(type))
    sessions = SessionWindows.of_inactivity_gap_with_no_grace(1_000)
    groups.windowed_by(sessions).count(materialized=kind("sessions").with_store_type(type))
    return builder.build()


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("cache", [0, 10_000_000])
def test_each_store_in_memory_counts_its_keys(level: str, execution: str, cache: int) -> None:
    config = {
        "metrics.recording.level": level,
        "penstock.execution": execution,
        "statestore.cache.max.bytes": cache,
    }
    assert counts(tables(in_memory=True), **config) == {
        ("in-memory-state-id", "latest"): 1,
        ("in-memory-window-state-id", "windows"): 3,
        ("in-memory-session-state-id", "sessions"): 3,
    }


def test_stores_on_disk_do_not() -> None:
    assert counts(tables(in_memory=False)) == {}


def test_the_default_kind_of_store_decides_for_stores_without_one() -> None:
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized.as_("latest"))
    topology = builder.build()
    in_memory = {"dsl.store.suppliers.class": "in_memory"}
    assert counts(topology, **in_memory) == {("in-memory-state-id", "latest"): 1}
    assert counts(topology) == {}


@pytest.mark.parametrize(
    "builder",
    [
        Stores.key_value_store_builder(Stores.lru_map("other", 2), STRING, STRING),
        Stores.key_value_store_builder(Stores.persistent_key_value_store("other"), STRING, STRING),
    ],
)
def test_other_stores_do_not(builder: StoreBuilder) -> None:
    streams = StreamsBuilder()
    streams.add_state_store(builder)
    streams.table("in", materialized=Materialized.as_(Stores.lru_map("least", 2)))
    assert counts(streams.build()) == {}
