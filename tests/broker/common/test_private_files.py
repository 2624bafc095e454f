"""Directories and files that only one user can access."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock_broker.common.private_files import UnsafePathError, open_private, private_directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_missing_parents_are_private_and_existing_ones_keep_their_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    made = private_directory(tmp_path / "a" / "b")
    assert [mode(path) for path in (made, made.parent, tmp_path)] == [0o700, 0o700, 0o755]
    (tmp_path / "own").mkdir(mode=0o750)
    assert mode(private_directory(tmp_path / "own")) == 0o700


def test_a_file_is_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_private(tmp_path / "file", "wb") as file:
            file.write(b"secret")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o600
    with open_private(tmp_path / "file", "rb") as file:
        assert file.read() == b"secret"


@pytest.mark.parametrize("kind", ["link", "file", "in a file"])
def test_a_path_that_is_no_directory_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "path"
    if kind == "link":
        path.symlink_to(tmp_path)
    else:
        path.write_bytes(b"")
    wanted = path / "below" if kind == "in a file" else path
    with pytest.raises(UnsafePathError, match=rf"The directory {wanted} cannot be used: .*not a link, and writable"):
        private_directory(wanted)


def test_a_file_that_is_a_link_is_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for how in ("rb", "wb", "ab"):
        with pytest.raises(UnsafePathError, match="link is a link, and Penstock does not follow links"):
            open_private(tmp_path / "link", how)
    assert (tmp_path / "file").read_bytes() == b"precious"


@pytest.mark.parametrize(("owner", "bits", "is_used"), [(0, 0o755, True), (0, 0o777, False), (4321, 0o755, False)])
def test_of_other_users_only_a_directory_of_root_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, bits: int, is_used: bool
) -> None:
    if os.getuid():
        pytest.skip("only root can give a directory away")
    path = tmp_path / "theirs"
    path.mkdir()
    path.chmod(bits)
    os.chown(path, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    if is_used:
        assert mode(private_directory(path)) == bits
    else:
        with pytest.raises(UnsafePathError, match=rf"belongs to another user \(id {owner}, mode {bits:o}\).*user 1234"):
            private_directory(path)
