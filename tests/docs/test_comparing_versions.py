"""The page on comparisons of versions: its program runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder, Topology
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock_broker.process import BrokerProcess
from tests.docs.pages import run_block
from tests.support.plain_producer import PlainProducer

STRING = Serdes.string()


def test_a_comparison_in_python(
    embedded_broker: BrokerProcess,
    tmp_path: Path,
    unique_name: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = {"bootstrap.servers": embedded_broker.bootstrap_servers}
    source, target = unique_name("in"), unique_name("out")
    admin = ConfluentAdmin(StreamsConfig(servers))
    admin.create_topics([NewTopic(source, 1), NewTopic(target, 1)])
    admin.close()
    producer = PlainProducer(StreamsConfig(servers))
    producer.send(source, b"k", b"v")
    producer.close()

    def program(change: Callable[[str], str]) -> Topology:
        builder = StreamsBuilder()
        changed = builder.stream(source, Consumed.with_(STRING, STRING)).map_values(change)
        changed.to(target, Produced.with_(STRING, STRING))
        return builder.build()

    config = {**servers, "application.id": unique_name("app"), "penstock.host": "threads", "state.dir": str(tmp_path)}
    upper, same = program(str.upper), program(lambda value: value.upper())
    run_block("docs/comparing-versions.md", 0, {"topology": upper, "config": config, "changed_topology": same})
    assert capsys.readouterr().out == f"topic {target}: 1 equal\n"
    other = {"topology": upper, "config": config, "changed_topology": program(str.lower)}
    with pytest.raises(AssertionError, match=rf"topics {target}\.$"):
        run_block("docs/comparing-versions.md", 0, other)
