"""The file with the start offset and the compacted part of a log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log_checkpoint import CHECKPOINT, Checkpoint
from penstock_broker.topic_config import log_config

OFFSETS = st.integers(0, 2**63 - 1)


@given(start=OFFSETS, dirty=OFFSETS)
def test_a_checkpoint_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, start: int, dirty: int
) -> None:
    directory = tmp_path_factory.getbasetemp()
    Checkpoint(start, dirty).write(directory)
    assert Checkpoint.read(directory, "topic-0") == (start, dirty)


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_every_damaged_byte_makes_it_count_as_missing_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Checkpoint(5, 7).write(tmp_path)
    content = (tmp_path / CHECKPOINT).read_bytes()
    for at in range(content.index(b"\n")):
        (tmp_path / CHECKPOINT).write_bytes(damaged(content, at))
        assert Checkpoint.read(tmp_path, "topic-0") == (0, 0)
    assert f"topic-0: cannot read {tmp_path / CHECKPOINT}, so records that were deleted may be back" in caplog.text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"log_start_offset": 5, "first_dirty_offset": 7}', (5, 7)),  # older versions wrote no checksum
        (b'{"log_start_offset": 5}', (5, 0)),
        (b'{"other": 5}', (0, 0)),
        (b"[1, 2]", (0, 0)),
        (b"", (0, 0)),
        (b"\0" * 50, (0, 0)),
    ],
)
def test_other_contents_are_read_or_count_as_missing(tmp_path: Path, content: bytes, expected: tuple[int, int]) -> None:
    (tmp_path / CHECKPOINT).write_bytes(content)
    assert Checkpoint.read(tmp_path, "topic-0") == expected


def test_a_file_that_cannot_be_read_is_no_damaged_one(tmp_path: Path) -> None:
    os.mkdir(tmp_path / CHECKPOINT)
    with pytest.raises(OSError, match="directory"):
        Checkpoint.read(tmp_path, "topic-0")


def test_a_log_may_have_gaps_once_it_was_compacted() -> None:
    assert Checkpoint().may_have_gaps(log_config({"cleanup.policy": "compact,delete"}))
    assert not Checkpoint(log_start_offset=9).may_have_gaps(log_config({}))
    assert Checkpoint(first_dirty_offset=1).may_have_gaps(log_config({}))
