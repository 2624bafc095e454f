"""The start of a log with torn, damaged and missing files, and its messages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from penstock_broker.batch import InvalidBatchError
from penstock_broker.common.clock import MockClock
from penstock_broker.errors import BrokerError
from penstock_broker.partition import HIGH_WATERMARK, Partition
from tests.broker.test_cleaner import batches, clean, compacted, records_of, write
from tests.broker.test_log import fill, open_partition, segments_in
from tests.broker.test_partition import forget_clean_stop, offsets_of
from tests.broker.test_restart import SMALL, force_to_disk


def log_file(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


def killed_with(directory: Path, on_disk: int, count: int) -> Path:
    """Return the directory of a broker that was killed, with two batches in each segment."""
    partition = open_partition(directory / "log", **SMALL)
    fill(partition, on_disk)
    force_to_disk(partition)
    fill(partition, count - on_disk)
    return shutil.copytree(directory / "log", directory / "killed")


def flip_a_bit(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_torn_segment_that_was_closed_but_not_on_disk_ends_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = killed_with(tmp_path, on_disk=5, count=9)
    torn = log_file(directory, 4)
    torn.write_bytes(torn.read_bytes()[:-1])
    partition = open_partition(directory, **SMALL)
    assert (partition.end_offset, offsets_of(partition)) == (5, [0, 1, 2, 3, 4])
    assert f"the batch at byte 79 of {torn} is damaged" in caplog.text
    assert "3 records that are whole, from offset 6 to 8" in caplog.text
    for base_offset in (6, 8):
        kept = f"{log_file(directory, base_offset)}.cut"
        assert Path(kept).exists()
        assert kept in caplog.text
    for _ in range(2):
        fill(partition, 1)
        partition.close()
        partition = open_partition(directory, **SMALL)
    assert offsets_of(partition) == [0, 1, 2, 3, 4, 5, 6]


def test_damage_to_a_segment_that_was_on_disk_is_an_error(tmp_path: Path) -> None:
    directory = killed_with(tmp_path, on_disk=5, count=9)
    for base_offset, damage in ((0, b""), (2, b"x")):
        path = log_file(directory, base_offset)
        content = path.read_bytes()
        path.write_bytes(content + damage if damage else content[:-1])
        with pytest.raises(BrokerError, match=rf"{path} is damaged at byte .* restore the file"):
            open_partition(directory, **SMALL)
        path.write_bytes(content)
    # Half of its batches: what is left is whole, and less than what was on disk.
    log_file(directory, 0).write_bytes(content[: len(content) // 2])
    with pytest.raises(BrokerError, match="restore the file"):
        open_partition(directory, **SMALL)


def test_a_damaged_offset_does_not_cost_the_segments_that_follow(tmp_path: Path) -> None:
    directory = killed_with(tmp_path, on_disk=9, count=9)
    (directory / f"{2:020d}.index").unlink()
    flip_a_bit(log_file(directory, 2), 79 + 6)
    with pytest.raises(BrokerError, match=f"{log_file(directory, 2)} has offsets of {log_file(directory, 4)}"):
        open_partition(directory, **SMALL)
    assert segments_in(directory) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("is_indexed", [True, False])
@pytest.mark.parametrize(
    ("lost", "missing", "served"),
    [
        (0, "the records from offset 0 to 1 are missing", [2, 3, 4, 5, 6]),
        (2, "the records from offset 2 to 3 are missing", [0, 1, 4, 5, 6]),
        (6, "the records from offset 6 on are missing", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_missing_segment_is_named_at_each_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_indexed: bool, lost: int, missing: str, served: list[int]
) -> None:
    partition = open_partition(tmp_path, **SMALL)
    fill(partition, 7)
    partition.close()
    for index in tmp_path.glob("*.index") if not is_indexed else ():
        index.unlink()
    log_file(tmp_path, lost).unlink()
    for _ in range(2 if is_indexed else 1):
        caplog.clear()
        partition = open_partition(tmp_path, **SMALL)
        assert caplog.text.count("are missing") == 1
        assert f"topic-0: {missing}" in caplog.text
        assert [header.base_offset for header, _ in batches(partition, partition.start_offset)] == served
        partition.close()


def test_a_log_without_its_last_segment_says_so_after_a_kill(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = open_partition(tmp_path / "log", **SMALL)
    fill(partition, 7)
    force_to_disk(partition)
    directory = shutil.copytree(tmp_path / "log", tmp_path / "killed")
    log_file(directory, 6).unlink()
    partition = open_partition(directory, **SMALL)
    assert "topic-0: the records from offset 6 on are missing" in caplog.text
    fill(partition, 3)
    caplog.clear()
    partition.close()
    assert open_partition(directory, **SMALL).end_offset == 9
    assert caplog.text == ""


def test_a_log_without_any_file_gives_no_offset_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = open_partition(tmp_path, **SMALL)
    fill(partition, 7)
    partition.close()
    for path in tmp_path.glob("*.log"):
        path.unlink()
    partition = open_partition(tmp_path, **SMALL)
    assert (partition.start_offset, partition.end_offset) == (7, 7)
    assert "topic-0: the records from offset 0 to 6 are missing" in caplog.text


def test_what_retention_and_clients_delete_is_not_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    configs = SMALL | {"retention_ms": 1}
    partition = open_partition(tmp_path, MockClock(1 << 40), **configs)
    fill(partition, 7)
    partition.delete_old_segments(4)
    assert segments_in(tmp_path) == [2, 4, 6]
    partition.close()
    partition = open_partition(tmp_path, MockClock(1 << 40), **configs)
    partition.delete_old_segments(1 << 40)
    partition.close()
    partition = open_partition(tmp_path, **SMALL)
    fill(partition, 1)
    partition.delete_records(HIGH_WATERMARK)
    partition.close()
    assert open_partition(tmp_path, **SMALL).start_offset == 8
    assert caplog.text == ""


def test_a_segment_that_ends_after_a_clean_stop_leaves_nothing_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        partition = open_partition(tmp_path, **SMALL)
        fill(partition, 2)
        partition.close()
    assert segments_in(tmp_path) == [0, 2, 4]
    assert not caplog.text


def test_gaps_of_a_compaction_are_not_missing_and_a_lost_segment_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition: Partition = compacted(tmp_path)
    for number in range(8):
        write(partition, (b"%d" % (number % 2), b"v" * 80), (b"%d" % (number % 3), b"v" * 80))
    clean(partition)
    partition.close()
    kept = records_of(compacted(tmp_path))
    bases = segments_in(tmp_path)
    assert [offset for offset, _, _ in kept] != list(range(16))
    assert (caplog.text, len(bases) > 2) == ("", True)
    log_file(tmp_path, bases[1]).unlink()
    compacted(tmp_path)
    assert f"topic-0: the records from offset {bases[1]} to {bases[2] - 1} are missing" in caplog.text


def test_a_compacted_log_without_indexes_is_recovered_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition: Partition = compacted(tmp_path)
    for number in range(8):
        write(partition, (b"%d" % (number % 2), b"v" * 80), (b"%d" % (number % 3), b"v" * 80))
    clean(partition)
    kept = records_of(partition)
    partition.close()
    forget_clean_stop(tmp_path)
    assert records_of(compacted(tmp_path)) == kept
    assert caplog.text == ""


def test_the_log_begins_where_clients_have_deleted_to_after_a_loss_of_power(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    fill(partition, 4)
    partition.delete_records(HIGH_WATERMARK)
    forget_clean_stop(tmp_path)
    path = log_file(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-1])
    for end in (4, 5):
        partition = open_partition(tmp_path)
        assert (partition.start_offset, partition.end_offset) == (4, end)
        fill(partition, 1)
        partition.close()


def test_what_could_not_be_forced_to_disk_is_verified_with_all_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    partition = open_partition(tmp_path, **SMALL)
    fill(partition, 5)
    monkeypatch.setattr(os, "fsync", fails)
    first, *_ = partition.log.flusher.closed_unflushed()
    with pytest.raises(OSError, match="Input/output error"):
        first.force_to_disk()
    partition.log.flusher.note_flushed(first)
    monkeypatch.undo()
    fill(partition, 4)
    assert not partition.log.flusher.closed_unflushed()
    partition.close()
    flip_a_bit(log_file(tmp_path, 2), -1)
    assert offsets_of(open_partition(tmp_path, **SMALL)) == [0, 1, 2]


def test_a_stop_forces_everything_to_disk_before_the_marks_of_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path, **SMALL)
    fill(partition, 5)
    forced: dict[int, int] = {}

    def noted(descriptor: int) -> None:
        forced[os.fstat(descriptor).st_ino] = len(list(tmp_path.glob("*.index")))

    monkeypatch.setattr(os, "fsync", noted)
    partition.close()
    # Each before its own index is there.
    assert [forced[log_file(tmp_path, base).stat().st_ino] for base in (0, 2, 4)] == [0, 1, 2]
    assert len(list(tmp_path.glob("*.index"))) == 3


def test_a_compaction_gives_a_damaged_batch_no_new_checksum(tmp_path: Path) -> None:
    partition: Partition = compacted(tmp_path)
    for number in range(4):
        write(partition, (b"key", b"%d" % number * 80))
    partition.close()
    path = log_file(tmp_path, 0)
    flip_a_bit(path, -1)
    before = path.read_bytes()
    partition = compacted(tmp_path)
    with pytest.raises(InvalidBatchError, match=rf"{path} is damaged at byte 0 .*checksum"):
        clean(partition)
    assert path.read_bytes() == before


def test_segments_that_a_start_discards_are_not_forced_to_disk(tmp_path: Path) -> None:
    killed = killed_with(tmp_path, on_disk=0, count=5)
    partition = open_partition(tmp_path / "log", **SMALL)
    partition.delete_records(HIGH_WATERMARK)
    shutil.copy(tmp_path / "log" / "checkpoint", killed)
    log_file(killed, 4).unlink()  # a loss of power took it
    partition = open_partition(killed, **SMALL)
    assert (partition.start_offset, partition.end_offset) == (5, 5)
    fill(partition, 1)
    partition.force()
    assert offsets_of(partition, 5) == [5]
