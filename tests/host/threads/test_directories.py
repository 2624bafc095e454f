"""The state directory of an instance: whose bases stay, which are deleted, and what is sure after a clean end."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.errors import CorruptedBaseError, InvalidStateStoreError, LockError
from penstock.host.deployment.layout import layout_of
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.standbys import Standbys, StatePositions
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import built_topology
from penstock.state.lmdb import DATA_FILE, SharedLmdb
from penstock.task.changelog_copy import ChangelogStamp

KEPT, GIVEN_UP = TaskId(0, 0), TaskId(1, 12)


@pytest.fixture(params=[False, True], ids=["own", "shared"])
def shared(request: pytest.FixtureRequest) -> bool:
    """Return whether all tasks have one database."""
    return bool(request.param)


def directory_in(path: Path, shared: bool) -> StateDirectory:
    config = {"application.id": "app", "state.dir": str(path), "penstock.state.shared": shared}
    return StateDirectory(StreamsConfig(config, environment={}))


@pytest.fixture
def directory(tmp_path: Path, shared: bool) -> StateDirectory:
    return directory_in(tmp_path, shared)


def test_only_state_that_nobody_has_used_for_long_enough_is_deleted(directory: StateDirectory, tmp_path: Path) -> None:
    directory.acquire()
    base = directory.open_base(KEPT)
    directory.open_base(GIVEN_UP).close()
    directory.open_base(GLOBAL_TASK).close()
    for path in tmp_path.rglob("lock"):
        os.utime(path, (1_000, 1_000))
    directory.delete_unused(999.0)
    assert directory.has_base(GIVEN_UP)
    directory.delete_unused(1_001.0)
    assert not directory.has_base(GIVEN_UP)
    assert directory.has_base(KEPT)
    assert directory.has_base(GLOBAL_TASK)
    base.close()
    directory.release()


def test_state_that_is_too_old_is_deleted_before_an_instance_starts(
    directory: StateDirectory, tmp_path: Path, shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    directory.delete_outdated(1_001.0)  # there is nothing yet
    assert not directory.path.exists()
    directory.acquire()
    for task in (KEPT, GIVEN_UP, GLOBAL_TASK):
        applied(directory, task, b"old")
    os.utime(tmp_path / "app" / str(GIVEN_UP) / "lock", (1_000, 1_000))
    with pytest.raises(LockError):
        directory_in(tmp_path, shared).delete_outdated(1_001.0)
    directory.seal()
    directory.release()
    again = directory_in(tmp_path, shared)
    with caplog.at_level(logging.INFO):
        again.delete_outdated(1_001.0)
    assert [each for each in caplog.messages if "too old (state.cleanup.dir.max.age.ms)" in each] == [
        f"Deleted the state of a task that is too old (state.cleanup.dir.max.age.ms): {tmp_path / 'app' / '1_12'}."
    ]
    again.acquire()
    assert content(again, GIVEN_UP) == (None, None)
    assert content(again, KEPT) == content(again, GLOBAL_TASK) == (b"old", b"old")
    again.release()


def test_state_that_was_deleted_does_not_count_where_the_group_places_tasks(
    directory: StateDirectory, tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized.as_("s"))
    config = StreamsConfig({"application.id": "app"}, environment={})
    layout = layout_of(built_topology(builder.build(), "app"), config, {"in": 1})
    [task] = layout.stateful
    no_admin, no_consumer = Mock(), Mock()
    standbys = Standbys(layout, no_admin, no_consumer, directory.open_base)
    positions = StatePositions(layout, standbys, no_admin, directory.has_base)
    directory.acquire()
    directory.open_base(task).close()
    positions.take(task, ChangelogStamp({}, dict.fromkeys(layout.followed_changelogs(task).values(), 7)))
    assert positions.positions() == {task: 7}
    for path in tmp_path.rglob("lock"):
        os.utime(path, (1_000, 1_000))
    directory.delete_unused(1_001.0)
    assert positions.positions() == {}
    directory.release()


def test_a_part_of_the_shared_database_is_emptied_once_for_each_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = directory_in(tmp_path, shared=True)
    directory.acquire()
    kept = directory.open_base(KEPT)
    emptied: list[bool] = []
    empty = SharedLmdb.empty

    def noted(database: SharedLmdb, name: str) -> bool:
        emptied.append(empty(database, name))
        return emptied[-1]

    monkeypatch.setattr(SharedLmdb, "empty", noted)
    for use in range(1, 3):
        base = directory.open_base(GIVEN_UP)
        base.apply({"s": {b"k": b"v"}}, b"stamp")
        base.close()
        for path in tmp_path.rglob("lock"):
            os.utime(path, (1_000, 1_000))
        for _ in range(3):
            directory.delete_unused(1_001.0)
        assert emptied == [True] * use
    kept.close()
    directory.release()


def test_what_a_killed_process_has_left_of_a_deletion_is_deleted(directory: StateDirectory, tmp_path: Path) -> None:
    directory.acquire()
    directory.open_base(KEPT).close()
    left = tmp_path / "app" / f".{GIVEN_UP}.0a1b"  # renamed, and deleted in part
    (left / str(GIVEN_UP)).mkdir(parents=True)
    directory.delete_unused(0.0)
    assert not left.exists()
    assert directory.has_base(KEPT)
    directory.release()


def test_a_base_that_is_found_to_be_damaged_is_made_again(tmp_path: Path) -> None:
    directory = directory_in(tmp_path, shared=False)
    directory.acquire()
    base = directory.open_base(KEPT)
    base.apply({"s": {b"%05d" % number: b"value %d" % number for number in range(2_000)}}, b"stamp")
    base.close()
    [data] = tmp_path.rglob(DATA_FILE)
    pages = bytearray(data.read_bytes())
    for start in range(2 * 4096, len(pages), 4096):
        if b"value 1000" in pages[start : start + 4096]:
            pages[start : start + 4096] = bytes(4096)
    data.write_bytes(pages)
    base = directory.open_base(KEPT)
    with pytest.raises(CorruptedBaseError):
        base.view("s").multi_get([b"01000"])
    base.close()
    again = directory.open_base(KEPT)
    assert (again.stamp(), again.view("s").multi_get([b"01000", b"00001"])) == (None, [None, None])
    again.close()
    directory.release()


def test_a_clean_up_deletes_what_instances_keep_and_nothing_else(directory: StateDirectory, tmp_path: Path) -> None:
    other = tmp_path / "app" / "checkpoint" / "metadata"
    other.parent.mkdir(parents=True)
    other.touch()
    assert not directory.has_state()
    directory.acquire()
    directory.open_base(KEPT).close()
    directory.open_base(GLOBAL_TASK).close()
    directory.release()
    assert directory.has_state()
    directory.clean_up()
    assert not directory.has_state()
    assert other.exists()


def test_a_base_that_was_closed_is_sealed(directory: StateDirectory, tmp_path: Path, shared: bool) -> None:
    directory.acquire()
    base = directory.open_base(KEPT)
    base.apply({"store": {b"k": b"v"}}, b"stamp")
    directory.seal()
    seal = seal_in(tmp_path, shared)
    assert not seal.exists()
    base.close()
    directory.seal()
    assert seal.exists()
    directory.release()


def seal_in(path: Path, shared: bool) -> Path:
    return path / "app" / ("shared" if shared else str(KEPT)) / "seal"


WORKER = """
import sys
from pathlib import Path
from penstock.config import StreamsConfig
from penstock.host.threads.directories import StateDirectory
from penstock.plan.subtopology import TaskId

given = {"application.id": "app", "state.dir": sys.argv[1], "penstock.state.shared": sys.argv[3]}
base = StateDirectory.of_run(StreamsConfig(given, environment={}), sys.argv[2]).open_base(TaskId(0, 0))
base.apply({"store": {b"k": b"of a worker"}}, b"two")
print("applied", flush=True)
sys.stdin.read()
"""


def test_a_snapshot_is_of_the_last_commit_whoever_has_the_base_open(
    directory: StateDirectory, tmp_path: Path, shared: bool
) -> None:
    directory.acquire()
    with directory.snapshot(KEPT) as nothing:
        assert nothing is None
    base = directory.open_base(KEPT)
    base.apply({"store": {b"k": b"here"}}, b"one")
    with directory.snapshot(KEPT) as here:
        assert here is not None
        assert (here.stamp(), here.view("store").get(b"k")) == (b"one", b"here")
        base.close()
        with pytest.raises(InvalidStateStoreError):
            here.stamp()
    arguments = [sys.executable, "-c", WORKER, str(tmp_path), directory.run, str(shared).lower()]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"applied\n"
        with directory.snapshot(KEPT) as there:
            assert there is not None
            assert (there.stamp(), there.view("store").get(b"k")) == (b"two", b"of a worker")
            worker.stdin.close()
            assert worker.wait(60) == 0
            assert directory.openings(KEPT) == 1
            directory.open_base(KEPT).close()  # the task is back, and its restore does not wait for the reader
            assert directory.openings(KEPT) == 2
            with pytest.raises(InvalidStateStoreError):
                there.stamp()
    directory.seal()
    assert seal_in(tmp_path, shared).exists()
    directory.release()


def applied(directory: StateDirectory, task: TaskId, value: bytes) -> None:
    base = directory.open_base(task)
    base.apply({"store": {b"k": value}}, value)
    base.close()


def content(directory: StateDirectory, task: TaskId) -> tuple[bytes | None, bytes | None]:
    """Return the stamp of a base and the value that it has."""
    base = directory.open_base(task)
    try:
        return base.stamp(), base.view("store").get(b"k")
    finally:
        base.close()


def test_a_task_whose_state_was_deleted_comes_back_empty_and_others_keep_theirs(
    directory: StateDirectory, tmp_path: Path
) -> None:
    directory.acquire()
    applied(directory, KEPT, b"kept")
    applied(directory, GIVEN_UP, b"given up")
    os.utime(tmp_path / "app" / str(GIVEN_UP) / "lock", (1_000, 1_000))
    directory.delete_unused(1_001.0)
    assert content(directory, GIVEN_UP) == (None, None)
    assert content(directory, KEPT) == (b"kept", b"kept")
    directory.release()


def test_state_is_there_after_a_restart_and_not_if_its_directory_was_deleted(
    directory: StateDirectory, tmp_path: Path, shared: bool
) -> None:
    directory.acquire()
    for task in (KEPT, GIVEN_UP, GLOBAL_TASK):
        applied(directory, task, str(task).encode())
    directory.seal()
    directory.release()
    shutil.rmtree(tmp_path / "app" / str(GIVEN_UP))
    again = directory_in(tmp_path, shared)
    again.acquire()
    assert content(again, KEPT) == (b"0_0", b"0_0")
    assert content(again, GLOBAL_TASK)[0] == str(GLOBAL_TASK).encode()
    assert content(again, GIVEN_UP) == (None, None)
    again.release()


def test_another_configuration_makes_the_copies_again(tmp_path: Path) -> None:
    for shared in (False, True, False, True):
        directory = directory_in(tmp_path, shared)
        directory.acquire()
        assert content(directory, KEPT) == (None, None)
        applied(directory, KEPT, b"here")
        assert content(directory, KEPT) == (b"here", b"here")
        directory.seal()
        directory.release()


def test_tasks_that_share_a_database_have_few_files(tmp_path: Path) -> None:
    directory = directory_in(tmp_path, True)
    directory.acquire()
    before = len(os.listdir("/proc/self/fd"))
    bases = [directory.open_base(TaskId(0, number)) for number in range(50)]
    for base in bases:
        base.apply({"store": {b"k": b"v"}}, b"one")
    assert len(list(tmp_path.rglob("*.mdb"))) == 2
    assert len(os.listdir("/proc/self/fd")) - before < 50 + 10  # one a task says that it is open
    for base in bases:
        base.close()
    directory.release()
