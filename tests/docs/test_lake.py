"""The programs of the page on tables of a lake append and read what the page says."""

from __future__ import annotations

from datetime import UTC, date, datetime
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
        lines = (("o1", "tea pot", 12.5), ("o2", "cup", 3.0), ("o3", "samovar", 99.0), ("o4", "tea pot", 9.5))
        for key, product, price in lines:
            value = serde.serialize("orders", order(product, price, at))
            producer.send("orders", key.encode(), value, 0, timestamp=int(at.timestamp() * 1000))
        producer.flush()
        producer.close()
        config = {**names["config"], "state.dir": str(tmp_path)}
        KafkaStreams(names["topology"], config).run_to_end()
        run_block("docs/lake.md", 1, names)
        assert names["rows"] == [("o1", "tea pot", 12.5), ("o3", "samovar", 99.0)]
        run_block("docs/lake.md", 2, names)
        KafkaStreams(names["topology"], {**config, "application.id": "sales"}).run_to_end()
    run_block("docs/lake.md", 3, names)
    day = date(2026, 1, 2)
    assert names["rows"] == [("cup", day, 1), ("samovar", day, 1), ("tea pot", day, 2)]
