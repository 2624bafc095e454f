"""The stores of a running application as tables, on each host: what `streams.table` and `streams.store` return is read
by libraries of data frames."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock import KafkaStreams
from penstock.application.store_view import StoreView
from penstock.config import StreamsConfig
from tests.host.support import InputRecord, Runner, wait_for
from tests.host.test_queries import RECORDS, config, every_kind, source
from tests.support.frames import Rows, rows_for_all

pytestmark = pytest.mark.one_broker

__all__ = ["config", "source"]  # fixtures

ON_SPARK = pytest.param("spark", marks=(pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")))

COUNTS = {("a", 3, 63), ("b", 2, 200), ("c", 1, 62)}
WINDOWS = {("a", 0, 60, 1), ("a", 60, 120, 2), ("b", 0, 60, 1), ("b", 180, 240, 1), ("c", 60, 120, 1)}
SESSIONS = {("a", 1, 1, 1), ("a", 61, 63, 2), ("b", 2, 2, 1), ("b", 200, 200, 1), ("c", 62, 62, 1)}
VERSIONS = {("a", "5", 63), ("b", "6", 200), ("c", "4", 62)}


def read(rows: Rows, *columns: str) -> set[tuple[Any, ...]]:
    """Return the entries of `columns`, times as seconds."""
    return {
        tuple(int(cell.timestamp()) if isinstance(cell, datetime) else cell for cell in map(row.__getitem__, columns))
        for row in rows
    }


@pytest.mark.parametrize("runner", [ON_SPARK, "threads"], indirect=True)
def test_libraries_of_data_frames_read_the_table_of_a_store(runner: Runner, source: str, config: StreamsConfig) -> None:
    runner.write(source, [InputRecord(k.encode(), v.encode(), t, int(k == "b")) for k, v, t in RECORDS])
    with KafkaStreams(every_kind(source), config, **runner.options()) as streams:

        def table(name: str, *columns: str) -> set[tuple[Any, ...]]:
            rows = rows_for_all(streams.table(name))
            assert read(rows, "partition", "key") == {(int(row["key"] == "b"), row["key"]) for row in rows}
            return read(rows, *columns)

        wait_for(lambda: streams.state().value == "RUNNING")
        wait_for(lambda: runner.entries(streams.table("counts")) == {"a": 3, "b": 2, "c": 1})
        assert table("counts", "key", "value", "timestamp") == COUNTS
        assert table("windows", "key", "window_start", "window_end", "value") == WINDOWS
        assert table("sessions", "key", "window_start", "window_end", "value") == SESSIONS
        assert table("versions", "key", "value", "timestamp") == VERSIONS
        view = streams.view("windows")
        assert isinstance(view, StoreView)
        assert read(rows_for_all(view), "key", "window_start", "window_end", "value") == WINDOWS
        assert pa.table(streams.view("sessions")).num_rows == len(SESSIONS)
        assert read(rows_for_all(streams.view("versions")), "key", "value", "timestamp") == VERSIONS
