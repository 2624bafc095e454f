"""The benchmark of the broker runs on an embedded one; speed is not checked."""

from __future__ import annotations

import json

import pytest

from benchmarks import broker
from penstock.broker.process import BrokerProcess


def test_rows_are_measured_and_reported_as_json(
    embedded_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(broker, "ROUNDS", 1)
    monkeypatch.setattr(broker, "_TRANSACTIONS", 2)
    monkeypatch.setattr(broker, "_WARM_UP_TRANSACTIONS", 1)
    rows = ",".join(row.name for row in broker.ROWS[:2])
    assert broker.main(["--only", rows, "--bootstrap", embedded_broker.bootstrap_servers, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["row"] for one in report["measurements"]] == rows.split(",")
    assert all(one["figure"] > 0 for one in report["measurements"])


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        broker.main(["--only", "nothing"])
    assert "rows are transaction of 100 records" in capsys.readouterr().err
