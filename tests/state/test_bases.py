"""Every base: commits, rebuilds, ranges and closing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.errors import InvalidStateStoreError, TaskCorruptedError
from penstock.state.api import Base
from penstock.state.lmdb import LmdbBase, SharedLmdb
from penstock.state.memory import MemoryBase
from penstock.state.rocksdb import RocksDBBase
from tests.support.bases import SMALL_MAP, entries


@pytest.fixture(params=["memory", "lmdb", "shared lmdb", "rocksdb"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made: Base
    with ExitStack() as opened:
        match request.param:
            case "memory":
                made = MemoryBase()
            case "lmdb":
                made = LmdbBase(tmp_path / "base", SMALL_MAP)
            case "shared lmdb":
                shared = SharedLmdb(tmp_path / "base")
                opened.callback(shared.close)
                made = shared.base("0_1")
            case _:
                made = RocksDBBase(tmp_path / "base")
        yield made
        made.close()


def test_a_commit_is_applied_with_its_stamp(base: Base) -> None:
    assert base.stamp() is None
    assert entries(base) == []
    assert base.view("s").multi_get([b"a"]) == [None]
    base.apply({"s": {b"a": b"1", b"b": b""}, "t": {b"a": b"other"}}, b"one")
    base.apply({"s": {b"a": None, b"absent": None, b"c": b"3"}}, b"two")
    assert base.stamp() == b"two"
    assert entries(base) == [(b"b", b""), (b"c", b"3")]
    assert entries(base, "t") == [(b"a", b"other")]
    assert base.view("s").multi_get([b"c", b"a", b"b", b"c"]) == [b"3", None, b"", b"3"]
    assert base.view("s").get(b"b") == b""
    assert [base.view(name).approximate_num_entries() for name in ("s", "t", "none")] == [2, 1, 0]


def test_clearing_drops_entries_and_stamp(base: Base) -> None:
    view = base.view("s")
    base.apply({"s": {b"a": b"1"}}, b"one")
    base.clear()
    assert base.stamp() is None
    assert entries(base) == []
    assert view.get(b"a") is None
    base.apply({"t": {b"b": b"2"}, "s": {b"a": b"3"}}, b"two")
    assert (view.get(b"a"), entries(base, "t")) == (b"3", [(b"b", b"2")])


def test_a_rebuild_leaves_nothing_of_before(base: Base) -> None:
    base.apply({"s": {b"a": b"1", b"b": b"2"}, "t": {b"x": b"y"}}, b"one")
    base.rebuild(lambda: iter([{"s": {b"c": b"1", b"d": b"1"}}, {"s": {b"c": None, b"d": b"2"}}]), b"two")
    assert base.stamp() == b"two"
    assert (entries(base), entries(base, "t")) == ([(b"d", b"2")], [])


def test_a_rebuild_that_fails_changes_nothing(base: Base) -> None:
    def broken() -> Iterator[dict[str, dict[bytes, bytes | None]]]:
        yield {"s": {b"a": b"2"}}
        raise TaskCorruptedError("torn")

    base.apply({"s": {b"a": b"1"}}, b"one")
    with pytest.raises(TaskCorruptedError):
        base.rebuild(broken, b"two")
    assert (base.stamp(), entries(base)) == (b"one", [(b"a", b"1")])


def test_a_rebuild_without_commits_leaves_an_empty_base_with_its_stamp(base: Base) -> None:
    base.apply({"s": {b"a": b"1"}}, b"one")
    base.rebuild(list, b"two")
    assert (base.stamp(), entries(base)) == (b"two", [])


def test_a_closed_base_is_refused(base: Base) -> None:
    base.close()
    for call in (lambda: base.view("s").get(b"a"), lambda: base.apply({}, b"x")):
        with pytest.raises(InvalidStateStoreError, match="closed"):
            call()
    base.close()


def test_a_range_continues_across_commits(base: Base) -> None:
    content: dict[bytes, bytes | None] = {b"%05d" % number: b"x" for number in range(2000)}
    base.apply({"s": content}, b"one")
    for reverse in (False, True):
        seen = []
        for number, (key, _) in enumerate(base.view("s").range(None, None, reverse)):
            seen.append(key)
            if number % 700 == 0:
                base.apply({"s": {key: b"y"}}, b"%d" % number)
        assert seen == sorted(content, reverse=reverse)


# ---------- on disk
