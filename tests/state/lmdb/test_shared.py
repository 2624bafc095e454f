"""Several bases in one LMDB environment."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.errors import InvalidStateStoreError, ProcessorStateError, TaskMigratedError
from penstock.state.lmdb import SharedLmdb
from tests.support.bases import SMALL_MAP, entries, run


def test_bases_share_a_file_and_nothing_else(tmp_path: Path) -> None:
    shared = SharedLmdb(tmp_path)
    assert shared.names() == []
    one, other = shared.base("0_1"), shared.base("0_10")
    one.apply({"s": {b"a": b"1"}}, b"one")
    other.apply({"s": {b"a": b"2"}}, b"other")
    assert (one.stamp(), entries(one)) == (b"one", [(b"a", b"1")])
    assert one.view("s").approximate_num_entries() == 1
    one.close()
    again = shared.base("0_1")
    assert (again.stamp(), entries(again)) == (b"one", [(b"a", b"1")])
    again.close()
    assert shared.empty("0_1")
    assert not shared.empty("0_1")
    assert (other.stamp(), entries(other)) == (b"other", [(b"a", b"2")])
    assert shared.names() == ["0_1", "0_10"]
    other.close()
    shared.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.mdb", "lock.mdb"]


def test_bases_that_share_a_file_are_written_by_several_threads(tmp_path: Path) -> None:
    shared = SharedLmdb(tmp_path)
    errors: list[BaseException] = []

    def write(name: str) -> None:
        try:
            base = shared.base(name)
            for number in range(200):
                base.apply({"s": {b"%d" % (number % 7): name.encode()}}, b"%d" % number)
                assert dict(base.view("s").range(None, None, False)).get(b"%d" % (number % 7)) == name.encode()
            assert {value for _, value in entries(base)} == {name.encode()}
            base.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(f"0_{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    shared.close()


def test_an_idle_base_does_not_keep_the_pages_that_others_replace(tmp_path: Path) -> None:
    shared = SharedLmdb(tmp_path)
    idle, busy = shared.base("0_0"), shared.base("0_1")
    idle.apply({"s": {b"a": b"1"}}, b"one")
    assert entries(idle) == [(b"a", b"1")]
    content: dict[bytes, bytes | None] = {b"%03d" % number: bytes(1000) for number in range(100)}
    for number in range(50):
        busy.apply({"s": content}, b"%d" % number)
    assert (tmp_path / "data.mdb").stat().st_size < 10 * 100 * 1000
    idle.close()
    busy.close()
    shared.close()


def test_a_shared_file_that_is_full_says_so(tmp_path: Path) -> None:
    shared = SharedLmdb(tmp_path, SMALL_MAP)
    base = shared.base("0_0")
    base.apply({"s": {b"a": b"1"}}, b"one")
    with pytest.raises(ProcessorStateError, match="0_0 is full"):
        base.apply({"s": {b"%d" % number: bytes(1000) for number in range(100)}}, b"two")
    assert (base.stamp(), entries(base)) == (b"one", [(b"a", b"1")])
    base.close()
    shared.close()


SHARING = """
import sys
from pathlib import Path
from penstock.state.lmdb import SharedLmdb
shared = SharedLmdb(Path(sys.argv[1]))
mine, theirs = shared.base("0_1"), shared.base("0_0")
mine.apply({"s": {b"a": b"of another process"}}, b"mine")
theirs.apply({"s": {b"a": b"2"}}, b"two")
print(theirs.stamp().decode())
"""


def test_processes_share_a_file_of_bases(tmp_path: Path) -> None:
    shared = SharedLmdb(tmp_path)
    base = shared.base("0_0")
    base.apply({"s": {b"a": b"1"}}, b"one")
    snapshot = base.snapshot()
    done = run(SHARING, tmp_path)
    assert done.stdout.split() == ["two"], done.stderr
    assert (snapshot.stamp(), snapshot.view("s").get(b"a")) == (b"one", b"1")
    with pytest.raises(TaskMigratedError, match="Another process has advanced the base"):
        base.apply({"s": {b"a": b"3"}}, b"three")
    assert base.stamp() == b"two"
    base.apply({"s": {b"a": b"3"}}, b"three")
    base.close()
    with pytest.raises(InvalidStateStoreError):
        snapshot.stamp()
    other = shared.base("0_1")
    assert entries(other) == [(b"a", b"of another process")]
    other.close()
    shared.close()
