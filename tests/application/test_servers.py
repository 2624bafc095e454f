"""The servers of an application: which of them open, in which order, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import KafkaStreams
from penstock.application import servers
from penstock.application.servers import Exposed, open_servers
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from tests.test_streams import CONFIG, TestHost, host, topology

__all__ = ["host"]

ALL = {
    "penstock.metrics.prometheus.port": 9404,
    "penstock.otel.enabled": True,
    "penstock.ui.port": 8080,
    "penstock.openlineage.enabled": True,
}


class _Opened:
    """Stands for each server; keeps its name and arguments."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.name = name
        self.arguments = arguments
        self.closed = False

    def close(self, timeout_ms: int) -> None:
        self.closed = timeout_ms > 0


def _modules(refused: str = "") -> Any:
    def load(module: str, needed_for: str) -> SimpleNamespace:
        if module == refused:
            raise ConfigError(f"{needed_for} needs a package.")

        class Module(SimpleNamespace):
            def __getattr__(self, name: str) -> Any:
                return lambda *arguments: opened.append(_Opened(name, *arguments)) or opened[-1]

        return Module()

    opened: list[_Opened] = []
    return SimpleNamespace(load=load, opened=opened)


def test_each_key_opens_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = _modules()
    monkeypatch.setattr(servers, "load", modules.load)
    application: Any = object()

    def metrics() -> Mapping[Any, Any]:
        return {}

    exposed = Exposed(application, metrics, dict, lambda: None, threading.Event())
    config = StreamsConfig(ALL, environment={})
    assert list(open_servers(exposed, config)) == modules.opened
    assert [each.name for each in modules.opened] == [
        "PrometheusExporter",
        "ObservedMetrics",
        "UiServer",
        "LineageEmitter",
    ]
    arguments = {each.name: each.arguments for each in modules.opened}
    assert arguments == {
        "PrometheusExporter": (metrics, config),
        "ObservedMetrics": (metrics, config),
        "UiServer": (application, config, None),
        "LineageEmitter": (application, config, dict, exposed.ended),
    }
    assert list(open_servers(exposed, StreamsConfig({}, environment={}))) == []


def test_servers_close_if_a_later_one_cannot_open(host: TestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = _modules(refused="penstock.tools.ui.server")
    monkeypatch.setattr(servers, "load", modules.load)
    with pytest.raises(ConfigError, match=r"penstock\.ui\.port needs a package"):
        KafkaStreams(topology(), {**CONFIG, **ALL}).start()
    assert {each.name: each.closed for each in modules.opened} == {"PrometheusExporter": True, "ObservedMetrics": True}
    assert host.calls == []
