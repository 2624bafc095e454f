"""When a log is due for a compaction, and its cleanable part."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.dirtiness import Dirtiness, first_uncleanable_offset
from tests.broker.test_cleaner import clean, compacted, records_of, write


def test_what_is_too_young_or_must_not_wait(tmp_path: Path) -> None:
    young = compacted(tmp_path / "young", min_compaction_lag_ms=100)
    for _ in range(4):
        write(young, (b"a", b"1" * 100))
    assert not young.dirtiness(109).is_due
    assert young.dirtiness(110).is_due
    clean(young, now=109)
    assert len(records_of(young)) == 4
    late = compacted(tmp_path / "late", min_cleanable_dirty_ratio=1, max_compaction_lag_ms=100)
    for _ in range(4):
        write(late, (b"a", b"1" * 100))
    assert not late.dirtiness(110).is_due
    assert late.dirtiness(111).is_due


def test_the_share_that_must_be_dirty(tmp_path: Path) -> None:
    partition = compacted(tmp_path, min_cleanable_dirty_ratio=0.5)
    for number in range(5):
        write(partition, (b"%d" % number, b"1" * 100))
    clean(partition)
    write(partition, (b"a", b"1" * 100))
    assert partition.dirtiness(0).ratio == pytest.approx(0.2)
    assert not partition.dirtiness(0).is_due


def test_an_active_segment_alone_is_never_due(tmp_path: Path) -> None:
    partition = compacted(tmp_path, min_cleanable_dirty_ratio=0, segment_bytes=1 << 20)
    write(partition, (b"a", b"1"), (b"a", b"2"))
    assert partition.dirtiness(1 << 50) == Dirtiness(0.0, is_due=False)


def test_segments_from_an_open_transaction_on_are_not_cleanable(tmp_path: Path) -> None:
    partition = compacted(tmp_path)
    for number in range(5):
        write(partition, (b"%d" % number, b"1" * 100))
    starts = [segment.base_offset for segment in partition.log.segments.all]
    for stable in range(partition.end_offset + 1):
        expected = max(start for start in starts if start <= stable)
        assert first_uncleanable_offset(partition.log, stable, now=0) == expected
