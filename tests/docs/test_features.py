"""The program of the page on features prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra arrow is not installed")

from penstock import KafkaStreams, State
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.testing import EmbeddedBroker
from tests.docs.pages import given, run_and_compare, run_block
from tests.support.waiting import until

PAGE = "docs/features.md"


def test_labels_of_the_page_get_the_features_of_the_page(tmp_path: Path) -> None:
    names = given()
    with EmbeddedBroker() as broker:
        for topic in ("profiles", "payments", "risky"):
            broker.create_topic(topic)
        run_block(PAGE, 0, names, {"localhost:9092": broker.bootstrap_servers})
        serde, profile = names["Serdes"].json(names["Profile"]), names["Profile"]
        producer = ConfluentProducer(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}))
        for at, value in ((1_767_300_000_000, profile("DE", 100)), (1_767_450_000_000, profile("FR", 900))):
            producer.send("profiles", b"ann", serde.serialize("profiles", value), 0, timestamp=at)
        producer.flush()
        producer.close()
        config = {**names["config"], "state.dir": str(tmp_path)}
        KafkaStreams(names["topology"], config).run_to_end()
        with KafkaStreams(names["topology"], config) as streams:
            assert until(lambda: streams.state() is State.RUNNING)
            run_and_compare(PAGE, 1, {**names, "streams": streams})
