"""What workers say of a rebuild comes to the driver, if it is of this run and not over."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock.clock import MockClock
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.worker import restore_progress
from penstock.host.spark.worker.restore_progress import RestoreProgress, RestoreWatch

EPOCH = 5
GENERATION = 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    clock = MockClock(1_000_000)
    monkeypatch.setattr(restore_progress, "SystemClock", lambda: clock)
    return clock


def progress(checkpoint: Checkpoint, generation: int = GENERATION, epoch: int = EPOCH) -> RestoreProgress:
    begun = RestoreProgress(checkpoint, generation, "0_1", epoch)
    begun.begin(100)
    return begun


def test_a_rebuild_that_takes_long_is_told_until_it_ends(
    tmp_path: Path, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    watch = RestoreWatch(checkpoint)
    rebuild = progress(checkpoint)
    clock.advance(10_000)
    rebuild.restored(40)
    with caplog.at_level(logging.INFO, logger="penstock"):
        watch.look(GENERATION, EPOCH - 1)
        assert watch.snapshot() == {"0_1": (40, 100)}
        clock.advance(10_000)
        rebuild.restored(60)
        rebuild.end()
        watch.look(GENERATION, EPOCH - 1)
    assert watch.snapshot() == {}
    told = [record for record in caplog.records if record.name == restore_progress.__name__]
    assert [record.getMessage() for record in told] == [
        "Task 0_1 restores its state: 40 of 100 entries.",
        "Task 0_1 has restored its state.",
    ]
    assert not list((tmp_path / "restoring").iterdir())


def test_a_short_rebuild_writes_nothing(tmp_path: Path, clock: MockClock) -> None:
    rebuild = progress(Checkpoint(str(tmp_path)))
    rebuild.restored(100)
    rebuild.end()
    assert not (tmp_path / "restoring").exists()


@pytest.mark.parametrize(("generation", "epoch"), [(GENERATION - 1, EPOCH), (GENERATION, EPOCH - 1)])
def test_news_of_another_run_or_a_committed_epoch_is_void(
    tmp_path: Path, clock: MockClock, generation: int, epoch: int
) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    left_behind = progress(checkpoint, generation, epoch)
    clock.advance(10_000)
    left_behind.restored(10)
    watch = RestoreWatch(checkpoint)
    watch.look(GENERATION, EPOCH - 1)
    assert watch.snapshot() == {}


def test_the_driver_looks_every_other_second(tmp_path: Path, clock: MockClock) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    watch = RestoreWatch(checkpoint)
    watch.look(GENERATION, EPOCH - 1)
    rebuild = progress(checkpoint)
    clock.advance(1_000)
    rebuild.restored(10)
    watch.look(GENERATION, EPOCH - 1)
    assert watch.snapshot() == {}
    clock.advance(1_000)
    watch.look(GENERATION, EPOCH - 1)
    assert watch.snapshot() == {"0_1": (10, 100)}
