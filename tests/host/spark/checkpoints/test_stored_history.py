"""The rows of a history come back as they were written, by offset and by time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import TaskCorruptedError
from penstock.host.spark.checkpoints.stored_history import (
    HistoryReader,
    StoredHistory,
    delete_chunks,
    histories_of,
    open_history,
    read_index,
    stored_histories,
    unread_histories,
    write_chunks,
    write_index,
)
from penstock.host.spark.protocol.history_bounds import HistoryBounds
from penstock.host.storage.files import Files
from penstock.record import RecordBatch, TopicPartition


def batch_of(times: list[int]) -> RecordBatch:
    return RecordBatch.of([(b"k", b"v%d" % place, time, place, (("n", b"h"),)) for place, time in enumerate(times)])


def stored(files: Files, times: list[int], end: int, max_bytes: int, parts: int) -> StoredHistory:
    """Write rows of one partition of the topic t, in batches of as many rows as `parts` says."""
    batch = batch_of(times)
    batches = [batch.slice(start, start + parts) for start in range(0, len(batch), parts)]
    return StoredHistory("t", (end,), (tuple(write_chunks(files, TopicPartition("t", 0), batches, max_bytes)),))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.data())
def test_ranges_and_times_find_the_rows(tmp_path: Path, data: st.DataObject) -> None:
    times = sorted(data.draw(st.lists(st.integers(0, 50), max_size=60)))
    end = data.draw(st.integers(0, 100))
    history = stored(
        Files(str(tmp_path)), times, end, data.draw(st.sampled_from((40, 200, 10_000))), data.draw(st.integers(1, 70))
    )
    first = end - len(times)
    bounds = history.bounds()
    assert (bounds.first, bounds.end) == ((first,), (end,))
    reader = HistoryReader(Files(str(tmp_path)), history)
    start = data.draw(st.integers(first, end))
    stop = data.draw(st.integers(start, end))
    rows = RecordBatch.concat(list(reader.read(0, start, stop)))
    assert rows.offsets.tolist() == list(range(start, stop))
    assert rows.timestamps.tolist() == times[start - first : stop - first]
    assert rows.values == [b"v%d" % place for place in range(start - first, stop - first)]
    assert [rows.headers_at(place) for place in range(len(rows))] == [(("n", b"h"),)] * len(rows)
    time = data.draw(st.integers(-1, 52))
    assert reader.offset_at(0, time) == first + int(np.searchsorted(times, time))


def test_times_of_many_partitions_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, partitions = Files(str(tmp_path)), 300
    chunks = [
        tuple(write_chunks(files, TopicPartition("t", number), [batch_of([1, 9])], 10_000))
        for number in range(partitions)
    ]
    reader = HistoryReader(files, StoredHistory("t", (2,) * partitions, tuple(chunks)))
    assert {reader.offset_at(number, 5) for number in range(partitions)} == {1}

    def read(path: str) -> bytes:
        raise AssertionError(f"{path} is read for each time that planning tries")

    monkeypatch.setattr(files, "read", read)
    assert {reader.offset_at(number, 9) for number in range(partitions)} == {1}


def test_a_history_is_there_once_its_index_is(tmp_path: Path) -> None:
    files = histories_of(str(tmp_path)).below("t")
    history = stored(files, [1, 2, 3], 7, 10_000, 2)
    assert stored_histories(str(tmp_path)) == {}
    write_index(files, history)
    assert read_index(files) == history
    bounds = stored_histories(str(tmp_path))["t"]
    assert (bounds.first, bounds.end) == ((4,), (7,))
    assert [len(batch) for batch in open_history(str(tmp_path), "t", bounds).read(0, 4, 7)] == [2, 1]
    delete_chunks(str(tmp_path), "t")
    assert stored_histories(str(tmp_path)) == {"t": bounds}
    assert [each.name for each in files.find("")] == ["index"]


def test_another_index_and_changed_rows_are_found(tmp_path: Path) -> None:
    files = histories_of(str(tmp_path)).below("t")
    history = stored(files, [1, 2], 2, 10_000, 2)
    write_index(files, history)
    with pytest.raises(TaskCorruptedError, match=r"histories/t/index cannot be used: it was deleted or replaced"):
        open_history(str(tmp_path), "t", HistoryBounds("another", (0,), (2,)))
    name = history.chunks[0][0].file
    (tmp_path / "histories" / "t" / "0" / name).write_bytes(b"other rows")
    with pytest.raises(TaskCorruptedError, match=f"{name} cannot be used: its content does not match its name"):
        list(HistoryReader(files, history).read(0, 0, 2))


def test_a_history_is_unread_until_all_partitions_are_past_it() -> None:
    histories = {"t": HistoryBounds("", (-3, 0), (2, 5)), "other": HistoryBounds("", (0,), (1,))}
    assert unread_histories(histories, {"t": [2, 4], "without": [0]}) == ["t"]
    assert unread_histories(histories, {"t": [2, 5], "other": [0]}) == ["other"]
    assert unread_histories(histories, {"t": [9, 5, 0]}) == []
