"""`penstock lineage`: text and JSON of programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, fences
from tests.support.commands import Run

PROGRAM = """
from dataclasses import dataclass
from penstock import Consumed, Materialized, Serdes, StreamsBuilder
config = {"application.id": "shop", "default.key.serde": Serdes.string()}

@dataclass
class Order:
    customer: str
    amount: float

builder = StreamsBuilder()
rates = builder.global_table("rates", Consumed.with_(value_serde=Serdes.double()), Materialized.as_("rates-store"))
orders = builder.stream("orders", Consumed.with_(value_serde=Serdes.json(Order)))
counts = orders.group_by_key().count(Materialized.as_("counts"))
counts.to_stream().to("counted")
topology = builder.build()
"""

NAMED = """
from penstock import Serdes, StreamsBuilder
config = {"application.id": "shop", "default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
topologies = {}
for name in ("orders", "returns"):
    builder = StreamsBuilder()
    builder.stream(f"{name}-in").group_by(lambda key, value: value).count().to_stream().to(f"{name}-out")
    topologies[name] = builder.build()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM)
    return path


def test_topics_stores_and_fields_are_shown_by_sub_topology(penstock_here: Run, program: Path) -> None:
    ended = penstock_here("lineage", str(program))
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "Sub-topology: 1",
        "  reads orders",
        "    key: string",
        "    value: json (customer: str, amount: float)",
        "  keeps counts (timestamped_key_value, changelog shop-counts-changelog) <-- orders",
        "    key: string",
        "    value: long",
        "  writes counted <-- orders; stores: counts",
        "    key: string",
        "    value: long",
        "Global stores",
        "  reads rates",
        "    key: string",
        "    value: double",
        "  keeps rates-store (timestamped_key_value) <-- rates",
        "    key: string",
        "    value: double",
        "Outputs",
        "  counted <-- orders",
    ]


def test_the_answer_in_json_has_the_same(penstock_here: Run, program: Path) -> None:
    answer = json.loads(penstock_here("lineage", str(program), "--json", "--config", "application.id=other").out)
    assert answer["application_id"] == "other"
    [found] = answer["topologies"]
    assert found["outputs"] == [{"topic": "counted", "inputs": ["orders"]}]
    [part] = found["subtopologies"]
    [source], [store], [sink] = part["sources"], part["stores"], part["sinks"]
    fields = [{"name": "customer", "type": "str"}, {"name": "amount", "type": "float"}]
    assert source["value"] == {"format": "json", "fields": fields}
    assert (source["topics"], source["topic_pattern"], source["internal"]) == (["orders"], None, False)
    assert (store["name"], store["changelog"], store["sources"]) == ("counts", "other-counts-changelog", ["orders"])
    assert (sink["topic"], sink["sources"], sink["stores"]) == ("counted", ["orders"], ["counts"])
    assert [each["name"] for each in found["global_stores"]["stores"]] == ["rates-store"]


def test_named_topologies_are_shown_one_by_one(penstock_here: Run, tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(NAMED)
    shown = penstock_here("lineage", str(program)).out.splitlines()
    assert [line for line in shown if line.startswith("Topology: ")] == ["Topology: orders", "Topology: returns"]
    assert any("shop-orders-" in line for line in shown)
    answer = json.loads(penstock_here("lineage", str(program), "--json", "--topology", "returns").out)
    assert [(each["name"], each["global_stores"]) for each in answer["topologies"]] == [("returns", None)]
    missing = penstock_here("lineage", str(program), "--topology", "nowhere")
    assert (missing.code, "has no topology named nowhere" in missing.err) == (1, True)


def test_a_program_without_a_topology_is_an_error(penstock_here: Run, tmp_path: Path) -> None:
    program = tmp_path / "empty.py"
    program.write_text("config = {}\n")
    ended = penstock_here("lineage", str(program))
    assert (ended.code, ended.out) == (1, "")
    assert "must define `topology`" in ended.err


def test_the_page_shows_the_lineage_of_the_example(penstock_here: Run) -> None:
    example = ROOT / "examples" / "word_count.py"
    shown = penstock_here("lineage", str(example)).out
    assert shown in next(text for language, text in fences("docs/topologies.md") if "penstock lineage" in text)
