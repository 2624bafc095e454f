"""Snapshots of a base."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidStateStoreError
from penstock.state.lmdb import LmdbBase, snapshot_of
from tests.support.bases import GROW, SMALL_MAP, run


def test_a_snapshot_stays_as_it_was(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path)
    base.apply({"s": {b"a": b"1"}}, b"one")
    snapshot = base.snapshot()
    base.apply({"s": {b"a": None, b"b": b"2"}}, b"two")
    assert (snapshot.stamp(), list(snapshot.view("s").range(None, None, False))) == (b"one", [(b"a", b"1")])
    assert list(base.view("s").range(None, None, False)) == [(b"b", b"2")]
    snapshot.close()
    snapshot.close()
    base.close()


def test_a_snapshot_that_is_let_go_keeps_no_pages(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path)
    for number in range(200):
        base.apply({"s": {b"a": bytes(100_000)}}, b"%d" % number)
        assert base.snapshot().view("s").get(b"a") == bytes(100_000)
    base.close()
    assert (tmp_path / "data.mdb").stat().st_size < 2_000_000  # each commit writes 100 kB


def test_a_snapshot_ends_when_the_map_moves_or_the_base_is_closed(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path, SMALL_MAP)
    base.apply({"s": {b"a": b"1"}}, b"one")
    ended = base.snapshot()
    entries = ended.view("s").range(None, None, False)
    base.apply({"s": {number.to_bytes(4, "big"): bytes(4096) for number in range(500)}}, b"two")  # grows the map
    with pytest.raises(InvalidStateStoreError):
        next(entries)
    assert base.stamp() == b"two"
    last = base.snapshot()
    base.close()
    with pytest.raises(InvalidStateStoreError):
        last.stamp()


def test_a_snapshot_of_a_base_of_another_process_stays_while_that_writes(tmp_path: Path) -> None:
    path = tmp_path / "base"
    assert snapshot_of(path) is None
    base = LmdbBase(path, SMALL_MAP)
    base.apply({"s": {b"a": b"1"}}, b"one")
    base.close()
    before = snapshot_of(path)
    assert before is not None
    done = run(GROW, path, "two")
    assert done.stdout.split() == ["two"], done.stderr
    assert (before.stamp(), list(before.view("s").range(None, None, False))) == (b"one", [(b"a", b"1")])
    before.close()
    after = snapshot_of(path)
    assert after is not None
    assert (after.stamp(), after.view("s").approximate_num_entries()) == (b"two", 2001)
    after.close()
    base = LmdbBase(path)  # nothing of the snapshots is left open
    assert base.stamp() == b"two"
    base.close()
