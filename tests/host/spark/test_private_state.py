"""What an application keeps on a local disk is for its user alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from penstock import Consumed, Grouped, Serdes, StreamsBuilder
from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock_broker.process import BrokerProcess
from tests.host.spark.inline import InlineQuery

TEXT = Serdes.string()


def test_nobody_else_can_read_what_is_kept(tmp_path: Path, unique_name: Callable[[str], str]) -> None:
    application, topic = unique_name("app"), unique_name("in")
    before = os.umask(0)  # whatever the user's umask
    try:
        with BrokerProcess(tmp_path / "broker") as broker:
            config = StreamsConfig(
                {
                    "application.id": application,
                    "bootstrap.servers": broker.bootstrap_servers,
                    "state.dir": str(tmp_path / "state"),
                }
            )
            admin, producer = ConfluentAdmin(config), ConfluentProducer(config)
            admin.create_topics([NewTopic(topic, 1)])
            producer.send(topic, b"key", b"value")
            producer.close()
            builder = StreamsBuilder()
            stream = builder.stream(topic, Consumed.with_(key_serde=TEXT, value_serde=TEXT))
            stream.group_by_key(Grouped.with_(key_serde=TEXT, value_serde=TEXT)).count()
            query = InlineQuery(builder.build(), config, admin)
            query.run_to_end()
            query.stop()
            admin.close()
    finally:
        os.umask(before)
    found = {path.relative_to(tmp_path): path.stat() for path in tmp_path.rglob("*")}
    assert any(path.parent.name == "plans" for path in found)
    application_path = Path("state") / application
    closed = {path for path, stat in found.items() if not stat.st_mode & 0o077}
    assert {Path("broker"), application_path} <= closed
    within = {path for path in found if path.is_relative_to(application_path)}
    assert within - closed == set()
