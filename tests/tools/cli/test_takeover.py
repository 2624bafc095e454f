"""`penstock takeover` against an embedded broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.record import TopicPartition
from penstock.tools.cli import takeover
from penstock.tools.cli.main import app
from tests.support.brokers import EMBEDDED_ONLY, RunningBroker
from tests.support.waiting import until

pytestmark = EMBEDDED_ONLY

PROGRAM = """
from penstock import Materialized, Serdes, StreamsBuilder

builder = StreamsBuilder()
builder.stream("{source}").group_by_key().count(Materialized.as_("counts"))
topology = builder.build()
config = {{
    "application.id": "{name}",
    "bootstrap.servers": "{servers}",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
}}
"""


def test_what_would_be_taken_over_is_shown(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    name, source = unique_name("app"), unique_name("in")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(source=source, name=name, servers=broker.bootstrap_servers))
    admin = ConfluentAdmin(StreamsConfig({"application.id": name, "bootstrap.servers": broker.bootstrap_servers}))
    admin.create_topics([NewTopic(source, 1)])
    admin.commit_offsets(name, {TopicPartition(source, 0): OffsetAndMetadata(0)})
    shown = CliRunner().invoke(app, ["takeover", str(file)])
    assert shown.exit_code == 1, shown.output
    assert f"Group {name}: Empty, 0 members" in shown.output
    assert f"Problem: Store counts has no changelog: there is no topic {name}-counts-changelog" in shown.output
    admin.create_topics([NewTopic(f"{name}-counts-changelog", 1)])
    shown = CliRunner().invoke(app, ["takeover", str(file)])
    assert shown.exit_code == 0, shown.output
    assert f"Store counts: at most 0 records of {name}-counts-changelog" in shown.output
    answer = json.loads(CliRunner().invoke(app, ["takeover", str(file), "--json"]).output)
    assert answer["inputs"] == [{"topic": source, "partition": 0, "committed": 0, "end": 0, "time": None}]


def test_members_that_did_not_leave_are_removed_by_force(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "WATCH_SECONDS", 0.5)
    name, source = unique_name("app"), unique_name("in")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(source=source, name=name, servers=broker.bootstrap_servers))
    admin = ConfluentAdmin(StreamsConfig({"application.id": name, "bootstrap.servers": broker.bootstrap_servers}))
    admin.create_topics([NewTopic(source, 1)])
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": name, "client.id": "shop", "group.instance.id": "1"}
    )
    consumer.subscribe([source])
    assert until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
    consumer.close()  # a static member does not leave
    shown = CliRunner().invoke(app, ["takeover", str(file)])
    assert shown.exit_code == 1, shown.output
    assert f"Problem: The group {name} has 1 member: shop at " in shown.output
    assert "--force" in shown.output
    shown = CliRunner().invoke(app, ["takeover", str(file), "--force"])
    assert shown.exit_code == 0, shown.output
    assert "Removed from the group: " in shown.output
    assert f"Group {name}: Empty, 0 members" in shown.output
    answer = json.loads(CliRunner().invoke(app, ["takeover", str(file), "--force", "--json"]).output)
    assert (answer["removed"], answer["obstacles"]) == ([], [])
