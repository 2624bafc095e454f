"""What every base does, against a dict, and what only the one on disk does: long keys, growth, other processes,
damage."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidStateStoreError, ProcessorStateError, TaskCorruptedError, TaskMigratedError
from penstock.state.api import Base
from penstock.state.lmdb import LmdbBase, SharedLmdb, reader, snapshot_of
from penstock.state.memory import MemoryBase
from penstock.state.rocksdb import RocksDBBase

SMALL_MAP = 1 << 16


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


def entries(base: Base, store: str = "s", reverse: bool = False) -> list[tuple[bytes, bytes]]:
    return list(base.view(store).range(None, None, reverse))


def test_lmdb_measures_the_bytes_of_its_entries(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path / "base")
    assert base.measured() == {}
    base.apply({"s": {b"%d" % number: b"v" * 100 for number in range(1_000)}}, b"one")
    assert 100_000 < base.measured()["state-size"].total < 1_000_000
    base.close()


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


def test_a_rebuild_that_fails_changes_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, dict[bytes, bytes | None]]]:
        yield {"s": {b"a": b"2"}}
        raise TaskCorruptedError("torn")

    base = LmdbBase(tmp_path, SMALL_MAP)
    base.apply({"s": {b"a": b"1"}}, b"one")
    with pytest.raises(TaskCorruptedError):
        base.rebuild(broken, b"two")
    assert (base.stamp(), entries(base)) == (b"one", [(b"a", b"1")])
    base.close()


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


LONG = b"p" * 480
KEY = st.one_of(
    st.binary(max_size=3),
    st.sampled_from([LONG[:479], LONG, LONG + b"q"]),
    st.builds(lambda tail: LONG + tail, st.binary(max_size=2)),
    st.builds(lambda tail, size: LONG + tail * size, st.binary(min_size=1, max_size=1), st.integers(15, 40)),
    st.builds(lambda tail: LONG[:470] + tail, st.binary(max_size=20)),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(KEY, st.none() | st.binary(max_size=5), max_size=12), max_size=5),
    st.lists(st.tuples(st.none() | KEY, st.none() | KEY), max_size=5),
    st.lists(KEY, max_size=5),
    st.integers(1, 4),
)
def test_any_content_is_that_of_a_dict(
    commits: list[dict[bytes, bytes | None]],
    ranges: list[tuple[bytes | None, bytes | None]],
    absent: list[bytes],
    chunk: int,
) -> None:
    """Keys shorter, as long and longer than LMDB takes, many with the same first 480 bytes, come in the order of their
    bytes."""
    directory = tempfile.mkdtemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_CHUNK", chunk)
        shared = SharedLmdb(Path(directory) / "shared")
        bases: list[Base] = [LmdbBase(directory, SMALL_MAP), shared.base("0_0"), MemoryBase()]
        model: dict[bytes, bytes] = {}
        for number, changes in enumerate(commits):
            for key, value in changes.items():
                model.pop(key, None)
                if value is not None:
                    model[key] = value
            for base in bases:
                base.apply({"t": changes, "s": dict(sorted(changes.items()))}, b"%d" % number)
        for base in bases:
            view = base.view("s")
            keys = [*model, *absent]
            assert view.multi_get(keys) == [model.get(key) for key in keys] == [view.get(key) for key in keys]
            assert view.approximate_num_entries() == len(model)
            for low, high in [(None, None), *ranges]:
                chosen = sorted(
                    item
                    for item in model.items()
                    if (low is None or item[0] >= low) and (high is None or item[0] < high)
                )
                assert list(view.range(low, high, False)) == chosen
                assert list(view.range(low, high, True)) == chosen[::-1]
            base.close()
        shared.close()
    shutil.rmtree(directory)


# ---------- on disk


def test_the_map_grows_with_the_state(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path, SMALL_MAP)
    rng = random.Random(1)
    content: dict[bytes, bytes | None] = {rng.randbytes(10): rng.randbytes(400) for _ in range(3000)}
    base.rebuild(lambda: [{"s": content}], b"one")
    assert dict(base.view("s").range(None, None, False)) == content
    base.close()
    again = LmdbBase(tmp_path, SMALL_MAP)
    assert again.stamp() == b"one"
    assert again.view("s").approximate_num_entries() == 3000
    again.close()


def run(program: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, str(path), *arguments], capture_output=True, text=True, timeout=240, check=False
    )


GROW = """
import sys
from penstock.state.lmdb import LmdbBase
base = LmdbBase(sys.argv[1], 1 << 16)
base.apply({"s": {b"%05d" % n: bytes(300) for n in range(2000)}}, sys.argv[2].encode())
print(base.stamp().decode())
"""


def test_another_process_sees_the_commit_and_the_larger_map(tmp_path: Path) -> None:
    base = LmdbBase(tmp_path, SMALL_MAP)
    base.apply({"s": {b"a": b"1"}}, b"one")
    assert base.view("s").get(b"a") == b"1"
    done = run(GROW, tmp_path, "two")
    assert done.stdout.split() == ["two"], done.stderr
    with pytest.raises(InvalidStateStoreError, match="Another process"):
        base.snapshot()  # the map must not move while something is read in it
    assert base.stamp() == b"one"  # what was read here still matches the stamp
    assert base.view("s").approximate_num_entries() == 1
    with pytest.raises(TaskMigratedError, match="Another process has advanced the base"):
        base.apply({"s": {b"a": b"2"}}, b"three")
    assert base.stamp() == b"two"
    assert base.view("s").approximate_num_entries() == 2001
    base.apply({"s": {b"a": b"2"}}, b"three")
    assert base.view("s").get(b"a") == b"2"
    base.close()


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


def test_a_damaged_file_begins_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = LmdbBase(tmp_path, SMALL_MAP)
    base.apply({"s": {b"a": b"1"}}, b"one")
    base.close()
    (tmp_path / "data.mdb").write_bytes(b"no database" * 2000)
    again = LmdbBase(tmp_path, SMALL_MAP)
    assert again.stamp() is None
    assert "is damaged" in caplog.text
    again.close()


def test_a_base_does_not_cross_a_fork(tmp_path: Path) -> None:
    done = run(
        """
import os, sys
from penstock.state.lmdb import LmdbBase
base = LmdbBase(sys.argv[1])
if os.fork() == 0:
    try:
        base.apply({}, b"x")
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.wait()
""",
        tmp_path,
    )
    assert "InvalidStateStoreError" in done.stdout, done.stderr
    assert "before a fork" in done.stdout


def test_a_base_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ProcessorStateError, match="file"):
        LmdbBase(tmp_path / "file" / "base")
    base = LmdbBase(tmp_path / "base")
    with pytest.raises(ProcessorStateError, match="open in this process already"):
        LmdbBase(tmp_path / "base")
    base.close()


COMMITS = """
import random, sys
from penstock.state.lmdb import LmdbBase
sys.path.insert(0, sys.argv[2])
from test_bases import commit_of
base = LmdbBase(sys.argv[1], 1 << 16)
number = int(base.stamp() or b"0")
while True:
    number += 1
    base.apply(commit_of(number), b"%d" % number)
    print(number, flush=True)
"""


def commit_of(number: int) -> dict[str, dict[bytes, bytes | None]]:
    rng = random.Random(number)
    keys = rng.sample(range(400), 150)
    return {
        "s": {b"%03d" % key: None if rng.random() < 0.3 else rng.randbytes(rng.randrange(600)) for key in keys},
        "t": {b"last": b"%d" % number},
    }


@pytest.mark.crash
def test_a_killed_writer_leaves_whole_commits(tmp_path: Path) -> None:
    """Whenever a writer is killed, the base has exactly the content of the commit that its stamp names."""
    seed = os.getpid()
    print(f"random.Random({seed})")  # shown when the test fails
    rng = random.Random(seed)
    model: dict[bytes, bytes] = {}
    reached = 0
    for _ in range(30 if os.environ.get("PENSTOCK_CRASH") == "all" else 4):
        writer = subprocess.Popen(
            [sys.executable, "-c", COMMITS, str(tmp_path / "base"), str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        goal = reached + rng.randrange(1, 200)
        while int(writer.stdout.readline()) < goal:  # fails at the end of the writer's output, if it fails
            pass
        writer.send_signal(signal.SIGKILL)
        writer.wait(120)
        writer.stdout.close()
        base = LmdbBase(tmp_path / "base", SMALL_MAP)
        stamp = int(base.stamp() or b"0")
        assert stamp >= goal
        for number in range(reached + 1, stamp + 1):
            for key, value in commit_of(number)["s"].items():
                model.pop(key, None)
                if value is not None:
                    model[key] = value
        assert dict(base.view("s").range(None, None, False)) == model
        assert base.view("s").approximate_num_entries() == len(model)
        assert base.view("t").get(b"last") == b"%d" % stamp
        base.close()
        reached = stamp
