"""The Python blocks of a page run, one after the other, and the topology that they make gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.serdes import Serdes
from penstock.testing import TopologyTestDriver

DOCS = Path(__file__).parents[2] / "docs"
STRING, JSON, DOUBLE = Serdes.string(), Serdes.json(), Serdes.double()


def run_blocks(page: str) -> dict[str, Any]:
    """Return the names that the blocks of `page` define."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        exec(compile(block, page, "exec", dont_inherit=True), names)
    return names


def test_topologies(capsys: pytest.CaptureFixture[str]) -> None:
    names = run_blocks("topologies.md")
    assert capsys.readouterr().out.strip() == str(names["topology"].describe()).strip()
    assert names["picture"].startswith("<svg")
    assert names["flowchart"].startswith("flowchart")
    with TopologyTestDriver(names["topology"], {}) as driver:
        trades = driver.create_input_topic("trades", STRING, JSON)
        driver.create_input_topic("companies", STRING, JSON).pipe_input("ABC", {"name": "Abc Inc"}, 0)
        for price, time in ((1.0, 1000), (3.0, 2000), (4.0, 200_000)):
            trades.pipe_input("ABC", {"ticker": "ABC", "price": price}, time)
        assert driver.create_output_topic("named-trades", STRING, STRING).read_value() == "Abc Inc: 1.0"
        assert driver.create_output_topic("alarms", STRING, STRING).read_key_values_to_list() == [("ABC", "doubled")]
        assert -2.0 in driver.create_output_topic("differences", STRING, DOUBLE).read_values_to_list()
        assert driver.create_output_topic("busy", STRING, Serdes.long()).read_key_values_to_list() == [("ABC", 2)]
        assert driver.create_output_topic("tickers-per-name", STRING, Serdes.long()).read_key_value() == ("Abc Inc", 1)
