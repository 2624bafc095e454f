"""`penstock ui FILE`: what it takes over from the application that it watches."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig
from penstock.tools.cli.ui import config_of_watcher


def test_a_watcher_exports_no_metrics_and_events_of_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_METRICS_PROMETHEUS_PORT", "9404")
    monkeypatch.setenv("PENSTOCK_APPLICATION_ID", "orders")
    outputs = {"penstock.otel.enabled": True, "penstock.openlineage.enabled": True, "penstock.ui.port": 8080}
    own = config_of_watcher(StreamsConfig(outputs))
    assert own["application.id"] == "orders"
    assert own["penstock.metrics.prometheus.port"] is own["penstock.ui.port"] is None
    assert not own["penstock.otel.enabled"]
    assert not own["penstock.openlineage.enabled"]
