"""The benchmark of the pages runs; speed is not checked."""

from __future__ import annotations

import json

import pytest

from benchmarks import console


def test_pages_are_measured_and_reported_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "CHROMIUM", None)
    monkeypatch.setattr(console, "_WARM_UP_SECONDS", 0)
    assert console.main(["--nodes", "60", "--rounds", "1", "--seconds", "0.1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = told["measurements"]
    assert len(told["costs"]) == 7
    assert [each["page"] for each in found] == ["/", "/topology", "/topology.svg", "/tasks", "/commits"]
    assert all(each["milliseconds"] > 0 for each in found)
