"""When a log is forced to disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock_broker.common.clock import MockClock
from penstock_broker.errors import ApiError
from penstock_broker.partition import HIGH_WATERMARK
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.test_log import code_of, fill, open_partition
from tests.broker.test_partition import batch, offsets_of


def test_the_log_is_forced_to_disk_as_the_topic_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MockClock()
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: flushed.append(partition.end_offset))
    partition = open_partition(tmp_path / "never", clock)
    fill(partition, 4)
    partition.log.flusher.flush_if_due(partition.config, 1 << 60)
    assert flushed == []
    partition = open_partition(tmp_path / "messages", clock, flush_messages=3)
    for count in (2, 2, 1, 2):
        partition.append(batch(count))
    assert flushed == [2, 5]  # both before the batch is acknowledged
    flushed.clear()
    partition = open_partition(tmp_path / "time", clock, flush_ms=100)
    partition.log.flusher.flush_if_due(partition.config, 1 << 60)
    fill(partition, 2)
    partition.log.flusher.flush_if_due(partition.config, 99)
    assert flushed == []
    partition.log.flusher.flush_if_due(partition.config, 100)
    partition.log.flusher.flush_if_due(partition.config, 300)
    assert flushed == [2]


def test_segments_that_were_deleted_need_no_force(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, **{"segment.bytes": 200})
    fill(partition, 6)
    partition.delete_records(HIGH_WATERMARK)
    partition.force()
    fill(partition, 1)
    partition.force()


def test_a_batch_that_cannot_be_forced_to_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    partition = open_partition(tmp_path, flush_messages=1)
    fill(partition, 1)
    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(ApiError) as refused:
        partition.append(batch(1))
    assert code_of(refused) == ErrorCode.kafka_storage_error
    monkeypatch.undo()
    assert (partition.end_offset, offsets_of(partition)) == (1, [0])
