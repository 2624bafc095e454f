"""The settings with which a member of the classic protocol joins its group."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.errors import ConfigError
from penstock.host.deployment.layout import layout_of
from penstock.host.threads import member_messages as m
from penstock.host.threads.classic_group import ClassicProtocol
from penstock.plan.topology import built_topology


def protocol(**settings: int) -> ClassicProtocol:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", **given}, environment={})
    builder = StreamsBuilder()
    builder.stream("in").foreach(lambda key, value: None)
    layout = layout_of(built_topology(builder.build(), "app"), config, {"in": 1})
    return ClassicProtocol(layout, config, "process", None, 1)


def session_timeout_ms(**settings: int) -> int:
    request = protocol(**settings).request(m.Join("", -1, frozenset()))
    assert request is not None
    timeout: int = request.body["session_timeout"]
    return timeout


def test_sessions_are_short_and_tasks_take_batches_by_default() -> None:
    assert session_timeout_ms() == 10_000
    assert session_timeout_ms(session_timeout_ms=45_000) == 45_000
    assert StreamsConfig({}, environment={})["buffered.records.per.partition"] == 30_000


def test_a_heartbeat_comes_before_the_session_ends() -> None:
    protocol(session_timeout_ms=501)
    protocol(session_timeout_ms=100)
    with pytest.raises(
        ConfigError, match=r"heartbeat\.interval\.ms=6000: expected less than session\.timeout\.ms=6000"
    ):
        protocol(session_timeout_ms=6_000, heartbeat_interval_ms=6_000)
