"""The benchmark of backlogs runs on an embedded broker; speed is not checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import backlogs
from penstock_broker.process import BrokerProcess


@pytest.mark.slow
def test_each_row_has_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess(tmp_path) as broker:
        at = ["--bootstrap", broker.bootstrap_servers, "--seconds", "2"]
        backlogs.main([*at, "--tasks", "2", "--backlog", "200000", "--partitions", "0"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["missing"] == {}
    [figures] = printed["results"].values()
    assert figures.keys() == {"p50_ms", "most_ms", "records_per_second", "resident_mb"}
    assert all(value > 0 for value in figures.values())
