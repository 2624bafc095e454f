"""The files of a partition's log: where it begins, when segments begin and go, and what a restart reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock_broker.batch import LOG_APPEND_TIME, check_batch
from penstock_broker.common.clock import MockClock
from penstock_broker.errors import ApiError
from penstock_broker.partition import HIGH_WATERMARK, Partition
from penstock_broker.records import read_records
from penstock_broker.topic_config import log_config
from penstock_broker.wire.error_codes import ErrorCode
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


def test_a_segment_ends_when_its_time_is_over(tmp_path: Path) -> None:
    clock = MockClock(1_000_000)
    partition = open_partition(tmp_path, clock, segment_ms=100)
    for time in (0, 100, 50, 101, 110, 300):
        partition.append(batch(1, first_time=time))
    assert segments_in(tmp_path) == [0, 3, 5]


def test_a_segment_of_records_without_times_ends_by_the_clock(tmp_path: Path) -> None:
    clock = MockClock(1_000)
    partition = open_partition(tmp_path, clock, segment_ms=100)
    partition.append(batch(1, first_time=-1))
    clock.advance(100)
    partition.append(batch(1, first_time=-1))
    clock.advance(1)
    partition.append(batch(1, first_time=-1))
    assert segments_in(tmp_path) == [0, 2]


def test_a_segment_ends_when_its_index_is_full(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, index_interval_bytes=0, segment_index_bytes=16)
    fill(partition, 5)
    assert segments_in(tmp_path) == [0, 2, 4]


def test_old_segments_are_deleted_and_their_files_some_time_later(tmp_path: Path) -> None:
    clock = MockClock(1_000)
    configs = {"segment_bytes": 200, "retention_ms": 100, "file_delete_delay_ms": 50}
    partition = open_partition(tmp_path, clock, **configs)
    for time in (890, 890, 900, 900, 880, 880):
        partition.append(batch(1, first_time=time))
    partition.delete_old_segments(clock.milliseconds())
    # The third segment is older, but the log is deleted from its start.
    assert (partition.start_offset, segments_in(tmp_path)) == (2, [2, 4])
    assert f"{0:020d}.log.deleted" in names_in(tmp_path)
    partition.log.segments.remove_files_set_aside(1_049)
    assert f"{0:020d}.log.deleted" in names_in(tmp_path)
    clock.advance(50)
    partition.delete_old_segments(clock.milliseconds())
    partition.log.segments.remove_files_set_aside(clock.milliseconds())
    assert partition.start_offset == partition.end_offset == 6
    assert segments_in(tmp_path) == [6]
    assert f"{0:020d}.log.deleted" not in names_in(tmp_path)
    partition.close()
    partition = open_partition(tmp_path, clock, **configs)
    assert not list(tmp_path.glob("*.deleted"))
    assert partition.append(batch(1)) == 6


def test_a_log_that_is_too_large_loses_its_first_segments(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, segment_bytes=200, retention_bytes=350)
    fill(partition, 7)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    assert size > 500
    partition.delete_old_segments(0)
    assert segments_in(tmp_path) == [2, 4, 6]
    partition.delete_old_segments(0)
    assert segments_in(tmp_path) == [2, 4, 6]


@pytest.mark.parametrize("configs", [{"retention_ms": -1}, {"cleanup_policy": "compact", "retention_ms": 0}])
def test_what_retention_does_not_delete(tmp_path: Path, configs: dict[str, object]) -> None:
    partition = open_partition(tmp_path, MockClock(1 << 40), segment_bytes=200, **configs)
    partition.append(batch(1, first_time=5))
    partition.delete_old_segments(1 << 41)
    assert partition.start_offset == 0


def test_records_get_the_time_of_the_append(tmp_path: Path) -> None:
    clock = MockClock(5_000)
    partition = open_partition(tmp_path, clock, message_timestamp_type="LogAppendTime")
    partition.append(batch(2, first_time=1 << 50))
    clock.advance(100)
    partition.append(batch(1, first_time=3))
    first = check_batch(memoryview(partition.read(0, 1)))
    assert (first.max_timestamp, first.attributes & LOG_APPEND_TIME) == (5_000, LOG_APPEND_TIME)
    assert [record.timestamp for record in read_records(memoryview(partition.read(0, 1)))] == [5_000, 5_000]
    assert partition.offset_for_time(5_001) == (2, 5_100)


def test_a_segment_that_has_no_space_is_begun_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = open_partition(tmp_path, segment_bytes=200)
    fill(partition, 2)
    real = os.open

    def full(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(28, "No space left on device")
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", full)
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            partition.append(batch(1))
        assert code_of(refused) == ErrorCode.kafka_storage_error
    assert caplog.text.count("topic-0: cannot write at offset 2: ") == 1  # producers try again and again
    monkeypatch.undo()
    for end in (2, 3):
        assert partition.append(batch(1)) == end
        partition.close()
        partition = open_partition(tmp_path, segment_bytes=200)
    assert offsets_of(partition) == [0, 1, 2, 3]
