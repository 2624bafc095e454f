"""The sparse index of a segment: its searches, and the bytes of its file."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.offset_index import (
    NO_SEGMENT,
    SUMMARY_SIZE,
    InvalidIndexError,
    OffsetIndex,
    SegmentSummary,
    read_summary,
    unpack_summary,
)

SUMMARY = SegmentSummary(size=900, next_offset=12, first_timestamp=-1, max_timestamp=2**60, followed_by=NO_SEGMENT)
ENTRIES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 100), st.integers(0, 3)), max_size=8)


def index_of(steps: list[tuple[int, int, int]]) -> tuple[OffsetIndex, list[tuple[int, int, int]]]:
    """Return an index and its entries; a segment begins at offset 10, and the first entry is at position 0."""
    sums = accumulate(steps, lambda one, other: tuple(map(sum, zip(one, other, strict=True))), initial=(10, 0, -1))
    index, entries = OffsetIndex(), list(sums)
    for entry in entries:
        index.add(*entry)
    return index, entries


@given(ENTRIES, st.integers(0, 60), st.integers(-1, 30), st.integers(0, 900))
def test_searches_find_the_last_entry_that_is_early_enough(
    steps: list[tuple[int, int, int]], offset: int, timestamp: int, position: int
) -> None:
    index, entries = index_of(steps)
    assert index.position_of_offset(offset) == max((at for first, at, _ in entries if first <= offset), default=0)
    assert index.position_of_time(timestamp) == max((at for _, at, time in entries if time < timestamp), default=0)
    assert index.last_before(position) == max((at, first) for first, at, _ in entries if at <= position)
    assert (len(index), index.last_position) == (len(entries), entries[-1][1])


def test_an_index_without_entries_begins_at_the_start() -> None:
    index = OffsetIndex()
    assert (len(index), index.last_position) == (0, -1)
    assert (index.position_of_offset(5), index.position_of_time(5)) == (0, 0)


@given(ENTRIES)
def test_an_index_is_read_as_it_was_written(steps: list[tuple[int, int, int]]) -> None:
    index, _ = index_of(steps)
    content = index.pack(SUMMARY)
    again = OffsetIndex.unpack(content)
    assert again.pack(SUMMARY) == content
    assert [again.position_of_offset(offset) for offset in range(60)] == [
        index.position_of_offset(offset) for offset in range(60)
    ]
    assert unpack_summary(content[:SUMMARY_SIZE]) == SUMMARY


def test_every_flipped_bit_and_every_missing_byte_is_noticed() -> None:
    content = index_of([(1, 50, 2), (3, 70, 0)])[0].pack(SUMMARY)
    for at in range(len(content)):
        flipped = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
        for damaged in (flipped, content[:at]):
            with pytest.raises(InvalidIndexError, match=r"checksum|the file has \d+ bytes"):
                OffsetIndex.unpack(damaged)


def test_a_summary_that_is_missing_or_damaged_is_none(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    assert read_summary(path) is None
    content = OffsetIndex().pack(SUMMARY)
    path.write_bytes(content[: SUMMARY_SIZE - 1])
    assert read_summary(path) is None
    path.write_bytes(content + b"more")  # only the entries have damage
    assert read_summary(path) == SUMMARY
