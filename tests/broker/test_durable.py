"""Files that are replaced as a whole, and the order of the steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock_broker.durable import sync_path, write_atomically, write_durably

Write = Callable[[Path, bytes], None]
WRITES = pytest.mark.parametrize("write", [write_durably, write_atomically])


@WRITES
def test_a_file_is_replaced_as_a_whole_and_private(tmp_path: Path, write: Write) -> None:
    for content in (b"a longer content", b"short", b""):
        write(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]


@WRITES
@pytest.mark.parametrize("step", ["replace", "fdopen"])
def test_a_write_that_fails_leaves_the_previous_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, step: str
) -> None:
    def fails(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    write(tmp_path / "file", b"before")
    monkeypatch.setattr(os, step, fails)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("write", "expected"), [(write_durably, ["sync 5", "replace"]), (write_atomically, ["replace"])]
)
def test_a_durable_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, expected: list[str]
) -> None:
    steps: list[str] = []
    replace = os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append(f"sync {os.fstat(descriptor).st_size}"))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("replace"), replace(*paths)))
    write(tmp_path / "file", b"12345")
    assert steps == expected


def test_directories_are_synced_and_links_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    sync_path(tmp_path)
    assert synced == [tmp_path.stat().st_ino]
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match="link"):
        sync_path(tmp_path / "link")
