"""The stores that TopologyTestDriver shows, by kind."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Materialized, Serdes, StoreBuilder, Stores, StreamsBuilder, Topology
from penstock.processor.stateless import StreamPeek
from penstock.testing import TopologyTestDriver
from penstock.windows import SessionWindows, Windowed

TEXT = Serdes.string()
DEFAULTS = {"default.key.serde": TEXT, "default.value.serde": TEXT}

BUILDERS = {
    "key_value": Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), TEXT, TEXT),
    "timestamped_key_value": Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store("s"), TEXT, TEXT
    ),
    "versioned_key_value": Stores.versioned_key_value_store_builder(
        Stores.persistent_versioned_key_value_store("s", 1000), TEXT, TEXT
    ),
    "window": Stores.window_store_builder(Stores.in_memory_window_store("s", 1000, 10, False), TEXT, TEXT),
    "timestamped_window": Stores.timestamped_window_store_builder(
        Stores.persistent_timestamped_window_store("s", 1000, 10, False), TEXT, TEXT
    ),
    "session": Stores.session_store_builder(Stores.in_memory_session_store("s", 1000), TEXT, TEXT),
}


def _driver(builder: StoreBuilder) -> TopologyTestDriver:
    topology = Topology().add_source("source", "in")
    topology.add_processor("peek", lambda: StreamPeek(lambda key, value: None), "source")
    return TopologyTestDriver(topology.add_state_store(builder, "peek"), DEFAULTS)


def _getters(driver: TopologyTestDriver) -> dict[str, Any]:
    return {
        "key_value": driver.get_key_value_store,
        "timestamped_key_value": driver.get_timestamped_key_value_store,
        "versioned_key_value": driver.get_versioned_key_value_store,
        "window": driver.get_window_store,
        "timestamped_window": driver.get_timestamped_window_store,
        "session": driver.get_session_store,
    }


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_store_is_got_by_the_method_of_its_kind_and_by_no_other(kind: str) -> None:
    plain = kind.removeprefix("timestamped_")
    with _driver(BUILDERS[kind]) as driver:
        alike = {name: get for name, get in _getters(driver).items() if name.removeprefix("timestamped_") == plain}
        assert {name for name, get in alike.items() if get("s") is not None} == {kind, plain}
        for get in [driver.get_state_store, *(get for name, get in _getters(driver).items() if name not in alike)]:
            with pytest.raises(ValueError, match=rf"should be accessed via `get_{kind}_store\(\)`$"):
                get("s")


def test_a_session_store_is_shown() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
    windowed.count(Materialized.as_("counts"))
    with TopologyTestDriver(builder.build(), DEFAULTS) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x", 3)
        store = driver.get_session_store("counts")
        assert store is not None
        with store.fetch("a") as sessions:
            found: list[tuple[Windowed[Any], Any]] = list(sessions)
        assert [(windowed.key, windowed.window.start, windowed.window.end, n) for windowed, n in found] == [
            ("a", 3, 3, 1)
        ]
