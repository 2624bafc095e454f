"""penstock.check.shared.values: a value that a branch changes and another receives is an error that names the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Branched, Consumed, KStream, Materialized, Named, Produced, Serdes, StreamsBuilder
from penstock.errors import StreamsError
from penstock.testing import TopologyTestDriver

S, J = Serdes.string(), Serdes.json()
Values = KStream[str, Any]


def changed(value: Any) -> Any:
    value["x"] += 1
    return value


def copied(value: Any) -> Any:
    return {**value, "x": value["x"] + 1}


def nested(value: Any) -> Any:
    value["tags"].append("seen")
    return value


def to(stream: Values, topic: str) -> None:
    stream.to(topic, Produced.with_(S, J))


def two_branches(change: Callable[[Any], Any]) -> Callable[[Values], None]:
    def build(stream: Values) -> None:
        to(stream.map_values(change, named=Named.as_("Changes")), "out2")
        to(stream, "out")

    return build


def below_a_copy(stream: Values) -> None:
    to(stream.map_values(lambda value: {**value}).map_values(nested, named=Named.as_("Changes")), "out2")
    to(stream, "out")


def below_the_other(stream: Values) -> None:
    filtered = stream.filter(lambda key, value: True)
    to(filtered.map_values(changed, named=Named.as_("Changes")), "out2")
    to(filtered.filter(lambda key, value: True), "out")


def one_after_the_other(stream: Values) -> None:
    to(stream.map_values(changed).map_values(nested), "out")


def the_last_one(stream: Values) -> None:
    to(stream, "out")
    to(stream.map_values(changed), "out2")


def a_split(stream: Values) -> None:
    parts = stream.split(Named.as_("part-")).branch(lambda key, value: False, Branched.as_("a")).default_branch()
    for part in parts.values():
        to(part.map_values(changed), "out")


def an_aggregate(stream: Values) -> None:
    def add(key: str, value: Any, aggregate: Any) -> Any:
        aggregate["x"] = aggregate.get("x", 0) + value["x"]
        return aggregate

    kept = Materialized.as_("kept").with_key_serde(S).with_value_serde(J)
    table = stream.group_by_key().aggregate(dict, add, kept)
    to(table.to_stream(), "out")
    to(table.map_values(copied).to_stream(), "out2")


def run(build: Callable[[Values], None], execution: str, check: bool = True) -> list[Any]:
    builder = StreamsBuilder()
    build(builder.stream("in", Consumed.with_(S, J)))
    config = {"penstock.check.shared.values": check, "penstock.execution": execution}
    with TopologyTestDriver(builder.build(), config) as driver:
        source = driver.create_input_topic("in", S, J)
        for _ in range(2):
            source.pipe_input("k", {"x": 1, "tags": []})
        return [value["x"] for value in driver.create_output_topic("out", S, J).read_values_to_list()]


@pytest.mark.parametrize("execution", ["record", "auto"])
@pytest.mark.parametrize("build", [two_branches(changed), two_branches(nested), below_the_other])
def test_the_node_that_changes_a_value_of_another_branch_is_named(
    build: Callable[[Values], None], execution: str
) -> None:
    with pytest.raises(StreamsError) as failed:
        run(build, execution)
    assert "Changes (created at" in str(failed.value.__cause__)
    assert f"{__file__}" in str(failed.value.__cause__)
    run(build, execution, check=False)


def test_a_change_of_a_part_is_found_at_the_node_that_received_all_of_it() -> None:
    with pytest.raises(StreamsError) as failed:
        run(below_a_copy, "record")
    assert "changed the value that KSTREAM-SINK" in str(failed.value.__cause__)


@pytest.mark.parametrize(
    ("build", "values"),
    [
        (two_branches(copied), [1, 1]),
        (one_after_the_other, [2, 2]),
        (the_last_one, [1, 1]),
        (a_split, [2, 2]),
        (an_aggregate, [1, 2]),
    ],
)
def test_values_that_no_other_branch_receives_may_change(build: Callable[[Values], None], values: list[int]) -> None:
    assert run(build, "auto") == values
