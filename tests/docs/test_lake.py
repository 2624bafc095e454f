"""The programs of the page on tables of a lake append and read what the page says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra lake is not installed")
pytest.importorskip("deltalake", reason="the extra lake is not installed")

from penstock import KafkaStreams
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.testing import EmbeddedBroker
from tests.docs.pages import given, run_block


def test_the_table_of_the_page_has_the_rows_of_the_page(tmp_path: Path) -> None:
    names = given()
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        replaced = {"localhost:9092": broker.bootstrap_servers, "/tmp/lake": str(tmp_path)}
        run_block("docs/lake.md", 0, names, replaced)
        serde, order = names["Serdes"].json(names["Order"]), names["Order"]
        producer = ConfluentProducer(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}))
        at = datetime(2026, 1, 2, tzinfo=UTC)
        for key, product, price in (("o1", "tea pot", 12.5), ("o2", "cup", 3.0), ("o3", "samovar", 99.0)):
            producer.send("orders", key.encode(), serde.serialize("orders", order(product, price, at)), 0)
        producer.flush()
        producer.close()
        KafkaStreams(names["topology"], {**names["config"], "state.dir": str(tmp_path)}).run_to_end()
    run_block("docs/lake.md", 1, names)
    assert names["rows"] == [("o1", "tea pot", 12.5), ("o3", "samovar", 99.0)]
