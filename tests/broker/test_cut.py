"""The end of a segment that recovery removes, and the file that keeps its whole batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.batch import assign_offset
from penstock_broker.cut import Cut, keep_cut
from tests.support.record_batches import BatchRecord, encode_batch


def batch(base_offset: int, count: int) -> bytes:
    """Return a batch as the log has it: the broker gives it an offset and the epoch of the leader."""
    made = encode_batch([BatchRecord(0, b"k", b"v")] * count)
    assign_offset(memoryview(made), base_offset, leader_epoch=0)
    return bytes(made)


@pytest.mark.parametrize("end", [b"", b"torn", batch(4, 2)[:-1]])
def test_an_end_without_a_whole_batch_is_not_kept(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(batch(0, 4) + end)
    assert keep_cut(path, len(batch(0, 4)), 4) == Cut(len(end), None, 0, -1, -1)
    assert list(tmp_path.iterdir()) == [path]


def test_an_end_with_whole_batches_is_kept_with_its_damage(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    end = b"damaged" + batch(6, 2) + b"more" + batch(9, 3)
    path.write_bytes(batch(0, 4) + end)
    assert keep_cut(path, len(batch(0, 4)), 4) == Cut(len(end), tmp_path / "0.log.cut", 5, 6, 12)
    assert (tmp_path / "0.log.cut").read_bytes() == end
    assert (tmp_path / "0.log.cut").stat().st_mode & 0o777 == 0o600


def test_batches_before_the_end_of_the_log_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"xx" + batch(3, 1))
    assert keep_cut(path, 0, 4).path is None


def test_a_second_cut_does_not_replace_the_first(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(batch(0, 1))
    kept = [keep_cut(path, 0, 0).path for _ in range(3)]
    assert kept == [tmp_path / name for name in ("0.log.cut", "0.log.cut1", "0.log.cut2")]
