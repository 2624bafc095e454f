"""Tables that can have a time to live, and those that cannot."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Materialized, Processor, Record, Serdes, Stores, StreamsBuilder, TimeWindows, Topology
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()
SERDES = {"default.key.serde": STRING, "default.value.serde": STRING}


class Fill(Processor):
    """The processor of a store that a topic fills."""

    def process(self, record: Record[Any, Any]) -> None:
        """Do nothing."""


OPTIONS = Materialized.as_("t").with_ttl(10)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda builder: builder.global_table("in", materialized=OPTIONS), "its topic fills it again"),
        (
            lambda builder: (
                builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5)).count(OPTIONS)
            ),
            "with_retention",
        ),
        (
            lambda builder: builder.table(
                "in", materialized=Materialized.as_(Stores.persistent_versioned_key_value_store("t", 9)).with_ttl(10)
            ),
            "history retention",
        ),
    ],
    ids=["global", "windowed", "versioned"],
)
def test_a_table_with_its_own_retention_is_refused(make: Any, why: str) -> None:
    with pytest.raises(TypeError, match=f"Store 't' cannot have a time to live .*{why}"):
        make(StreamsBuilder())


@pytest.mark.parametrize("add", [Topology.add_global_store, Topology.add_read_only_state_store])
def test_a_store_that_a_topic_fills_is_refused(add: Any) -> None:
    supplier = Stores.in_memory_key_value_store("s")
    store = Stores.timestamped_key_value_store_builder(supplier, STRING, STRING).with_ttl(10)
    with pytest.raises(TypeError, match=r"Store 's' cannot have a time to live .*Set retention.ms of the topic"):
        add(Topology(), store, "source", "in", "fill", Fill)


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_a_table_with_a_time_to_live_has_its_own_changelog(optimization: str) -> None:
    builder = StreamsBuilder()
    builder.table("in", materialized=OPTIONS).to_stream().to("out")
    config = {"topology.optimization": optimization, "application.id": "app", **SERDES}
    with TopologyTestDriver(builder.build(config), config) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        topic.pipe_input("a", "x", 0)
        topic.pipe_input("b", "x", 10)
        changes = driver.create_output_topic("app-t-changelog", STRING, STRING).read_key_values_to_list()
        assert changes == [("a", "x"), ("b", "x"), ("a", None)]
