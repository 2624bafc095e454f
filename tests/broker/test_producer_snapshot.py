"""The snapshots of a partition's producers: their files, and the one that counts at a start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock_broker.batch import read_header
from penstock_broker.producer_snapshot import ProducerSnapshots, newest_snapshot
from penstock_broker.producer_state import ProducerState
from tests.support.record_batches import BatchRecord, encode_batch


def state_of(*producers: int) -> ProducerState:
    state = ProducerState()
    for producer in producers:
        batch = encode_batch([BatchRecord(5, None, b"v")], producer_id=producer, producer_epoch=2, base_sequence=0)
        state.note(read_header(bytes(batch)), None)
    return state


def names_in(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def written(directory: Path) -> None:
    """Write three snapshots, of which the first is removed."""
    snapshots = ProducerSnapshots(directory, "topic-0")
    for offset in (10, 20, 30):
        snapshots.write(offset, state_of(*range(offset)))


def test_the_last_two_snapshots_are_kept_and_the_last_counts(tmp_path: Path) -> None:
    written(tmp_path)
    assert names_in(tmp_path) == [20, 30]
    again = ProducerSnapshots(tmp_path, "topic-0")
    assert again.read_last(30).dump() == state_of(*range(30)).dump()
    assert again.offset == 30


def test_a_snapshot_beyond_the_end_of_the_log_is_removed(tmp_path: Path) -> None:
    written(tmp_path)
    again = ProducerSnapshots(tmp_path, "topic-0")
    assert len(again.read_last(29).all()) == 20
    assert (again.offset, names_in(tmp_path)) == (20, [20])


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"\0\0\0\1{}", None])
def test_a_damaged_snapshot_gives_way_to_the_one_before(tmp_path: Path, content: bytes | None) -> None:
    written(tmp_path)
    path = tmp_path / f"{30:020d}.snapshot"
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    assert len(ProducerSnapshots(tmp_path, "topic-0").read_last(30).all()) == 20
    assert names_in(tmp_path) == [20, 30]


def test_a_snapshot_that_exists_is_not_written_again(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(tmp_path, "topic-0")
    snapshots.write(0, state_of(1))  # of an empty log
    assert names_in(tmp_path) == []
    snapshots.write(10, state_of(1))
    before = os.stat(tmp_path / f"{10:020d}.snapshot").st_ino
    snapshots.write(10, state_of(1, 2))
    assert os.stat(tmp_path / f"{10:020d}.snapshot").st_ino == before


def test_a_failed_write_is_reported_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    snapshots = ProducerSnapshots(tmp_path / "missing", "topic-0")
    snapshots.write(10, state_of(1))
    assert "topic-0: cannot write the state of producers; a start will read more" in caplog.text
    assert snapshots.offset == 0
    (tmp_path / "missing").mkdir()
    snapshots.write(10, state_of(1))
    assert snapshots.offset == 10


def test_the_newest_snapshot_is_that_of_the_largest_offset() -> None:
    assert newest_snapshot([]) == newest_snapshot(["checkpoint", f"{90:020d}.log"]) == 0
    assert newest_snapshot([f"{offset:020d}.snapshot" for offset in (7, 100, 20)]) == 100
