"""Reads of a log across its segments, by offset and by time."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.batch import assign_offset, read_header
from penstock_broker.log import Log
from penstock_broker.log_reader import LogReader
from penstock_broker.topic_config import log_config
from tests.support.record_batches import BatchRecord, encode_batch

SMALL = log_config({"internal.segment.bytes": "150"})
"""Two batches in each segment."""


def append(log: Log, offset: int, *times: int) -> None:
    """Append a batch with one record for each time."""
    batch = memoryview(encode_batch([BatchRecord(time, b"k", b"v") for time in times]))
    assign_offset(batch, offset, leader_epoch=0)
    log.append(batch, read_header(batch), now=0)


def filled(directory: Path, *times: int) -> Log:
    """Return a log with a batch of one record for each time."""
    log = Log(directory, "topic-0", SMALL, now=0)
    for offset, time in enumerate(times):
        append(log, offset, time)
    return log


def test_a_read_ends_with_its_segment_and_the_next_one_goes_on(tmp_path: Path) -> None:
    reader = LogReader(filled(tmp_path, 1, 1, 1, 1, 1))
    found, offset = [], 1
    while offset < 5:
        records, next_offset = reader.read(offset, 1 << 20, 5)
        found.append((read_header(records).base_offset, next_offset))
        offset = next_offset
    assert found == [(1, 2), (2, 4), (4, 5)]
    assert reader.read(3, 1 << 20, 3) == (b"", 3)
    assert reader.read(5, 1 << 20, 5)[0] == b""


def test_each_segment_with_batches_has_a_first_header(tmp_path: Path) -> None:
    log = filled(tmp_path, 1, 1, 1)
    found = [(segment.base_offset, header.base_offset) for segment, header in LogReader(log).first_headers()]
    assert found == [(0, 0), (2, 2)]
    log.roll(0)
    assert len(list(LogReader(log).first_headers())) == 2


def test_the_first_record_from_a_time_on_is_found_whatever_the_order(tmp_path: Path) -> None:
    times = (10, 50, 20, 60, 60)
    reader = LogReader(filled(tmp_path, *times))
    for wanted in range(70):
        expected = next(((offset, time) for offset, time in enumerate(times) if time >= wanted), None)
        assert reader.offset_for_time(wanted) == expected
    assert reader.offset_of_max_timestamp() == (3, 60)


def test_records_that_were_deleted_have_no_time(tmp_path: Path) -> None:
    log = filled(tmp_path)
    append(log, 0, 90, 20, 40)  # one batch, the rest of which stays in its file
    append(log, 3, 30)
    reader = LogReader(log)
    log.delete_before(1, now=0)
    assert reader.offset_for_time(0) == (1, 20)
    assert reader.offset_of_max_timestamp() == (2, 40)


@pytest.mark.parametrize("times", [(), (-1, -1)])
def test_a_log_without_times_has_no_largest_one(tmp_path: Path, times: tuple[int, ...]) -> None:
    reader = LogReader(filled(tmp_path, *times))
    assert reader.offset_of_max_timestamp() is None
    assert reader.offset_for_time(0) is None


def test_only_a_log_with_gaps_has_lost_records(tmp_path: Path) -> None:
    log = filled(tmp_path, 1, 1)
    assert LogReader(log).removed({0, 7}) == frozenset()
    log.config = log_config({"cleanup.policy": "compact"})
    assert LogReader(log).removed({0, 1, 7}) == {7}
