"""The store over SQLite: it passes the conformance kit, and shows its state to other programs."""

from __future__ import annotations

import runpy
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.serdes import Serdes
from penstock.state.conformance import check_key_value_store
from penstock.testing import TopologyTestDriver

EXAMPLE = Path(__file__).parents[2] / "examples" / "stores" / "sqlite_store.py"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return runpy.run_path(str(EXAMPLE), run_name="sqlite_store")


def test_the_store_behaves_as_a_key_value_store_over_commits_and_crashes(
    example: dict[str, Any], tmp_path: Path
) -> None:
    check_key_value_store(lambda: example["SqliteStoreSupplier"]("checked", tmp_path / "checked"))


def test_another_program_sees_what_was_committed(example: dict[str, Any]) -> None:
    with TopologyTestDriver(example["topology"], example["config"]) as driver:
        orders = driver.create_input_topic("orders", Serdes.string(), Serdes.string())
        orders.pipe_key_value_list([("ann", "book"), ("bob", "pen"), ("ann", "ink")])
        with sqlite3.connect(example["databases"] / "0_0.sqlite") as other:
            seen = other.execute("SELECT key, value FROM orders WHERE value > 1").fetchall()
        other.close()
    assert seen == [("ann", "2")]
