"""The result log: attempts of a task agree on one result, in any order of their steps, and whoever is killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import TaskCorruptedError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.result_log import ResultLog, delete_results, delete_results_before
from penstock.host.storage.files import Files
from tests.host.spark.crashes import KilledError


def nothing() -> None:
    pass


@pytest.fixture(params=["{}", "fsspec+memory://{}", "fsspec+file://{}"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    return Checkpoint(request.param.format(tmp_path))


def log(checkpoint: Checkpoint, epoch: int = 1, task: str = "0_0", run: str = "a") -> ResultLog:
    return ResultLog(checkpoint, epoch, task, run)


def test_the_first_result_counts_for_each_later_attempt(checkpoint: Checkpoint) -> None:
    assert log(checkpoint).find() is None
    assert log(checkpoint).write(b"first", nothing) == b"first"
    assert log(checkpoint).write(b"second", nothing) == b"first"
    assert [log(checkpoint).find() for _ in range(2)] == [b"first", b"first"]


def test_a_result_without_votes_is_found(checkpoint: Checkpoint) -> None:
    log(checkpoint).write(b"first", nothing)
    results = checkpoint.results().below("000000000001")
    for vote in [each.name for each in results.find("") if ".only." in each.name]:
        results.delete(vote)
    assert log(checkpoint).find() == b"first"


@pytest.mark.parametrize(("epoch", "task", "run"), [(2, "0_0", "a"), (1, "0_1", "a"), (1, "0_0", "b")])
def test_another_epoch_task_or_run_has_its_own_result(checkpoint: Checkpoint, epoch: int, task: str, run: str) -> None:
    log(checkpoint).write(b"first", nothing)
    assert log(checkpoint, epoch, task, run).find() is None


def test_a_damaged_result_is_named(checkpoint: Checkpoint) -> None:
    log(checkpoint).write(b"first", nothing)
    results = checkpoint.results().below("000000000001")
    (name,) = [each.name for each in results.find("") if ".proposal." in each.name]
    results.write(name, b"fist")
    with pytest.raises(TaskCorruptedError, match=f"results/000000000001/{name}.*torn or was changed"):
        log(checkpoint).find()


def test_a_deleted_result_is_named(checkpoint: Checkpoint) -> None:
    log(checkpoint).write(b"first", nothing)
    results = checkpoint.results().below("000000000001")
    (name,) = [each.name for each in results.find("") if ".proposal." in each.name]
    results.delete(name)
    for _ in range(2):
        with pytest.raises(TaskCorruptedError, match=f"results/000000000001/{name}.*deleted while its epoch ran"):
            log(checkpoint).find()


def test_results_of_earlier_epochs_are_deleted(checkpoint: Checkpoint) -> None:
    for epoch in range(1, 6):
        log(checkpoint, epoch).write(b"result", nothing)
    delete_results_before(checkpoint, 3)
    delete_results(checkpoint, 4)
    delete_results(checkpoint, 4)
    assert [epoch for epoch in range(1, 6) if log(checkpoint, epoch).find()] == [3, 5]


class Steps:
    """Lets one of several threads take its next step at a time, in an order by seed; kills some of them."""

    def __init__(self, seed: int, threads: int, chance_of_kill: float) -> None:
        self._random = random.Random(seed)
        self._kill = chance_of_kill
        self._alive = threads
        self._waiting: list[str] = []
        self._next = ""
        self._changed = threading.Condition()

    def step(self) -> None:
        """Wait for the turn of this thread."""
        me = threading.current_thread().name
        with self._changed:
            self._waiting.append(me)
            self._choose()
            assert self._changed.wait_for(lambda: self._next == me, 60)
            self._next = ""
            self._waiting.remove(me)
            if self._random.random() < self._kill:
                raise KilledError

    def end(self) -> None:
        """Take no more steps in this thread."""
        with self._changed:
            self._alive -= 1
            self._choose()

    def _choose(self) -> None:
        if self._waiting and len(self._waiting) == self._alive:
            self._next = self._random.choice(sorted(self._waiting))
            self._changed.notify_all()


@pytest.mark.parametrize("chance_of_kill", [0.0, 0.05])
def test_attempts_at_the_same_time_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chance_of_kill: float
) -> None:
    of_thread = threading.local()

    def stepping(method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            if (steps := getattr(of_thread, "steps", None)) is not None:
                steps.step()
            return method(*args)

        return call

    for method in ("write_once", "find"):
        monkeypatch.setattr(Files, method, stepping(getattr(Files, method)))
    conflicts = 0
    for seed in range(150):
        checkpoint = Checkpoint(f"fsspec+memory://{tmp_path}/{seed}")
        attempts = 2 + seed % 3
        steps, found = Steps(seed, attempts, chance_of_kill), list[bytes]()

        def attempt(number: int, steps: Steps = steps, found: list[bytes] = found, at: Checkpoint = checkpoint) -> None:
            of_thread.steps = steps
            try:
                before = log(at).find()
                found.append(log(at).write(b"%d" % number, nothing) if before is None else before)
            except KilledError:
                pass
            finally:
                steps.end()

        threads = [threading.Thread(target=attempt, args=(number,), name=str(number)) for number in range(attempts)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        later = log(checkpoint).find()
        assert set(found) <= {later}, f"seed {seed}"
        assert chance_of_kill or len(found) == attempts
        conflicts += any(".several." in each.name for each in checkpoint.results().find("000000000001"))
    assert conflicts >= 30
