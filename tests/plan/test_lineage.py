"""The lineage of topologies: what each output may come from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    Calls,
    Consumed,
    Grouped,
    JoinWindows,
    Materialized,
    Processor,
    Produced,
    Record,
    Serdes,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Topology,
)
from penstock.config import StreamsConfig
from penstock.plan.lineage import DataFormat, SinkLineage, TopologyLineage, lineage_by_name, lineage_of
from penstock.serdes import StringSerde
from penstock.serdes.fields import SchemaField

STRING = Serdes.string()
BOTH = {"default.key.serde": STRING, "default.value.serde": STRING}


def of(topology: Topology, config: dict[str, Any] | None = None) -> TopologyLineage:
    return lineage_of(topology.build("app"), StreamsConfig(BOTH if config is None else config))


def outputs(topology: Topology) -> dict[str, tuple[str, ...]]:
    return {output.topic: output.inputs for output in of(topology).outputs}


def sinks(found: TopologyLineage) -> dict[str, SinkLineage]:
    return {sink.output: sink for part in found.subtopologies for sink in part.sinks}


def first(one: Any, other: Any) -> Any:
    return one


def test_an_output_comes_from_inputs_over_repartition_topics() -> None:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split)
    words.group_by(lambda key, word: word).count(Materialized.as_("counts")).to_stream().to("words")
    builder.stream("other").to("copy")
    found = of(builder.build())
    assert {output.topic: output.inputs for output in found.outputs} == {"words": ("lines",), "copy": ("other",)}
    repartition = "app-counts-repartition"
    written = sinks(found)
    assert (written[repartition].internal, written[repartition].sources) == (True, ("lines",))
    assert (written["words"].sources, written["words"].stores) == ((repartition,), ("counts",))
    [store] = [store for part in found.subtopologies for store in part.stores]
    assert (store.name, store.changelog, store.sources) == ("counts", "app-counts-changelog", (repartition,))
    assert (store.key, store.value) == (DataFormat("string"), DataFormat("long"))


def test_a_join_reads_the_table_and_does_not_write_it() -> None:
    builder = StreamsBuilder()
    table = builder.table("customers", materialized=Materialized.as_("customers-store"))
    builder.stream("orders").join(table, first).to("shipments")
    table.to_stream().to("changes")
    found = of(builder.build())
    [store] = found.subtopologies[0].stores
    assert store.sources == ("customers",)
    assert outputs(builder.build()) == {"shipments": ("customers", "orders"), "changes": ("customers",)}
    assert sinks(found)["shipments"].stores == ("customers-store",)
    assert sinks(found)["changes"].stores == ("customers-store",)


def test_each_side_of_a_join_fills_its_own_store() -> None:
    builder = StreamsBuilder()
    joined = StreamJoined.with_(STRING, STRING, STRING)
    windows = JoinWindows.of_time_difference_with_no_grace(1000)
    builder.stream("left").join(builder.stream("right"), first, windows, stream_joined=joined).to("both")
    left, right = of(builder.build()).subtopologies[0].stores
    assert (left.sources, right.sources) == (("left",), ("right",))
    assert outputs(builder.build()) == {"both": ("left", "right")}


def test_tables_are_joined_without_writing_each_other() -> None:
    builder = StreamsBuilder()
    one, other = (builder.table(name, materialized=Materialized.as_(f"{name}-store")) for name in ("one", "other"))
    one.join(other, first).to_stream().to("both")
    other.to_stream().to("copy")
    assert {store.name: store.sources for store in of(builder.build()).subtopologies[0].stores} == {
        "one-store": ("one",),
        "other-store": ("other",),
    }
    assert outputs(builder.build()) == {"both": ("one", "other"), "copy": ("other",)}


def test_a_foreign_key_join_comes_from_both_tables() -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", materialized=Materialized.as_("orders-store"))
    customers = builder.table("customers", materialized=Materialized.as_("customers-store"))
    orders.join(customers, first, foreign_key_extractor=lambda value: value).to_stream().to("joined")
    customers.to_stream().to("copy")
    assert outputs(builder.build()) == {"joined": ("orders", "customers"), "copy": ("customers",)}


def test_a_join_with_a_global_table_names_its_topic() -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", materialized=Materialized.as_("rates-store"))
    builder.stream("orders").join(rates, first, key_selector=lambda key, value: key).to("converted")
    builder.stream("others").to("copy")
    found = of(builder.build())
    assert outputs(builder.build()) == {"converted": ("orders", "rates"), "copy": ("others",)}
    assert sinks(found)["converted"].stores == ("rates-store",)
    assert found.global_stores is not None
    [store] = found.global_stores.stores
    assert (store.name, store.changelog, store.sources) == ("rates-store", None, ("rates",))


class Seen(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def test_processors_of_users_may_write_the_stores_that_they_share() -> None:
    topology = Topology().add_source("a", "in-a").add_source("b", "in-b")
    topology.add_processor("one", Seen, "a").add_processor("two", Seen, "b")
    topology.add_state_store(
        Stores.key_value_store_builder(Stores.in_memory_key_value_store("seen"), STRING, STRING), "one", "two"
    )
    topology.add_sink("out", "out-a", "one").add_sink("copy", "out-b", "b")
    assert outputs(topology) == {"out-a": ("in-a", "in-b"), "out-b": ("in-b",)}


def by_key(key: Any, value: Any, context: Any) -> str:
    return str(key)


def test_patterns_and_functions_are_named_where_topics_are_not_known() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("shop-.*")).to(by_key)
    found = of(builder.build())
    assert outputs(builder.build()) == {"by_key": ("shop-.*",)}
    [sink] = sinks(found).values()
    assert (sink.topic, sink.topic_name_extractor) == (None, "by_key")
    [source] = found.subtopologies[0].sources
    assert (source.topics, source.topic_pattern) == ((), "shop-.*")


@dataclass
class Order:
    number: int


def test_fields_come_from_the_serdes_of_the_topology_and_of_the_configuration() -> None:
    builder = StreamsBuilder()
    builder.stream("orders", Consumed.with_(STRING, Serdes.json(Order))).to("copy")
    order = DataFormat("json", (SchemaField("number", "int"),))
    [source] = of(builder.build()).subtopologies[0].sources
    assert (source.key, source.value) == (DataFormat("string"), order)
    topology = Topology().add_source("in", "orders").add_sink("out", "copy", "in")
    [sink] = of(topology, {"default.value.serde": Serdes.json(Order)}).subtopologies[0].sinks
    assert (sink.key, sink.value) == (DataFormat(None), order)


class Own(StringSerde):
    """A serde of users."""


@pytest.mark.parametrize(("serde", "name"), [(Own(), "Own"), (Serdes.list(STRING), "ListSerde")])
def test_a_format_that_is_not_known_has_the_name_of_the_serde(serde: Any, name: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(STRING, serde)).to("out", Produced.with_(STRING, serde))
    assert sinks(of(builder.build()))["out"].value == DataFormat(name)


def test_the_sub_topology_of_a_table_aggregate_is_described() -> None:
    builder = StreamsBuilder()
    grouped = builder.table("in").group_by(lambda key, value: (value, key), Grouped.with_(STRING, STRING))
    grouped.count(Materialized.as_("sizes")).to_stream().to("out")
    assert outputs(builder.build()) == {"out": ("in",)}


def test_the_content_of_a_store_has_an_origin_over_repartition_topics() -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", materialized=Materialized.as_("rates-store"))
    words = builder.stream("lines").join(rates, first, key_selector=lambda key, value: value)
    words.group_by(lambda key, word: word).count(Materialized.as_("counts"))
    found = of(builder.build())
    origins = {store.name: found.origin(store.sources) for part in found.parts for store in part.stores}
    assert origins == {"counts": ("lines", "rates"), "rates-store": ("rates",)}


def test_answers_of_calls_are_no_input() -> None:
    async def service(value: str) -> str:
        return value

    builder = StreamsBuilder()
    builder.stream("in").map_values(service, "call", calls=Calls()).to("out")
    topology = builder.build()
    assert outputs(topology) == {"out": ("in",)}
    (part,) = of(topology).subtopologies
    assert {source.node: source.internal for source in part.sources} == {
        "KSTREAM-SOURCE-0000000000": False,
        "call-answers": True,
    }


def test_topologies_of_an_application_have_ids_of_their_own() -> None:
    builder = StreamsBuilder()
    builder.stream("lines").group_by_key().count(Materialized.as_("counts"))
    config = StreamsConfig({**BOTH, "application.id": "app"})
    found = lineage_by_name({"": builder.build(), "words": builder.build()}, config)
    changelogs = {name: each.subtopologies[0].stores[0].changelog for name, each in found.items()}
    assert changelogs == {"": "app-counts-changelog", "words": "app-words-counts-changelog"}
