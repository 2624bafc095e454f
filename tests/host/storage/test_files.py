"""Files on file systems that are not local disks: whole or not at all, and replaced without a gap."""

from __future__ import annotations

import os
import pickle
import queue
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock.errors import ConfigError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.storage import files as files_module
from penstock.host.storage.files import Files


@pytest.fixture(params=["local", "fsspec+file", "fsspec+memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return Files(str(tmp_path) if request.param == "local" else f"{request.param}://{tmp_path}")


def test_files_are_written_read_replaced_found_and_deleted(files: Files) -> None:
    assert files.read("a/one") is None
    assert files.read_range("a/one", 0, 1) is None
    assert files.find("a") == []
    files.write("a/one", b"first")
    files.write("a/one", b"second")
    files.write("a/b/two", b"")
    assert files.read("a/one") == b"second"
    assert files.read_range("a/one", 2, 3) == b"con"
    assert files.read("a/b/two") == b""
    assert sorted((each.name, each.is_directory) for each in files.find("a")) == [("b", True), ("one", False)]
    files.delete("a/one")
    files.delete("a/one")
    assert files.read("a/one") is None
    files.delete_directory("a")
    files.delete_directory("a")
    assert files.find("a") == []
    files.write("a/one", b"again")
    files.clear()
    assert files.find("") == []
    files.write("a/one", b"and again")
    assert files.read("a/one") == b"and again"


def test_a_file_that_is_torn_before_its_renaming_is_not_there(files: Files) -> None:
    def crash() -> None:
        raise KeyboardInterrupt

    files.write("a/one", b"first")
    for path in ("a/one", "a/two"):
        with pytest.raises(KeyboardInterrupt):
            files.write(path, b"second", crash)
    assert files.read("a/one") == b"first"
    assert files.read("a/two") is None
    assert [each.name for each in files.find("a") if each.name[0] != "."] == ["one"]


def test_what_other_programs_wrote_is_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        files_module, "sync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    files = Files(str(tmp_path / "log"))
    newest = files.sync_since(0)
    (tmp_path / "log" / "offsets").mkdir()
    for name in ("0", "1"):
        (tmp_path / "log" / "offsets" / name).write_text("")
        os.utime(tmp_path / "log" / "offsets" / name, ns=(newest + int(name), newest + int(name)))
    synced.clear()
    newest = files.sync_since(newest)
    offsets = str(tmp_path / "log" / "offsets")
    assert {offsets, f"{offsets}/0", f"{offsets}/1"} <= set(synced)
    synced.clear()
    files.sync_since(newest + 1)
    assert synced == []


class _LateDirectory:
    """A file system whose listing misses a directory that exists a moment later, because another process creates it."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self._fails = True

    def get_file_info(self, selector: Any) -> Any:
        if self._fails:
            self._fails = False
            raise FileNotFoundError("Cannot list directory")
        return self._files.get_file_info(selector)


def test_a_directory_that_is_made_while_it_is_listed_is_listed(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    files.write("a/one", b"first")
    files._files = _LateDirectory(files._files)
    assert [each.name for each in files.find("a")] == ["one"]


class _Crash(BaseException):
    pass


class _StepwiseFiles(Files):
    """Gives up at one of the steps by which a file is replaced."""

    steps = 0

    def _delete(self, target: str) -> None:
        self._step()
        super()._delete(target)

    def _step(self) -> None:
        self.steps -= 1
        if self.steps == 0:
            raise _Crash


@pytest.mark.parametrize("step", [1, 2])
def test_a_file_is_there_at_every_step_of_its_replacement(tmp_path: Path, step: int) -> None:
    uri = f"fsspec+memory://{tmp_path}"
    Files(uri).write("metadata", b"first")
    writing = _StepwiseFiles(uri)
    writing.steps = step
    with pytest.raises(_Crash):
        writing.write("metadata", b"second")
    assert Files(uri).read("metadata") == b"first"
    again = Files(uri)
    again.write("metadata", b"third")
    assert again.read("metadata") == b"third"


def test_readers_find_a_file_while_it_is_replaced(files: Files) -> None:
    files.write("generation", b"0")
    missing: list[int] = []
    over = threading.Event()
    has_read = threading.Event()

    def read() -> None:
        while not over.is_set():
            if files.read("generation") is None:
                missing.append(1)
            has_read.set()

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        has_read.clear()  # so that no read meets more than two replacements, however slow the reader's thread is
        files.write("generation", str(number).encode())
        assert has_read.wait(60)
    over.set()
    reader.join()
    assert files.read("generation") == b"29"
    assert not missing


class _Interleaved:
    """Runs functions in threads, one at a time from one step to the next, in an order by seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._turns: dict[int, threading.Semaphore] = {}
        self._stopped: queue.Queue[int | None] = queue.Queue()
        self.errors: list[BaseException] = []

    def step(self) -> None:
        """Wait for the next turn; other threads continue."""
        turn = self._turns.get(threading.get_ident())
        if turn is not None:
            self._stopped.put(threading.get_ident())
            assert turn.acquire(timeout=60)

    def run(self, *functions: Callable[[], object]) -> None:
        """Return when all have returned."""
        for function in functions:
            threading.Thread(target=self._run, args=(function,), daemon=True).start()
        waiting = [each for _ in functions if (each := self._stopped.get(timeout=60)) is not None]
        while waiting:
            chosen = waiting.pop(self._random.randrange(len(waiting)))
            self._turns[chosen].release()
            stopped = self._stopped.get(timeout=60)
            waiting += [] if stopped is None else [stopped]

    def _run(self, function: Callable[[], object]) -> None:
        self._turns[threading.get_ident()] = threading.Semaphore(0)
        try:
            self.step()
            function()
        except BaseException as error:
            self.errors.append(error)
        del self._turns[threading.get_ident()]
        self._stopped.put(None)


class _HdfsLike(MemoryFileSystem):
    """A file system on which a file cannot be moved to where one is."""

    protocol = "hdfslike"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    interleaved: ClassVar[_Interleaved] = _Interleaved(0)

    def info(self, path: str, **options: Any) -> Any:
        self.interleaved.step()
        return super().info(path, **options)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        self.interleaved.step()
        if path2 in self.store:
            raise FileExistsError(path2)
        self.store[path2] = self.store.pop(path1)

    def rm(self, path: str, **options: Any) -> None:
        self.interleaved.step()
        if self.store.pop(path, None) is None:
            raise FileNotFoundError(path)


class _ReplacingHdfsLike(_HdfsLike):
    """One on which a file is deleted first where one is moved to, as pyarrow does on HDFS."""

    protocol = "replacinghdfslike"

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        try:
            super().mv(path1, path2)
        except FileExistsError:
            self.rm(path2)
            super().mv(path1, path2)


@pytest.mark.parametrize("kind", [_HdfsLike, _ReplacingHdfsLike])
def test_attempts_that_write_one_segment_at_the_same_time_do_not_disturb_one_another(kind: type[_HdfsLike]) -> None:
    fsspec.register_implementation(kind.protocol, kind, clobber=True)
    uri = f"fsspec+{kind.protocol}:///checkpoint"
    Checkpoint(uri).write_segment("0_0", "other", b"", lambda: None)
    for seed in range(100):
        segment = f"segment-{seed}"
        _HdfsLike.interleaved = interleaved = _Interleaved(seed)

        def attempt(segment: str = segment) -> None:
            Checkpoint(uri).write_segment("0_0", segment, b"content", lambda: None)
            if kind is _HdfsLike:
                assert Checkpoint(uri).read_segment("0_0", segment) == b"content"

        interleaved.run(attempt, attempt, attempt)
        assert not interleaved.errors, f"seed {seed}: {interleaved.errors}"
        assert Checkpoint(uri).read_segment("0_0", segment) == b"content"
        assert not [name for name, _ in Checkpoint(uri).list_segments("0_0") if name[0] == "."]


def test_a_directory_below_has_its_own_name(tmp_path: Path) -> None:
    assert Files("s3://bucket/a?region=x").below("b").uri == "s3://bucket/a/b?region=x"
    assert Files("fsspec+memory:///a/").below("b").uri == "fsspec+memory:///a/b"
    files = Files(str(tmp_path))
    files.below("b").write("one", b"1")
    assert files.read("b/one") == b"1"
    assert files.below("b").local_path == str(tmp_path / "b")


def test_a_file_system_that_nobody_knows_is_reported() -> None:
    with pytest.raises(ConfigError, match="Cannot store files at nowhere://a"):
        Files("nowhere://a")


def test_errors_do_not_show_who_signs_in_to_a_file_system() -> None:
    with pytest.raises(ConfigError) as raised:
        Files("nowhere://user:p%40ss@host/a/b?secret_key=c")
    assert "Cannot store files at nowhere://host/a/b: " in str(raised.value)
    assert not any(secret in str(raised.value) for secret in ("user", "p%40ss", "secret_key"))
    assert raised.value.__cause__ is None


def test_a_time_that_is_not_known_is_none(tmp_path: Path) -> None:
    files = Files(f"fsspec+memory://{tmp_path}")
    files.write("one", b"")
    assert [each.modified_ms for each in files.find("")] == [None]


def test_a_directory_keeps_nothing_of_its_subdirectories(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    size = len(pickle.dumps(files))
    for number in range(3):
        files.below(f"{number}").write("file", b"content")
    assert len(pickle.dumps(files)) == size, "a worker opens a directory for each epoch"
