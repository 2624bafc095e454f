"""The reference of metrics is what the code has."""

from __future__ import annotations

import re

import orjson

from penstock.metrics.host_metrics import DESCRIPTIONS
from scripts import metrics


def test_the_reference_of_metrics_is_up_to_date() -> None:
    assert metrics.PAGE.read_text(encoding="utf-8") == metrics.page(), "run python scripts/metrics.py"
    listed = set(re.findall(r"^\| `([\w-]+)` \|", metrics.page().partition(metrics.HEADING)[2], re.MULTILINE))
    assert listed == {name for _, name in DESCRIPTIONS}


def test_each_alert_and_dashboard_is_on_the_page() -> None:
    deploy = metrics.ROOT / "deploy"
    rules = (deploy / "prometheus" / "penstock-alerts.yml").read_text(encoding="utf-8")
    text = metrics.PAGE.read_text(encoding="utf-8")
    assert re.findall(r"- alert: (\w+)", rules) == re.findall(r"^\| `(Penstock\w+)` \|", text, re.MULTILINE)
    for dashboard in (deploy / "grafana").iterdir():
        assert f"`deploy/grafana/{dashboard.name}`" in text
        assert orjson.loads(dashboard.read_bytes())["title"].startswith("Penstock: ")
