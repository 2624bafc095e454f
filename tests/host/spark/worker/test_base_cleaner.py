"""Copies of the state of tasks that other machines run now are deleted, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder
from penstock.host.spark.worker import bases
from penstock.host.spark.worker.bases import BaseCleaner
from penstock.state.base_directory import BaseDirectory
from penstock_broker.common.clock import MockClock
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord

MINUTE = 60_000
DELAY = 10 * MINUTE


class Machine:
    """A machine on which one worker runs the tasks of each epoch."""

    def __init__(self, directory: Path) -> None:
        self.clock = MockClock(1_000_000_000_000)
        self.directory = directory
        self.cleaner = BaseCleaner(directory, DELAY, self.clock, self.clock.milliseconds)
        self._epoch = 0

    def epoch(self, *tasks: str) -> list[str]:
        """Run an epoch with `tasks` here, and return the bases that are left."""
        self._epoch += 1
        for task in tasks:
            self.cleaner.look(self._epoch)
            path = self.directory / "bases" / task
            used = BaseDirectory(path, "run", None)
            used.enter().mkdir(exist_ok=True)
            used.leave()
            os.utime(path / "lock", (self.clock.milliseconds() / 1000,) * 2)
            self.clock.advance(10)
        return sorted(path.name for path in (self.directory / "bases").iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_base_of_a_task_that_has_moved_is_deleted_after_the_delay(machine: Machine) -> None:
    machine.epoch("0_0", "0_1")
    for _ in range(9):
        machine.clock.advance(MINUTE)
        assert machine.epoch("0_0") == ["0_0", "0_1"]
    machine.clock.advance(2 * MINUTE)
    assert machine.epoch("0_0") == ["0_0"]


def test_no_base_is_deleted_after_a_time_without_epochs(machine: Machine) -> None:
    for _ in range(5):
        machine.clock.advance(MINUTE)
        machine.epoch("0_0", "0_1")
    for _ in range(3):
        machine.clock.advance(100 * DELAY)
        assert machine.epoch("0_0", "0_1") == ["0_0", "0_1"]


def test_a_base_that_is_open_stays(machine: Machine) -> None:
    machine.epoch("0_0", "0_1")
    BaseDirectory(machine.directory / "bases" / "0_1", "run", None).enter()
    for _ in range(3):
        machine.clock.advance(2 * DELAY)
        assert machine.epoch("0_0") == ["0_0", "0_1"]


def test_a_look_deletes_a_bounded_number(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "_MOST_DELETED", 2)
    machine.epoch("0_0", "0_1", "0_2", "0_3")
    for _ in range(2):
        machine.clock.advance(DELAY)
        machine.epoch("0_0")
    for left in (2, 1):
        machine.clock.advance(2 * MINUTE)
        assert len(machine.epoch("0_0")) == left


@pytest.mark.one_broker
@pytest.mark.partitions(2, 1)
def test_a_task_that_has_nothing_to_do_keeps_its_base_and_one_that_is_not_there_loses_it(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "_CLEAN_MS", 0)
    config = spark_runner.config(application, {"state.cleanup.delay.ms": 0})
    builder = StreamsBuilder()
    text = Serdes.string()
    counts = builder.stream(topics[0], Consumed.with_(text, text)).group_by_key().count(Materialized.as_("counts"))
    counts.to_stream().to(topics[1], Produced.with_(text, Serdes.long()))
    query = InlineQuery(builder.build(), config, spark_runner.admin)
    directory = Path(config["state.dir"]) / application / "bases"
    for number in range(5):  # the first epoch has both partitions, the others one
        spark_runner.write(
            topics[0], [InputRecord(b"k", b"v", 1_000 + number, part) for part in range(2 - (number > 0))]
        )
        query.run_to_end()
        left = sorted(path.name for path in directory.iterdir())
        if number == 0:
            gone = directory / "0_9"
            BaseDirectory(gone, "another", None).enter().mkdir()
            next(gone.glob("open.*")).unlink()
    assert left == ["0_0", "0_1"]
    query.close()
