"""What the nodes and stores of a topology say about their conflicts, beyond Kafka's texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Calls, Consumed, Serdes, Stores, StreamsBuilder, Topology
from penstock.errors import TopologyError

STRING = Serdes.string()
COUNTS = Stores.key_value_store_builder(Stores.in_memory_key_value_store("counts"), STRING, STRING)
HERE = Path(__file__).name


async def asked(value: str) -> str:
    return value


def test_a_second_store_of_a_name_names_the_operator_and_line_of_the_first() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(STRING, STRING))
    first = stream.map_values(asked, "first", calls=Calls(store_name="asked"))
    first.map_values(asked, "second", calls=Calls(store_name="asked")).to("out")
    with pytest.raises(TopologyError) as caught:
        builder.build()
    conflict, failed = caught.value.__notes__
    assert conflict.startswith("There is a store asked of first-calls, first already (created at ")
    assert f"{HERE}:24)" in conflict
    assert conflict.endswith("give each store a name of its own.")
    assert failed.startswith("second (created at ")


def test_a_store_without_processors_is_named_alone() -> None:
    topology = Topology().add_state_store(COUNTS)
    other = Stores.key_value_store_builder(Stores.in_memory_key_value_store("counts"), STRING, STRING)
    with pytest.raises(TopologyError) as caught:
        topology.add_state_store(other)
    assert caught.value.__notes__[0].startswith("There is a store counts already (created at ")
