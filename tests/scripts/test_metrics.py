"""The reference of metrics is what the code has."""

from __future__ import annotations

import re

import orjson
import pytest

from penstock.metrics.host_metrics import DESCRIPTIONS
from scripts import metrics


def test_the_reference_of_metrics_is_up_to_date() -> None:
    assert metrics.PAGE.read_text(encoding="utf-8") == metrics.page(), "run python scripts/metrics.py"
    listed = set(re.findall(r"^\| `([\w-]+)` \|", "\n".join(metrics.reference()), re.MULTILINE))
    assert listed == {name for _, name in DESCRIPTIONS}


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("stream-task-metrics", ("nowhere",)),  # Kafka has it, and no reason is given
        ("stream-thread-metrics", metrics.KAFKA_NAMES["stream-thread-metrics"][:-1]),  # left out, and not Kafka's
    ],
)
def test_a_metric_of_kafka_is_there_or_left_out_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, group: str, names: tuple[str, ...]
) -> None:
    assert {name for _, name, _, why in metrics.left_out() if why} >= {"commit-id", "update-rate"}
    monkeypatch.setattr(metrics, "KAFKA_NAMES", {**metrics.KAFKA_NAMES, group: names})
    with pytest.raises(ValueError, match=r"metrics\.toml"):
        metrics.left_out()


def test_each_alert_and_dashboard_is_on_the_page() -> None:
    deploy = metrics.ROOT / "deploy"
    rules = (deploy / "prometheus" / "penstock-alerts.yml").read_text(encoding="utf-8")
    text = metrics.PAGE.read_text(encoding="utf-8")
    assert re.findall(r"- alert: (\w+)", rules) == re.findall(r"^\| `(Penstock\w+)` \|", text, re.MULTILINE)
    for dashboard in (deploy / "grafana").iterdir():
        assert f"`deploy/grafana/{dashboard.name}`" in text
        assert orjson.loads(dashboard.read_bytes())["title"].startswith("Penstock: ")
