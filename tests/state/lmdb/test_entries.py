"""Commits to the entries of a base."""

from __future__ import annotations

from pathlib import Path

from penstock.state.lmdb import LmdbBase


def test_lmdb_measures_the_bytes_of_its_entries(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path / "base")
    assert base.measured() == {}
    base.apply({"s": {b"%d" % number: b"v" * 100 for number in range(1_000)}}, b"one")
    assert 100_000 < base.measured()["state-size"].total < 1_000_000
    base.close()
