"""Commits to the entries of a base."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import CorruptedBaseError
from penstock.state.lmdb import LmdbBase


def test_lmdb_measures_the_bytes_of_its_entries(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path / "base")
    assert base.measured() == {}
    base.apply({"s": {b"%d" % number: b"v" * 100 for number in range(1_000)}}, b"one")
    assert 100_000 < base.measured()["state-size"].total < 1_000_000
    base.close()


def test_entries_are_counted_store_by_store(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path / "base")
    long = b"k" * 600
    base.apply({"s": {b"a": b"1", long: b"2"}, "t": {b"a": b"3"}, "empty": {}}, b"one")
    base.apply({"s": {b"a": b"again", long: b"again", b"absent": None}, "t": {b"a": None}}, b"two")
    assert [base.view(name).approximate_num_entries() for name in ("s", "t", "empty", "new")] == [2, 0, 0, 0]
    numbers = [base.number(name) for name in ("s", "t", "empty")]
    assert len({*numbers}) == 3
    assert base.number("new") is None
    base.clear()
    assert [base.number(name) for name in ("s", "t")] == [None, None]
    base.close()


def test_damage_marks_the_base_and_names_it(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path / "base")
    assert not base.is_damaged
    error = base.corrupted(ValueError("a page is missing"))
    assert isinstance(error, CorruptedBaseError)
    assert (base.is_damaged, error.path) == (True, str(tmp_path / "base"))
    base.close()
