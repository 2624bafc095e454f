"""Splitting a stream into branches: their names, nodes and what the options do."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dsl.branched import Branched
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Grouped
from penstock.dsl.stream import KStream
from penstock.plan.subtopology import SinkSpec
from penstock.serdes import Serdes


def always(key: Any, value: Any) -> bool:
    return True


def node_names(builder: StreamsBuilder) -> list[str]:
    return [node.name for part in builder.build().build("app").subtopologies for node in part.nodes]


def test_branches_are_numbered_from_one_and_the_default_is_zero() -> None:
    builder = StreamsBuilder()
    branches = builder.stream("in").split().branch(always).branch(always).default_branch()
    assert list(branches) == [
        "KSTREAM-BRANCH-00000000011",
        "KSTREAM-BRANCH-00000000012",
        "KSTREAM-BRANCH-00000000010",
    ]
    assert node_names(builder) == ["KSTREAM-SOURCE-0000000000", "KSTREAM-BRANCH-0000000001", *branches]


def test_each_branch_takes_a_number_of_the_counter() -> None:
    builder = StreamsBuilder()
    builder.stream("in").split("s-").branch(always, Branched.as_("a")).default_branch()["s-a"].peek(lambda k, v: None)
    assert node_names(builder)[-1] == "KSTREAM-PEEK-0000000004"


def test_a_function_stands_for_the_branch_and_a_consumer_takes_it() -> None:
    builder = StreamsBuilder()

    def changed(branch: KStream) -> KStream:
        return branch.map_values(str, "changed")

    branches = (
        builder.stream("in")
        .split("s-")
        .branch(always, Branched.with_function(changed, "a"))
        .branch(always, Branched.with_function(lambda branch: None).with_name("b"))
        .branch(always, Branched.with_consumer(lambda branch: branch.to("out"), "c"))
        .no_default_branch()
    )
    assert list(branches) == ["s-a"]
    branches["s-a"].foreach(lambda k, v: None, "below")
    (part,) = builder.build().build("app").subtopologies
    children = {node.name: node.children for node in part.nodes if not isinstance(node, SinkSpec)}
    assert children["s-"] == ("s-a", "s-b", "s-c")
    assert children["changed"] == ("below",)
    assert part.sink_topics == ("out",)


def test_branches_have_the_serdes_and_the_keys_of_the_stream() -> None:
    builder = StreamsBuilder()
    key, value = Serdes.string(), Serdes.long()
    stream = builder.stream("in", Consumed.with_(key_serde=key, value_serde=value))
    stream.split("s-").default_branch()["s-0"].to("out")
    (sink,) = [node for part in builder.build().build("app").subtopologies for node in part.nodes[-1:]]
    assert isinstance(sink, SinkSpec)
    assert (sink.key_serde, sink.value_serde) == (key, value)
    stream.select_key(lambda k, v: v).split("t-").default_branch()["t-0"].group_by_key(Grouped.as_("g")).count()
    assert "app-g-repartition" in builder.build().build("app").repartition_topics


def test_what_is_no_predicate_or_no_function_of_a_branch_is_refused() -> None:
    with pytest.raises(TypeError, match=r"predicate\(key, value\)"):
        StreamsBuilder().stream("in").split().branch(lambda v: True)  # type: ignore[arg-type, misc]  # the mistake that is tested
    with pytest.raises(TypeError, match=r"consumer\(branch\)"):
        Branched.with_consumer(lambda: None)  # type: ignore[arg-type, misc]  # the mistake that is tested


def test_a_branch_that_there_is_not_is_an_error_with_those_that_there_are() -> None:
    stream = StreamsBuilder().stream("in")
    split = stream.split("s-").branch(always, Branched.as_("a")).branch(always, Branched.as_("b"))
    branches = split.no_default_branch()
    with pytest.raises(KeyError, match=r"no branch 'a'\. The branches, with the prefix of split\(\): s-a, s-b"):
        branches["a"]
