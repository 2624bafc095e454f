"""One file of a log: appends, reads, its index, and its end."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.batch import InvalidBatchError, assign_offset, read_header
from penstock_broker.offset_index import NO_SEGMENT
from penstock_broker.segment import DELETED_SUFFIX, Segment
from tests.support.record_batches import BatchRecord, encode_batch

INDEX_INTERVAL = 150
"""About two batches."""


def append(segment: Segment, offset: int, *times: int, must_flush: bool = False) -> int:
    """Append a batch of one record for each time, and return its size."""
    batch = memoryview(encode_batch([BatchRecord(time, b"k", b"v") for time in times]))
    assign_offset(batch, offset, leader_epoch=0)
    segment.append(batch, read_header(batch), must_flush)
    return len(batch)


def opened(directory: Path, base_offset: int = 0) -> Segment:
    segment = Segment(directory, base_offset, INDEX_INTERVAL)
    segment.create()
    return segment


def stored(directory: Path, base_offset: int = 0) -> Segment:
    """Return the segment as the next start finds it."""
    segment = Segment(directory, base_offset, INDEX_INTERVAL)
    assert segment.read_index() is not None
    return segment


@settings(max_examples=40)
@given(
    starts=st.sets(st.integers(0, 20), min_size=1),
    offset=st.integers(0, 21),
    length=st.integers(0, 22),
    is_stored=st.booleans(),
)
def test_a_read_returns_the_batches_of_a_range_also_with_gaps(
    starts: set[int], offset: int, length: int, is_stored: bool
) -> None:
    before = offset + length
    with tempfile.TemporaryDirectory() as name:
        segment = opened(Path(name))
        for start in sorted(starts):
            append(segment, start, 0)
        if is_stored:
            segment.write_index()
            segment.close()
            segment = stored(Path(name))
        records, next_offset = segment.read(offset, 1 << 20, before)
        found = []
        while records:
            found.append(read_header(records).base_offset)
            records = records[read_header(records).size :]
        expected = [start for start in sorted(starts) if offset <= start < before]
        assert found == expected
        assert next_offset >= max(expected, default=-1) + 1
        assert [header.base_offset for header, _ in segment.batches_from(offset)] == [
            start for start in sorted(starts) if start >= offset
        ]
        segment.close()


def test_a_read_is_limited_by_bytes_but_for_its_first_batch(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    sizes = [append(segment, offset, 0) for offset in range(8)]
    for most in (1, sizes[0], 3 * sizes[0], 8 * sizes[0]):
        records, next_offset = segment.read(0, most, 8)
        assert sizes[0] <= len(records) <= max(most, sizes[0])
        assert len(records) == next_offset * sizes[0]


def test_the_facts_of_a_segment_outlive_it_in_its_index(tmp_path: Path) -> None:
    segment = opened(tmp_path, 5)
    size = append(segment, 5, 30, 20) + append(segment, 7, 90) + append(segment, 8, 10)
    segment.followed_by = 9
    segment.write_index()
    segment.close()
    again = stored(tmp_path, 5)
    assert (again.size, again.next_offset, again.followed_by) == (size, 9, 9)
    assert (again.first_timestamp, again.max_timestamp) == (30, 90)
    assert again.index_entries == segment.index_entries
    append(again, 9, 1)  # its index is obsolete from now on
    assert (again.has_index_file, again.followed_by) == (False, NO_SEGMENT)
    assert Segment(tmp_path, 5, INDEX_INTERVAL).read_index() is None


def test_an_index_of_another_size_or_with_damage_is_made_again(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    for offset in range(6):
        append(segment, offset, offset)
    segment.write_index()
    path = tmp_path / f"{0:020d}.index"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    damaged = stored(tmp_path)
    assert [header.base_offset for header, _ in damaged.batches_from(4)] == [4, 5]
    assert damaged.index_entries == segment.index_entries > 1
    os.truncate(segment.path, segment.size - 1)
    torn = Segment(tmp_path, 0, INDEX_INTERVAL)
    assert torn.read_index() is not None
    assert not torn.has_index_file


def test_a_search_by_time_skips_only_older_batches(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    times = (10, 50, 20, 30, 60, 40)
    for offset, time in enumerate(times):
        append(segment, offset, time)
    for wanted in range(70):
        found = [header.base_offset for header, _ in segment.batches_from_time(wanted)]
        assert {offset for offset, time in enumerate(times) if time >= wanted} <= set(found)
    assert next(segment.batches_from_time(55))[0].base_offset > 0


def test_a_failed_append_leaves_no_part_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = opened(tmp_path)
    size = append(segment, 0, 1)
    write = os.pwrite

    def half(descriptor: int, data: memoryview, position: int) -> int:
        if position > size:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:20], position)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(OSError, match="No space left"):
        append(segment, 1, 2)
    monkeypatch.undo()
    assert (segment.path.stat().st_size, segment.size, segment.next_offset) == (size, size, 1)


def test_damage_to_an_open_file_is_named_with_its_place(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    size = append(segment, 0, 1)
    append(segment, 1, 1)
    content = bytearray(segment.path.read_bytes())
    content[-1] ^= 1
    segment.path.write_bytes(content)
    with pytest.raises(InvalidBatchError, match=rf"0\.log is damaged at byte {size} \(offset 1\): .*checksum"):
        list(segment.batches_from(0))


def test_a_segment_that_leaves_the_log_keeps_its_records_elsewhere(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    append(segment, 0, 1)
    segment.write_index()
    content = segment.path.read_bytes()
    aside = segment.set_aside()
    assert aside.name == f"{0:020d}.log{DELETED_SUFFIX}"
    assert (aside.read_bytes(), os.listdir(tmp_path)) == (content, [aside.name])
