"""The rows of a history in workers: their partitions, their order, and their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.stored_history import HistoryReader, histories_of
from penstock.host.spark.frames.history_rows import placed_rows
from penstock.plan.partitioning import partition_for
from tests.host.spark.histories import frame_of, store_history
from tests.host.support import InputRecord


def config_of(directory: Path) -> StreamsConfig:
    return StreamsConfig({"application.id": "app", "penstock.checkpoint.dir": str(directory)})


def test_rows_go_to_the_partition_of_their_key_unless_they_have_one() -> None:
    frame = frame_of([InputRecord(b"a", b"1", 5), InputRecord(b"b", b"2", 6)])
    column = frame.schema.get_field_index("partition")
    free = frame.set_column(column, frame.schema.field(column), pa.nulls(2, pa.int32()))
    (placed,) = placed_rows("t", 4, "source in", 3, [free])
    assert placed["partition"].to_pylist() == [partition_for(b"a", 4), partition_for(b"b", 4)]
    assert placed["task"].to_pylist() == [3, 3]
    given = list(placed_rows("t", 4, "source in", 0, [frame, frame]))
    assert [each["partition"].to_pylist() for each in given] == [[0, 0], [0, 0]]
    assert [each["number"].to_pylist() for each in given] == [[0, 1], [2, 3]]


def test_a_row_without_a_time_or_with_an_unknown_partition_is_refused() -> None:
    frame = frame_of([InputRecord(b"a", b"1", 5, 2)])
    with pytest.raises(StreamsError, match="A row for t has the partition 2; the topic has partitions 0 to 1"):
        list(placed_rows("t", 2, "source in", 0, [frame]))
    column = frame.schema.get_field_index("timestamp")
    timeless = frame.set_column(column, frame.schema.field(column), pa.nulls(1, pa.int64()))
    with pytest.raises(StreamsError, match=r"A row of the history of topic t has no timestamp \(source in\)"):
        list(placed_rows("t", 3, "source in", 0, [timeless]))


def test_rows_are_stored_by_partition_in_the_order_of_time(tmp_path: Path) -> None:
    records = [
        InputRecord(b"a", b"3", 30, 1),
        InputRecord(b"a", None, 10, 1, (("h", b"x"), ("h", None))),
        InputRecord(None, b"0", 20, 0),
        InputRecord(b"a", b"2", 10, 1),
    ]
    history = store_history(config_of(tmp_path), "t", records, [5, 1, 0])
    assert history.bounds().first == (4, -2, 0)
    reader = HistoryReader(histories_of(str(tmp_path)).below("t"), history)
    (batch,) = reader.read(1, -2, 1)
    assert (batch.values, batch.timestamps.tolist()) == ([None, b"2", b"3"], [10, 10, 30])
    assert [batch.headers_at(place) for place in range(3)] == [(("h", b"x"), ("h", None)), (), ()]
    (batch,) = reader.read(0, 4, 5)
    assert (batch.keys, batch.values, batch.offsets.tolist()) == ([None], [b"0"], [4])
    assert list(reader.read(2, 0, 0)) == []
