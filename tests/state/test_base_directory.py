"""Which copies of state on this machine are trusted: those of this run, and those that an orderly end has sealed."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from penstock.errors import CorruptedBaseError, TaskMigratedError
from penstock.state.base_directory import BaseDirectory
from penstock.state.lmdb import DATA_FILE, LmdbBase

ENTRIES = {b"%05d" % number: b"value %d" % number for number in range(2000)}
RUN, NEXT_RUN = "first", "second"

DIE = """
import os, signal, sys
from pathlib import Path
from penstock.state.base_directory import BaseDirectory
BaseDirectory(Path(sys.argv[1]), "first", "data.mdb").enter()
os.kill(os.getpid(), signal.SIGKILL)
"""


def directory(path: Path, owner: str = RUN, data_file: str | None = DATA_FILE) -> BaseDirectory:
    return BaseDirectory(path, owner, data_file)


@contextmanager
def opened(used: BaseDirectory) -> Iterator[LmdbBase]:
    base = LmdbBase(used.enter())
    try:
        yield base
    finally:
        base.close()
        used.leave()


def fill(path: Path, owner: str = RUN) -> BaseDirectory:
    used = directory(path, owner)
    with opened(used) as base:
        base.apply({"s": ENTRIES}, b"stamp")
    return used


def content(path: Path, owner: str) -> tuple[bytes | None, dict[bytes, bytes]]:
    with opened(directory(path, owner)) as base:
        return base.stamp(), dict(base.view("s").range(None, None, False))


def die_with(path: Path) -> None:
    """Simulate a process of the run that is killed while it has the base open."""
    killed = subprocess.run([sys.executable, "-c", DIE, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL


def test_a_base_is_trusted_within_a_run(tmp_path: Path) -> None:
    fill(tmp_path)
    assert content(tmp_path, RUN) == (b"stamp", ENTRIES)
    assert content(tmp_path, RUN) == (b"stamp", ENTRIES)


def test_another_run_trusts_a_base_that_was_sealed(tmp_path: Path) -> None:
    assert fill(tmp_path).seal()
    assert content(tmp_path, NEXT_RUN) == (b"stamp", ENTRIES)


def test_another_run_makes_a_base_again_that_was_not_sealed(tmp_path: Path) -> None:
    fill(tmp_path)
    assert content(tmp_path, NEXT_RUN) == (None, {})


def test_a_seal_serves_one_opening(tmp_path: Path) -> None:
    fill(tmp_path).seal()
    with opened(directory(tmp_path, NEXT_RUN)) as base:
        base.apply({"s": {b"more": b""}}, b"later")
    assert content(tmp_path, "third") == (None, {})


def test_no_change_of_a_sealed_base_is_read(tmp_path: Path) -> None:
    chosen = random.Random(5)
    fill(tmp_path / "base").seal()
    data, seal = (directory(tmp_path / "base").database / DATA_FILE), tmp_path / "base" / "seal"
    whole, sealed = data.read_bytes(), seal.read_bytes()
    for generation in range(2, 150):
        changed = bytearray(whole)
        match generation % 4:
            case 0:
                changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
            case 1:
                del changed[chosen.randrange(len(changed)) :]
            case 2:
                at = chosen.randrange(len(changed) - 4096)
                changed[at : at + 4096] = chosen.randbytes(4096)
            case _:
                one, other = (4096 * chosen.randrange(len(changed) // 4096) for _ in range(2))
                changed[one : one + 4096] = changed[other : other + 4096]
        data.write_bytes(changed)
        seal.write_bytes(sealed)
        expected = (b"stamp", ENTRIES) if bytes(changed) == whole else (None, {})
        assert content(tmp_path / "base", f"run {generation}") == expected
        data.parent.mkdir(exist_ok=True)


def test_a_base_survives_one_death_and_is_made_again_after_a_second_in_a_row(tmp_path: Path) -> None:
    fill(tmp_path)
    die_with(tmp_path)
    assert content(tmp_path, RUN) == (b"stamp", ENTRIES)
    die_with(tmp_path)
    assert content(tmp_path, RUN) == (b"stamp", ENTRIES)
    die_with(tmp_path)
    die_with(tmp_path)
    assert content(tmp_path, RUN) == (None, {})


def test_what_a_process_died_with_or_has_open_is_not_sealed(tmp_path: Path) -> None:
    used = fill(tmp_path)
    with opened(directory(tmp_path)):
        assert not used.seal()
    die_with(tmp_path)
    assert not used.seal()
    assert not directory(tmp_path, NEXT_RUN).seal()


def test_a_run_that_is_over_takes_nothing_back(tmp_path: Path) -> None:
    fill(tmp_path, NEXT_RUN)

    def over() -> None:
        raise TaskMigratedError("taken over")

    with pytest.raises(TaskMigratedError, match="taken over"):
        BaseDirectory(tmp_path, RUN, DATA_FILE, before_taking=over).enter()
    assert content(tmp_path, NEXT_RUN) == (b"stamp", ENTRIES)


def test_a_damaged_base_is_made_again(tmp_path: Path) -> None:
    used = fill(tmp_path)
    used.enter()
    used.leave(is_damaged=True)
    assert content(tmp_path, RUN) == (None, {})


def test_damage_that_lmdb_notices_is_reported(tmp_path: Path) -> None:
    used = fill(tmp_path)
    data = used.database / DATA_FILE
    pages = bytearray(data.read_bytes())
    for page in range(2, len(pages) // 4096):
        if b"value 1000" in pages[4096 * page : 4096 * page + 4096]:
            pages[4096 * page : 4096 * page + 4096] = bytes(4096)
    data.write_bytes(pages)
    with opened(used) as base:
        view = base.view("s")
        for read in (
            lambda: view.get(b"01000"),
            lambda: view.multi_get([b"01000"]),
            lambda: list(view.range(None, None, False)),
            lambda: list(view.range(None, None, True)),
            lambda: base.apply({"s": {b"01000": b"new"}}, b"two"),
        ):
            with pytest.raises(CorruptedBaseError, match=str(used.database)):
                read()


def test_a_database_that_checks_itself_needs_no_seal(tmp_path: Path) -> None:
    used = directory(tmp_path, data_file=None)
    (used.enter() / "anything").parent.mkdir()
    used.leave()
    assert not used.seal()
    again = directory(tmp_path, NEXT_RUN, data_file=None)
    assert again.enter().exists()
    again.leave()


def test_a_visitor_reads_what_is_whole_and_changes_nothing(tmp_path: Path) -> None:
    visitor = BaseDirectory(tmp_path, "", DATA_FILE)
    assert visitor.visit() is None
    used = fill(tmp_path)
    database = visitor.visit()
    assert database is not None
    reading = LmdbBase(database)
    assert reading.stamp() == b"stamp"
    reading.close()
    visitor.leave()
    used.seal()
    (used.database / DATA_FILE).write_bytes(b"damaged")
    assert visitor.visit() is None


def test_files_of_an_earlier_version_are_deleted(tmp_path: Path) -> None:
    for name in ("data.mdb", "lock.mdb"):
        (tmp_path / name).write_bytes(b"")
    fill(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {tmp_path.name, "lock", "owner"}


def test_a_directory_that_nobody_uses_is_deleted_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = tmp_path / "0_1"
    used = fill(path)
    after = (path / "lock").stat().st_mtime + 1
    assert not directory(path).delete_if_unused(after - 2)  # it was used since
    used.enter()
    assert not directory(path).delete_if_unused(after)
    used.leave()
    assert directory(path).delete_if_unused(after)
    assert list(tmp_path.iterdir()) == []
    assert not directory(path).delete_if_unused(after)
    assert content(path, RUN) == (None, {})


def test_a_base_that_is_found_open_counts_as_used_also_after_its_process_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "0_1"
    used = fill(path)
    used.enter()
    os.utime(path / "lock", (1_000, 1_000))
    assert not directory(path).delete_if_unused(1_001)
    for marker in path.glob("open.*"):
        marker.unlink()  # as if the process had ended
    assert not directory(path).delete_if_unused(1_001)


def test_who_waits_for_a_directory_that_is_deleted_makes_another_one(tmp_path: Path) -> None:
    path = tmp_path / "0_1"
    fill(path)
    lock = (path / "lock").open("rb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as threads:
        entered = threads.submit(directory(path).enter)
        wait_until_waited_for(lock)
        path.rename(tmp_path / "gone")
        lock.close()
        assert entered.result(120) == path / "0_1"
    assert not (path / "0_1").exists()
    assert list(path.glob("open.*")) != []


def wait_until_waited_for(lock: IO[bytes]) -> None:
    """Wait until somebody waits for a lock that this process holds."""
    inode = f":{os.fstat(lock.fileno()).st_ino} "
    deadline = time.monotonic() + 120
    while not any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_base_that_is_kept_counts_as_used(tmp_path: Path) -> None:
    path = tmp_path / "0_1"
    fill(path)
    os.utime(path / "lock", (0, 0))
    directory(path).keep()
    assert not directory(path).delete_if_unused(1)
    directory(tmp_path / "none").keep()
    assert not (tmp_path / "none").exists()
