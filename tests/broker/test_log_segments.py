"""The segments of a log in order, and the files that leave it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log_segments import LogSegments
from penstock_broker.segment import CLEANED_SUFFIX, DELETED_SUFFIX, Segment
from tests.broker.test_segment import append


def make(directory: Path, *offsets: int) -> LogSegments:
    """Return segments of one record each, which begin at these offsets."""
    found = [Segment(directory, offset, 0) for offset in offsets]
    for segment in found:
        segment.create()
        append(segment, segment.base_offset, 5)
    return LogSegments(found, "topic-0")


def starts(segments: LogSegments) -> list[int]:
    return [segment.base_offset for segment in segments.all]


def set_aside(directory: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in directory.glob(f"*{DELETED_SUFFIX}"))


@given(st.sets(st.integers(1, 30)), st.integers(0, 32))
def test_segments_are_found_by_an_offset(offsets: set[int], offset: int) -> None:
    ordered = [0, *sorted(offsets)]
    segments = LogSegments([Segment(Path("unused"), each, 0) for each in ordered], "topic-0")
    expected = max(each for each in ordered if each <= offset)
    assert [each.base_offset for each in segments.reaching(offset)] == ordered[ordered.index(expected) :]
    assert [each.base_offset for each in segments.before(offset)] == [each for each in ordered[:-1] if each < offset]
    assert segments.active.base_offset == ordered[-1]


def test_files_that_left_the_log_are_removed_when_their_time_has_come(tmp_path: Path) -> None:
    segments = make(tmp_path, 0, 1, 2, 3)
    segments.set_aside_first(1, removed_ms=100)
    segments.set_aside_first(2, removed_ms=200)
    assert (starts(segments), set_aside(tmp_path)) == ([3], [0, 1, 2])
    for now, left in ((99, [0, 1, 2]), (100, [1, 2]), (200, [])):
        segments.remove_files_set_aside(now)
        assert set_aside(tmp_path) == left


def test_a_file_that_is_gone_does_not_keep_the_others(tmp_path: Path) -> None:
    segments = make(tmp_path, 0, 1, 2)
    segments.set_aside_first(2, removed_ms=0)
    next(tmp_path.glob(f"*{DELETED_SUFFIX}")).unlink()
    segments.remove_files_set_aside(0)
    assert set_aside(tmp_path) == []


def test_a_cleaned_segment_takes_the_place_of_several(tmp_path: Path) -> None:
    segments = make(tmp_path, 0, 1, 2, 3)
    old = segments.all[1:3]
    os.utime(old[-1].path, ns=(7_000_000, 7_000_000))
    cleaned = Segment(tmp_path, 1, 0, CLEANED_SUFFIX)
    cleaned.create()
    append(cleaned, 2, 5)
    segments.replace(old, cleaned, removed_ms=50)
    assert (starts(segments), set_aside(tmp_path)) == ([0, 1, 3], [2])
    assert (cleaned.path.name, cleaned.followed_by) == (f"{1:020d}.log", 3)
    assert cleaned.largest_timestamp() == 5
    assert cleaned.path.stat().st_mtime_ns == 7_000_000
    again = Segment(tmp_path, 1, 0)
    assert again.read_index() is not None
    assert again.next_offset == 3


def test_segments_that_were_deleted_meanwhile_are_not_replaced(tmp_path: Path) -> None:
    segments = make(tmp_path, 0, 1, 2)
    old = segments.all[:2]
    cleaned = Segment(tmp_path, 0, 0, CLEANED_SUFFIX)
    cleaned.create()
    segments.set_aside_first(1, removed_ms=0)
    with pytest.raises(OSError, match="segments of topic-0 were deleted while they were compacted"):
        segments.replace(old, cleaned, removed_ms=0)
    segments.remove_unfinished(cleaned)
    assert starts(segments) == [1, 2]
    assert list(tmp_path.glob(f"*{CLEANED_SUFFIX}")) == []
