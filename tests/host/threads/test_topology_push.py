"""The description of a topology for the coordinator: nodes of all types, and global stores."""

from __future__ import annotations

import re

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Materialized
from penstock.host.threads.topology_push import encode_description
from penstock.plan.topology import built_topology
from penstock_broker.wire.codec import Message


def nodes_by_type(description: Message) -> dict[int, list[Message]]:
    nodes = [node for one in description["subtopologies"] for node in one["nodes"]]
    return {kind: [node for node in nodes if node["node_type"] == kind] for kind in (1, 2, 3)}


def test_each_type_of_node_has_its_fields() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.as_("source")).group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    builder.stream(re.compile("all-.*"), Consumed.as_("pattern")).to(lambda key, value, context: "any")
    found = nodes_by_type(encode_description(built_topology(builder.build(), "app")))
    sources = {node["name"]: node for node in found[1]}
    assert (sources["source"]["source_topics"], sources["pattern"]["source_topics"]) == (["in"], [])
    assert [node["stores"] for node in found[2]] == [["counts"], []]
    assert sources["source"]["successors"] == [found[2][0]["name"]]
    assert {node["sink_topic"] for node in found[3]} == {"out", None}


def test_a_global_store_is_a_source_and_a_processor() -> None:
    builder = StreamsBuilder()
    builder.global_table("rates")
    builder.stream("in").foreach(lambda key, value: None)
    description = encode_description(built_topology(builder.build(), "app"))
    [store] = description["global_stores"]
    assert store["source"]["source_topics"] == ["rates"]
    assert store["source"]["successors"] == [store["processor"]["name"]]
    assert store["processor"]["stores"] == ["rates-STATE-STORE-0000000000"]
    assert len(description["subtopologies"]) == 1
