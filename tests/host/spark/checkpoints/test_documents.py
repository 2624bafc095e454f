"""Small files of a checkpoint: whatever happens to one, it is read as it was written or an error names it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import IncompatibleCheckpointError, TaskCorruptedError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.documents import unsealed
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.storage.sealed_files import is_sealed, sealed


@given(st.binary(max_size=300), st.data())
def test_a_changed_file_is_noticed(content: bytes, data: st.DataObject) -> None:
    whole = sealed(content)
    assert unsealed(whole, "a/file") == content
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for each in (bytes(flipped), cut, whole + b"x", cut + bytes(len(whole) - len(cut))):
        if each != whole:
            with pytest.raises(TaskCorruptedError, match="The checkpoint file a/file cannot be used"):
                unsealed(each, "a/file")


@given(st.binary(max_size=300))
def test_a_file_that_was_sealed_looks_like_one(content: bytes) -> None:
    assert is_sealed(sealed(content))


def test_no_flipped_bit_of_a_small_file_is_read_as_other_content(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    manifest = Manifest("q", 7, 2, 100, 150, {"0_1": TaskEntry("ab", due_ms=99)}, {"t": [1, 2]})
    metadata = Metadata("c", "q", "app", {"t": [0]}, (2, 2), 2, {"nodes": {}}, "digest", start_epoch=3)
    checkpoint.write_manifest(manifest, lambda: None)
    checkpoint.write_metadata(metadata)
    checkpoint.write_description("digest", b"the program")
    checkpoint.write_offset(8, 5, {"epoch": 8})
    checkpoint.write_savepoint({"epoch": 7})
    reads = {
        "metadata": (checkpoint.read_metadata, metadata),
        "manifests/000000000007": (lambda: checkpoint.read_manifest(7, "q"), manifest),
        "plans/digest": (lambda: checkpoint.read_description(metadata), b"the program"),
        "offsets/000000000008.0000000000000000005": (lambda: checkpoint.read_offset(8), {"epoch": 8}),
        "savepoint": (checkpoint.read_savepoint, {"epoch": 7}),
    }
    for name, (read, expected) in reads.items():
        path = tmp_path / name
        whole = path.read_bytes()
        assert read() == expected
        for bit in random.Random(1).sample(range(8 * len(whole)), 200):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            with pytest.raises((TaskCorruptedError, IncompatibleCheckpointError), match=name):
                read()
        path.write_bytes(whole)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b'{"format": 3}', b'{"format": 2}', b"\xff\x00"])
def test_content_of_another_kind_is_an_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    (tmp_path / "manifests").mkdir()
    for name, read in (
        ("metadata", checkpoint.read_metadata),
        ("manifests/000000000007", lambda: checkpoint.read_manifest(7, "q")),
    ):
        for data in (content, sealed(content)):
            (tmp_path / name).write_bytes(data)
            with pytest.raises((TaskCorruptedError, IncompatibleCheckpointError), match=name):
                read()
