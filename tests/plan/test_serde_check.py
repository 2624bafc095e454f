"""Serdes that are missing, and keys that never meet, are found before any record is processed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.dsl.options import Consumed
from penstock.errors import ConfigError, StreamsError, TopologyError
from penstock.plan.serde_check import check_serdes, check_serdes_are_shared, node_serde
from penstock.plan.subtopology import BuiltTopology, DeadLetterSinkSpec, SinkSpec, SourceSpec
from penstock.plan.topology import Topology
from penstock.processor.api import SimpleSupplier
from penstock.processor.stateless import StreamMerge
from penstock.serdes import Serde, StringSerde
from penstock.state.api import StoreBuilder
from penstock.state.stores import Stores

TEXT, LONG = Serdes.string(), Serdes.long()
NOTHING = StreamsConfig({}, environment={})
DEFAULTS = StreamsConfig({"default.key.serde": TEXT, "default.value.serde": TEXT}, environment={})


def with_store(**serdes: Serde) -> BuiltTopology:
    builder = StoreBuilder(Stores.in_memory_key_value_store("s"), **serdes)
    topology = Topology().add_source("S", "in", key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("P", SimpleSupplier(StreamMerge, [builder]), "S")
    return topology.build("app")


class OfOneProcess(StringSerde):
    """Texts that only the process that wrote them can read."""

    is_of_one_process = True


def test_a_serde_that_one_process_can_read_is_refused_for_several_with_its_user() -> None:
    topology = Topology().add_source("S", "in", key_serde=TEXT, value_serde=TEXT)
    topology.add_sink("T", "out", "S", key_serde=TEXT, value_serde=OfOneProcess())
    expected = (
        r"T, which writes to topic out \(created at .*\), has a OfOneProcess for values .* but two run, .*penstock"
    )
    with pytest.raises(StreamsError, match=expected):
        check_serdes_are_shared(topology.build("app"), NOTHING, "two run")
    built = with_store(key_serde=TEXT, value_serde=OfOneProcess())
    with pytest.raises(StreamsError, match=r"Store s.*, has a OfOneProcess for values"):
        check_serdes_are_shared(built, NOTHING, "two run")
    check_serdes_are_shared(with_store(key_serde=TEXT, value_serde=TEXT), NOTHING, "two run")


def test_the_serde_of_a_node_comes_before_the_default() -> None:
    assert node_serde(SourceSpec("S", ("in",), key_serde=LONG), "key", DEFAULTS) is LONG
    assert isinstance(node_serde(SourceSpec("S", ("in",), key_serde=LONG), "value", DEFAULTS), StringSerde)


NODES: list[tuple[SourceSpec | SinkSpec, str, str]] = [
    (SourceSpec("S", ("a", "b")), "source", r"reads topic a, b.*in Consumed, or set default\.key\.serde"),
    (
        SourceSpec("S", ("r",), repartition=True),
        "source",
        "in Grouped, Joined, StreamJoined, Deduplicated or Repartitioned",
    ),
    (SinkSpec("S", (), "out"), "sink", "writes to topic out.*in Produced"),
    (SinkSpec("S", (), None), "sink", "writes to the topics that a function names"),
    (
        DeadLetterSinkSpec("S", ("ask",), "letters"),
        "sink",
        r"name one at ask, such as key_serde=Serdes.string\(\) in the Calls or the Park, or set",
    ),
]


@pytest.mark.parametrize(("node", "kind", "says"), NODES)
def test_a_missing_serde_is_said_with_the_node_and_its_options(
    node: SourceSpec | SinkSpec, kind: str, says: str
) -> None:
    with pytest.raises(StreamsError, match=f"Failed to initialize key serdes for {kind} node S") as caught:
        node_serde(node, "key", NOTHING, {"S": "program.py:7"})
    (note,) = caught.value.__notes__
    assert "(created at program.py:7)" in note
    assert isinstance(caught.value.__cause__, ConfigError)
    assert re.search(says, note)


def test_a_missing_serde_of_a_store_names_its_processors() -> None:
    check_serdes(with_store(), DEFAULTS)
    check_serdes(with_store(key_serde=TEXT, value_serde=LONG), NOTHING)
    with pytest.raises(ConfigError) as caught:
        check_serdes(with_store(key_serde=TEXT), NOTHING)
    assert "Store 's' belongs to P (created at " in caught.value.__notes__[-1]


def joined(one: Serde | None, other: Serde | None) -> BuiltTopology:
    builder = StreamsBuilder()
    left, right = (builder.table(t, Consumed.with_(serde, TEXT)) for t, serde in (("a", one), ("b", other)))
    left.join(right, lambda first, second: first)
    return builder.build().build("app")


@dataclass
class Person:
    name: str


@dataclass
class Pupil(Person):
    school: str


PERSONS, PUPILS = Serdes.json(Person), Serdes.json(Pupil)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TEXT, TEXT),
        (None, TEXT),
        (Serdes.json(Person), Serdes.json(Pupil)),
        (Serdes.json(Pupil), Serdes.json(Person)),
        (Serdes.json(), LONG),
    ],
)
def test_keys_that_may_be_equal_may_meet(one: Any, other: Any) -> None:
    check_serdes(joined(one, other), DEFAULTS)


def test_keys_that_are_never_equal_by_a_default_serde_are_refused() -> None:
    with pytest.raises(TopologyError) as caught:
        check_serdes(joined(None, LONG), DEFAULTS)
    assert "has keys of type str by default.key.serde, and " in str(caught.value)
    assert "has keys of type int by its own serde, so no records would meet" in str(caught.value)
