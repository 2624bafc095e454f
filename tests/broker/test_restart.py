"""What a start reads: the files of indexes and producers where they count, and else the log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock_broker.batch import read_header
from penstock_broker.common.clock import MockClock
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.partition import HIGH_WATERMARK, Partition
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.test_cleaner import end_transaction, in_transaction
from tests.broker.test_log import fill, open_partition, segments_in
from tests.broker.test_partition import forget_clean_stop, offsets_of, refused, sequenced

SMALL = {"segment_bytes": 200}


def force_to_disk(partition: Partition) -> None:
    for segment in partition.log.flusher.closed_unflushed():
        segment.force_to_disk()
        partition.log.flusher.note_flushed(segment)


def test_producers_are_known_after_their_records_were_deleted(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, **SMALL)
    for number in range(6):
        partition.append(sequenced(2 * number))
    partition.delete_records(HIGH_WATERMARK)
    for _ in range(2):
        partition.close()
        partition = open_partition(tmp_path, **SMALL)
        assert partition.append(sequenced(10)) == 10
        assert refused(partition, sequenced(14)) == ErrorCode.out_of_order_sequence_number
    assert partition.append(sequenced(12)) == 12


def test_producers_are_known_after_a_kill_though_their_records_were_deleted(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "log", **SMALL)
    partition.append(sequenced(0))
    fill(partition, 4)
    partition.delete_records(HIGH_WATERMARK)
    shutil.copytree(tmp_path / "log", tmp_path / "killed")
    again = open_partition(tmp_path / "killed", **SMALL)
    assert again.append(sequenced(0)) == 0
    assert refused(again, sequenced(8)) == ErrorCode.out_of_order_sequence_number


def test_transactions_are_as_before_a_stop(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, **SMALL)
    in_transaction(partition, 1, 0, (b"a", b"1"))
    in_transaction(partition, 2, 0, (b"a", b"1"))
    end_transaction(partition, 1, is_commit=False)
    aborted = partition.read_committed(0, 1000)[1]
    known = partition.producers.all()
    for _ in range(2):
        assert partition.last_stable_offset == 1
        assert partition.read_committed(0, 1000)[1] == aborted
        assert partition.producers.all() == known
        partition.close()
        partition = open_partition(tmp_path, **SMALL)


def test_a_start_after_a_clean_stop_reads_no_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = open_partition(tmp_path, **SMALL)
    fill(partition, 7)
    partition.close()
    for path in tmp_path.glob("*.log"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    partition = open_partition(tmp_path, **SMALL)
    assert (partition.start_offset, partition.end_offset) == (0, 7)
    with pytest.raises(ApiError) as caught:
        partition.read(3, 10)
    assert caught.value.code == ErrorCode.corrupt_message
    assert f"topic-0: {tmp_path}/00000000000000000002.log is damaged at byte 0" in caplog.text


def test_a_start_after_a_kill_reads_the_active_segment_alone(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "log", **SMALL)
    fill(partition, 7)
    force_to_disk(partition)
    shutil.copytree(tmp_path / "log", tmp_path / "killed")
    *closed, active = segments_in(tmp_path / "killed")
    for base_offset in closed:
        path = tmp_path / "killed" / f"{base_offset:020d}.log"
        path.write_bytes(b"\xff" * path.stat().st_size)
    again = open_partition(tmp_path / "killed", **SMALL)
    assert (again.end_offset, offsets_of(again, active)) == (7, [6])


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flip_first(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


def _flip_last(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("damage", [_cut, _flip_first, _flip_last, None])
@pytest.mark.parametrize("kind", ["index", "snapshot"])
def test_what_is_damaged_or_missing_is_made_again(
    tmp_path: Path, kind: str, damage: Callable[[bytes], bytes] | None
) -> None:
    configs = {"segment_bytes": 1000, "index_interval_bytes": 0}
    partition = open_partition(tmp_path, **configs)
    fill(partition, 25)
    partition.append(sequenced(0))
    fill(partition, 5)
    partition.close()
    for path in tmp_path.glob(f"*.{kind}"):
        content = path.read_bytes()
        path.unlink()
        if damage is not None:
            path.write_bytes(damage(content))
    for _ in range(2):
        partition = open_partition(tmp_path, **configs)
        assert partition.end_offset == 32
        for start in range(33):
            assert (
                offsets_of(partition, start, 100) == [o for o in (*range(26), *range(27, 32)) if o >= start]
                or start == 26
            )
        assert partition.offset_for_time(7) == (7, 7)
        assert partition.append(sequenced(0)) == 25
        partition.close()


def test_a_damaged_log_that_must_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, **SMALL)
    fill(partition, 7)
    partition.close()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"\xff" * path.stat().st_size)
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    with pytest.raises(BrokerError, match=rf"topic-0 in {tmp_path}.*restore"):
        open_partition(tmp_path, **SMALL)


def test_a_damaged_batch_before_the_end_is_named_with_what_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = open_partition(tmp_path)
    fill(partition, 4)
    partition.close()
    for index in tmp_path.glob("*.index"):
        index.unlink()
    path = tmp_path / f"{0:020d}.log"
    content, size = bytearray(path.read_bytes()), path.stat().st_size // 4
    content[2 * size - 1] ^= 1
    path.write_bytes(content)
    partition = open_partition(tmp_path)
    assert (partition.end_offset, offsets_of(partition)) == (1, [0])
    kept = path.with_name(f"{path.name}.cut")
    assert f"topic-0: the batch at byte {size} of {path} is damaged: cut {3 * size} bytes" in caplog.text
    assert f"2 records that are whole, from offset 2 to 3; they are kept in {kept}" in caplog.text
    assert kept.read_bytes() == content[size:]
    assert "topic-0: the records from offset 1 on are missing, at least to offset 3" in caplog.text


def test_a_snapshot_beyond_the_end_does_not_count(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    partition.append(sequenced(0))
    size = (tmp_path / f"{0:020d}.log").stat().st_size
    partition.append(sequenced(2))
    partition.close()
    # A loss of power took the second batch.
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:size])
    partition = open_partition(tmp_path)
    fill(partition, 5)
    partition.close()
    partition = open_partition(tmp_path)
    assert partition.append(sequenced(2)) == 7


def test_a_repeated_batch_has_the_time_of_its_append_after_a_restart(tmp_path: Path) -> None:
    configs = {"message_timestamp_type": "LogAppendTime"}
    partition = open_partition(tmp_path, MockClock(5_000), **configs)
    partition.append(sequenced(0))
    for _ in range(2):
        partition.close()
        partition = open_partition(tmp_path, MockClock(7_000), **configs)
        repeated = sequenced(0)
        assert partition.append(repeated) == 0
        assert read_header(repeated).max_timestamp == 5_000
        forget_clean_stop(tmp_path)


def test_a_silent_producer_is_forgotten_unless_its_transaction_is_open(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, MockClock())
    partition.append(sequenced(0))
    in_transaction(partition, 1, 0, (b"a", b"1"))
    partition.producers.forget_silent(0)
    assert [one.producer_id for one in partition.producers.all()] == [9, 1]
    partition.producers.forget_silent(1 << 50)
    assert [one.producer_id for one in partition.producers.all()] == [1]
    assert partition.append(sequenced(40)) == 3


def test_a_stop_on_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    partition: Partition = open_partition(tmp_path, **SMALL)
    partition.append(sequenced(0))
    monkeypatch.setattr("penstock_broker.segment.os.replace", full)
    fill(partition, 5)  # segments begin without the files of their predecessors
    partition.close()
    monkeypatch.undo()
    assert not [*tmp_path.glob("*.index"), *tmp_path.glob("*.snapshot"), *tmp_path.glob("*.tmp")]
    partition = open_partition(tmp_path, **SMALL)
    assert partition.end_offset == 7
    assert partition.append(sequenced(0)) == 0


def test_a_kill_at_any_moment_leaves_what_was_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "log"
    partition = open_partition(directory, **SMALL)
    # What each copy must have at least: where the log begins and ends.
    copies: list[tuple[Path, int, int]] = []

    def copying_first(name: str) -> None:
        real = getattr(os, name)

        def copy_and_call(*args: object, **settings: object) -> object:
            monkeypatch.setattr(os, name, real)
            copy = shutil.copytree(directory, tmp_path / str(len(copies)))
            copies.append((copy, partition.start_offset, partition.end_offset))
            monkeypatch.setattr(os, name, copy_and_call)
            return real(*args, **settings)

        monkeypatch.setattr(os, name, copy_and_call)

    partition.append(sequenced(0))
    for name in ("open", "pwrite", "replace", "unlink"):
        copying_first(name)
    for number in range(1, 8):
        partition.append(sequenced(2 * number))
        if number % 3 == 0:
            partition.delete_records(2 * number - 1)
    partition.close()
    monkeypatch.undo()
    assert len(copies) > 30
    for copy, start, end in copies:
        again = open_partition(copy, **SMALL)
        assert (again.end_offset, again.start_offset >= start) == (end, True)
        offsets_of(again, again.start_offset)
        assert again.append(sequenced(end - 2)) == end - 2
        assert again.append(sequenced(end)) == end
        again.close()
