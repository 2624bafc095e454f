"""The headers in the file of a segment, in order up to damage, and after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.batch import assign_offset, check_intact, read_header
from penstock_broker.segment_scan import scan, scan_damaged
from tests.support.record_batches import BatchRecord, encode_batch


def batch(base_offset: int, count: int = 2) -> bytes:
    made = encode_batch([BatchRecord(0, b"k", b"value")] * count)
    assign_offset(memoryview(made), base_offset, leader_epoch=3)
    return bytes(made)


def offsets_in(path: Path, content: bytes, first_offset: int = 0, **settings: object) -> list[int]:
    path.write_bytes(content)
    found = scan(path, len(content), first_offset, check_intact, **settings)  # type: ignore[arg-type]  # of a test
    return [header.base_offset for header in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0.log"


def test_an_empty_file_has_no_batch(path: Path) -> None:
    assert offsets_in(path, b"") == []


@given(cut=st.integers(0, 4 * len(batch(0))))
def test_whole_batches_are_found_up_to_the_first_torn_one(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    content = b"".join(batch(offset) for offset in (0, 2, 4, 6))[:cut]
    found = offsets_in(tmp_path_factory.getbasetemp() / "cut.log", content)
    assert found == [0, 2, 4, 6][: cut // len(batch(0))]


def test_offsets_rise_and_have_gaps_only_after_a_compaction(path: Path) -> None:
    with_gap = batch(0) + batch(5) + batch(7)
    assert offsets_in(path, with_gap) == [0, 5, 7]
    assert offsets_in(path, with_gap, is_gapless=True) == [0]
    assert offsets_in(path, batch(0) + batch(2) + batch(1)) == [0, 2]
    assert offsets_in(path, batch(0) + batch(2), first_offset=1) == []


def test_a_batch_beyond_the_next_segment_ends_the_scan(path: Path) -> None:
    content = batch(0) + batch(2) + batch(4)
    assert offsets_in(path, content, end_offset=4) == [0, 2]
    assert offsets_in(path, content, end_offset=3) == [0]


def test_only_a_scan_that_checks_finds_a_wrong_checksum(path: Path) -> None:
    content = batch(0) + batch(2)[:-1] + b"x"
    assert offsets_in(path, content) == [0]
    assert [header.base_offset for header in scan(path, len(content), 0, read_header)] == [0, 2]


def test_batches_after_damage_are_found_at_any_position(path: Path) -> None:
    path.write_bytes(batch(0) + b"\0\0\0\0\2 no batch" + batch(2)[:-4] + batch(4) + b"." + batch(9) + batch(1))
    assert [header.base_offset for header in scan_damaged(path, 1, 0)] == [4, 9, 1]
    assert [header.base_offset for header in scan_damaged(path, 0, 2)] == [4, 9]
