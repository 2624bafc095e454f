"""An LMDB environment of its own: growth, other processes, kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import InvalidStateStoreError, ProcessorStateError, TaskMigratedError
from penstock.state.lmdb import LmdbBase
from tests.support.bases import GROW, SMALL_MAP, commit_of, run


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
from tests.support.bases import commit_of
base = LmdbBase(sys.argv[1], 1 << 16)
number = int(base.stamp() or b"0")
while True:
    number += 1
    base.apply(commit_of(number), b"%d" % number)
    print(number, flush=True)
"""


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
            [sys.executable, "-c", COMMITS, str(tmp_path / "base"), str(Path(__file__).parents[3])],
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
