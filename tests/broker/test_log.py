"""The files of a partition's log: where it begins, when segments begin and go, and what a restart reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from penstock.broker.errors import ApiError
from penstock.broker.partition import HIGH_WATERMARK, Partition
from penstock.broker.topic_config import log_config
from penstock.clock import MockClock
from tests.broker.test_partition import batch, offsets_of


def open_partition(directory: Path, clock: MockClock | None = None, **configs: object) -> Partition:
    given = {key.replace("_", "."): str(value) for key, value in configs.items()}
    return Partition(directory, "topic", 0, log_config(given), clock or MockClock())


def fill(partition: Partition, batches: int) -> None:
    for number in range(batches):
        partition.append(batch(1, first_time=number))


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def segments_in(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def code_of(refused: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return refused.value.code


def test_deleted_records_are_gone_for_readers_and_after_a_restart(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, segment_bytes=200)
    fill(partition, 9)
    assert segments_in(tmp_path) == [0, 2, 4, 6, 8]
    assert partition.delete_records(5) == 5
    assert partition.delete_records(3) == 5
    assert segments_in(tmp_path) == [4, 6, 8]
    for _ in range(2):
        assert (partition.start_offset, partition.end_offset) == (5, 9)
        with pytest.raises(ApiError) as refused:
            partition.read(4, 100)
        assert code_of(refused) == ErrorCode.offset_out_of_range
        assert offsets_of(partition, 5) == [5, 6, 7, 8]
        assert partition.offset_for_time(0) == (5, 5)
        partition.close()
        partition = open_partition(tmp_path, segment_bytes=200)
    partition.close()


def test_all_records_are_deleted_and_their_offsets_not_given_again(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, segment_bytes=200)
    fill(partition, 4)
    assert partition.delete_records(HIGH_WATERMARK) == 4
    for end in (4, 5):
        assert (partition.start_offset, partition.end_offset) == (4, end)
        partition.close()
        partition = open_partition(tmp_path, segment_bytes=200)
        assert partition.append(batch(1)) == end
    assert partition.offset_of_max_timestamp() == (4, 0)
    partition.close()


def test_records_beyond_the_end_or_of_a_compacted_topic_are_not_deleted(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "deleted")
    fill(partition, 2)
    for offset in (3, -2):
        with pytest.raises(ApiError) as refused:
            partition.delete_records(offset)
        assert code_of(refused) == ErrorCode.offset_out_of_range
    compacted = open_partition(tmp_path / "compacted", cleanup_policy="compact")
    with pytest.raises(ApiError) as refused:
        compacted.delete_records(HIGH_WATERMARK)
    assert code_of(refused) == ErrorCode.policy_violation
    assert open_partition(tmp_path / "both", cleanup_policy="compact, delete").delete_records(0) == 0


def test_without_space_for_the_checkpoint_nothing_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = open_partition(tmp_path, segment_bytes=200)
    fill(partition, 4)

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    before = names_in(tmp_path)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ApiError) as refused:
        partition.delete_records(3)
    assert code_of(refused) == ErrorCode.kafka_storage_error
    monkeypatch.undo()
    assert (partition.start_offset, names_in(tmp_path)) == (0, before)
    assert partition.delete_records(3) == 3
