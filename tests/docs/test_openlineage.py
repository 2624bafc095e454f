"""The program of the page on OpenLineage reports what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("openlineage.client", reason="openlineage-python is not installed")

from penstock import KafkaStreams
from penstock.testing import EmbeddedBroker
from tests.docs.pages import given, run_block
from tests.tools.openlineage.support import receiving


def test_the_program_of_the_page_reports_its_lineage(tmp_path: Path) -> None:
    names = given()
    with receiving() as receiver, EmbeddedBroker() as broker:
        for topic in ("orders", "order-counts"):
            broker.create_topic(topic)
        replaced = {"localhost:9092": broker.bootstrap_servers, "http://localhost:5000": receiver.url}
        run_block("docs/openlineage.md", 0, names, replaced)
        KafkaStreams(names["topology"], {**names["config"], "state.dir": str(tmp_path)}).run_to_end()
    assert receiver.states() == ["START", "COMPLETE"]
    event = receiver.events[0]
    assert (event["job"]["namespace"], event["job"]["name"]) == ("sales", "shop")
    assert [each["name"] for each in event["inputs"]] == ["orders"]
    assert [each["name"] for each in event["outputs"]] == ["order-counts", "counts"]
