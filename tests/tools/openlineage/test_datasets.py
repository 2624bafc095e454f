"""The datasets of topologies: their names, columns, types and origins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("openlineage.client", reason="openlineage-python is not installed")

import attr

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.plan.lineage import lineage_by_name
from penstock.tools.openlineage.datasets import DatasetNames, Datasets

STRING = Serdes.string()
NAMES = DatasetNames("kafka:9092", "shop", has_changelogs=True)
CONFIG = {"application.id": "shop", "default.key.serde": STRING, "default.value.serde": STRING}


@dataclass
class Order:
    customer: str
    cents: int | None


def of(topology: Topology, *matched: str, names: DatasetNames = NAMES) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inputs and the outputs of a topology by name, as data."""
    lineages = lineage_by_name({"": topology}, StreamsConfig(CONFIG, environment={}))
    datasets = Datasets(lineages.values(), matched, names)
    found = [[attr.asdict(each) for each in side] for side in (datasets.inputs(), datasets.outputs())]
    inputs, outputs = ({each["name"]: each for each in side} for side in found)
    return inputs, outputs


def columns(dataset: dict[str, Any]) -> dict[str, tuple[str, dict[str, str]]]:
    fields = dataset["facets"]["schema"]["fields"]
    return {
        field["name"]: (field["type"], {nested["name"]: nested["type"] for nested in field["fields"]})
        for field in fields
    }


def origin(dataset: dict[str, Any]) -> list[str]:
    return [each["name"] for each in dataset["facets"]["lineage"]["inputs"]]


def totals() -> Topology:
    builder = StreamsBuilder()
    order = Serdes.json(Order)
    orders = builder.stream("orders", Consumed.with_(STRING, order))
    by_customer = orders.group_by(lambda number, order: order.customer, Grouped.with_(STRING, order))
    counts = by_customer.count(Materialized.as_("counts"))
    counts.to_stream().to("totals", Produced.with_(STRING, Serdes.long()))
    return builder.build()


def test_topics_have_the_names_of_the_specification_and_columns() -> None:
    inputs, outputs = of(totals())
    assert inputs.keys() == {"orders"}, "a repartition topic belongs to the application"
    assert outputs.keys() == {"totals", "counts"}
    assert inputs["orders"]["namespace"] == outputs["totals"]["namespace"] == "kafka://kafka:9092"
    assert columns(inputs["orders"]) == {
        "key": ("string", {}),
        "value": ("json", {"customer": "str", "cents": "int | None"}),
    }
    assert columns(outputs["totals"]) == {"key": ("string", {}), "value": ("long", {})}
    assert inputs["orders"]["facets"]["datasetType"]["datasetType"] == "TOPIC"
    assert origin(outputs["totals"]) == ["orders"]


def test_a_store_is_a_dataset_of_its_own_whose_changelog_is_a_symlink() -> None:
    _, outputs = of(totals())
    store = outputs["counts"]
    assert store["namespace"] == "penstock://kafka:9092/shop"
    kind = store["facets"]["datasetType"]
    assert (kind["datasetType"], kind["subType"]) == ("STATE_STORE", "timestamped_key_value")
    assert columns(store) == {"key": ("string", {}), "value": ("long", {})}
    assert origin(store) == ["orders"], "over the repartition topic"
    [symlink] = store["facets"]["symlinks"]["identifiers"]
    assert (symlink["namespace"], symlink["name"]) == ("kafka://kafka:9092", "shop-counts-changelog")


def test_without_changelog_topics_there_is_no_symlink() -> None:
    _, outputs = of(totals(), names=DatasetNames("kafka:9092", "shop", has_changelogs=False))
    assert "symlinks" not in outputs["counts"]["facets"]


def test_topics_of_a_pattern_are_known_from_the_tasks() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*")).to("all")
    inputs, outputs = of(builder.build())
    assert inputs == {}
    assert "lineage" not in outputs["all"]["facets"]
    inputs, outputs = of(builder.build(), "orders-eu", "orders-us", "customers", "new-orders-eu")
    assert list(inputs) == origin(outputs["all"]) == ["orders-eu", "orders-us"]


def test_a_pattern_matches_with_its_flags_and_no_repartition_topic() -> None:
    builder = StreamsBuilder()
    orders = builder.stream(re.compile("SHOP-.*", re.IGNORECASE))
    counts = orders.group_by(lambda key, value: value).count(Materialized.as_("counts"))
    counts.to_stream().to("all")
    inputs, outputs = of(builder.build(), "shop-orders", "shop-counts-repartition")
    assert list(inputs) == origin(outputs["all"]) == ["shop-orders"]


def test_topics_that_a_function_chooses_are_left_out() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value, context: str(value))
    assert of(builder.build())[1] == {}


def test_global_stores_and_their_topics_are_included() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("rates", materialized=Materialized.as_("rates-store"))
    orders = builder.stream("orders")
    orders.join(table, lambda order, rate: f"{order} {rate}", key_selector=lambda key, order: order).to("paid")
    inputs, outputs = of(builder.build())
    assert inputs.keys() == {"orders", "rates"}
    assert outputs.keys() == {"paid", "rates-store"}
    assert sorted(origin(outputs["paid"])) == ["orders", "rates"]
    assert origin(outputs["rates-store"]) == ["rates"]


def test_internal_topics_of_a_foreign_key_join_are_left_out() -> None:
    builder = StreamsBuilder()
    orders, customers = builder.table("orders"), builder.table("customers")
    joined = orders.join(customers, lambda order, name: name, foreign_key_extractor=lambda order: order)
    joined.to_stream().to("named")
    inputs, outputs = of(builder.build())
    assert inputs.keys() == {"orders", "customers"}
    assert sorted(origin(outputs["named"])) == ["customers", "orders"]
    assert [name for name, each in outputs.items() if each["namespace"] == NAMES.topics] == ["named"]


@pytest.mark.parametrize(
    ("servers", "brokers"),
    [
        ("kafka:9092", "kafka:9092"),
        ("a:1, b:2", "a:1"),
        ("kafka", "kafka:9092"),
        ("PLAINTEXT://kafka:9093", "kafka:9093"),
        ("[::1]:9092", "[::1]:9092"),
        ("[::1]", "[::1]:9092"),
    ],
)
def test_the_first_server_names_the_brokers(servers: str, brokers: str) -> None:
    config = {"application.id": "shop", "bootstrap.servers": servers}
    assert DatasetNames.of(StreamsConfig(config, environment={})).topics == f"kafka://{brokers}"


@pytest.mark.parametrize(
    ("host", "topics", "has_changelogs"), [("threads", False, True), ("spark", False, False), ("spark", True, True)]
)
def test_the_host_decides_on_changelog_topics(host: str, topics: bool, has_changelogs: bool) -> None:
    servers = {"application.id": "shop", "bootstrap.servers": "kafka:9092"}
    config = StreamsConfig({**servers, "penstock.host": host, "penstock.changelog.topics": topics}, environment={})
    assert DatasetNames.of(config).has_changelogs is has_changelogs
