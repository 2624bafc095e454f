"""A base is rebuilt from its segments in their order, with progress reports and few files ahead."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from penstock.errors import TaskCorruptedError
from penstock.state.memory import MemoryBase
from penstock.state.restoring import FILES_AHEAD, changes_of
from penstock.state.segments import SegmentHeader, SegmentInfo, encode


def commits(count: int) -> dict[SegmentInfo, bytes]:
    """Return segments that each write their own key and a common one."""
    written: dict[SegmentInfo, bytes] = {}
    head: bytes | None = None
    for number in range(count):
        changes = {"s": {b"all": b"%d" % number, b"key %d" % number: b"here"}}
        ((info, data),) = encode(SegmentHeader(head, (("s", "key_value"),)), changes)
        written[info] = data
        head = info.last
    return written


def test_a_base_is_rebuilt_in_order_and_the_progress_reported() -> None:
    files = commits(20)
    told: list[Mapping[str, int]] = []
    base = MemoryBase()
    base.rebuild(lambda: changes_of(list(files), files.__getitem__, told.append), b"stamp")
    content = dict(base.view("s").range(None, None, False))
    assert content == {b"all": b"19", **{b"key %d" % number: b"here" for number in range(20)}}
    assert told == [{"s": 2}] * 20


def test_no_more_files_are_read_than_a_few_ahead() -> None:
    files = commits(FILES_AHEAD + 5)
    lock = threading.Lock()
    read: list[SegmentInfo] = []

    def file(info: SegmentInfo) -> bytes:
        with lock:
            read.append(info)
        return files[info]

    changes = changes_of(list(files), file)
    next(changes)
    with lock:
        assert len(read) <= FILES_AHEAD + 1
    changes.close()  # type: ignore[attr-defined]  # it is a generator


def test_an_error_of_a_file_ends_the_rebuild() -> None:
    files = commits(10)
    missing = list(files)[6]

    def file(info: SegmentInfo) -> bytes:
        if info == missing:
            raise TaskCorruptedError("a file is missing")
        return files[info]

    restored: list[Mapping[str, int]] = []
    with pytest.raises(TaskCorruptedError, match="a file is missing"):
        list(changes_of(list(files), file, restored.append))
    assert len(restored) == 6
