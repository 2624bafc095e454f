"""Rows of two versions are counted by key and time, whatever their order, in bounded memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.shadow.comparison import Counts
from penstock.shadow.content import Content, ContentRow, Pair, PartContent, Side

KEYS = st.none() | st.sampled_from([b"", b"a", b"b"])
VALUES = st.none() | st.sampled_from([b"", b"1", b"2"])
ROWS = st.lists(st.builds(ContentRow, KEYS, st.integers(0, 2), VALUES, st.sampled_from([b"", b"h"])), max_size=12)


def compared(directory: Path, old: list[ContentRow], new: list[ContentRow], limit: int = 10) -> PartContent:
    path = directory / "content.sqlite"
    path.unlink(missing_ok=True)
    content = Content(path)
    content.add("part", Side.OLD, old)
    content.add("part", Side.NEW, new)
    try:
        return content.compared("part", limit)
    finally:
        content.close()


def row(key: bytes | None, timestamp: int, value: bytes | None, extra: bytes = b"") -> ContentRow:
    return ContentRow(key, timestamp, value, extra)


def test_a_different_value_is_paired_with_its_counterpart(tmp_path: Path) -> None:
    old, new = [row(b"a", 1, b"1"), row(b"b", 1, b"1")], [row(b"b", 1, b"1"), row(b"a", 1, b"2")]
    found = compared(tmp_path, old, new)
    assert found.counts == Counts(equal=1, different=1)
    assert found.examples == (Pair(old[0], new[1]),)
    assert found.other_final_values == 1


def test_another_time_is_another_record_and_may_have_the_same_final_value(tmp_path: Path) -> None:
    found = compared(tmp_path, [row(b"a", 1, b"1")], [row(b"a", 2, b"1")])
    assert found.counts == Counts(only_old=1, only_new=1)
    assert found.other_final_values == 0
    assert found.examples == (Pair(row(b"a", 1, b"1"), None), Pair(None, row(b"a", 2, b"1")))


def test_a_deleted_key_equals_one_that_was_never_written(tmp_path: Path) -> None:
    found = compared(tmp_path, [row(b"a", 1, b"1"), row(b"a", 2, None)], [])
    assert found.counts == Counts(only_old=2)
    assert found.other_final_values == 0


def test_the_order_of_writes_decides_on_final_values(tmp_path: Path) -> None:
    rows = [row(b"a", 1, b"1"), row(b"a", 1, b"2")]
    found = compared(tmp_path, rows, rows[::-1])
    assert found.counts == Counts(equal=2)
    assert found.other_final_values == 1


@pytest.mark.parametrize(
    ("old", "new"), [((b"", None), (b"", b"")), ((b"h", b""), (b"", b"h")), ((b"h", b"1"), (b"", b"1"))]
)
def test_each_part_of_a_content_counts(
    tmp_path: Path, old: tuple[bytes, bytes | None], new: tuple[bytes, bytes | None]
) -> None:
    found = compared(tmp_path, [row(b"a", 1, old[1], old[0])], [row(b"a", 1, new[1], new[0])])
    assert found.counts == Counts(different=1)


def test_differences_of_one_time_are_paired_in_the_order_of_writes(tmp_path: Path) -> None:
    old, new = ([row(b"a", 1, b"%d" % number) for number in numbers] for numbers in (range(20), range(20, 40)))
    assert compared(tmp_path, old, new, limit=20).examples == tuple(map(Pair, old, new))


def test_examples_are_limited_and_counts_are_not(tmp_path: Path) -> None:
    found = compared(tmp_path, [row(None, 1, b"%d" % number) for number in range(1_000)], [], limit=3)
    assert found.counts == Counts(only_old=1_000)
    assert len(found.examples) == 3


@given(ROWS, ROWS)
def test_counts_are_those_of_multisets(
    tmp_path_factory: pytest.TempPathFactory, old: list[ContentRow], new: list[ContentRow]
) -> None:
    found = compared(tmp_path_factory.getbasetemp(), old, new, limit=100)
    before, after = Counter(old), Counter(new)
    assert found.counts.equal == (before & after).total()
    left, added = (
        Counter(each[:2] for each in (before - after).elements()),
        Counter(each[:2] for each in (after - before).elements()),
    )
    assert found.counts.different == (left & added).total()
    assert found.counts.only_old == (left - added).total()
    assert found.counts.only_new == (added - left).total()
    assert len(found.examples) == (left | added).total()
    assert Counter(pair.old for pair in found.examples if pair.old) == before - after
    assert Counter(pair.new for pair in found.examples if pair.new) == after - before
