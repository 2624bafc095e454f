"""Processes of Spark are killed at named points of an epoch, which runs again: dropped records are in their topic once,
and each task has each record of a broadcast once.

A worker is killed, so Spark repeats its task, and then the driver, so the next start repeats the epoch.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.crash import copies
from tests.crash.processes import END_SECONDS, MarkedProcesses, start_program
from tests.host.spark.support import SparkRunner
from tests.host.support import TIMEOUT_SECONDS, InputRecord, wait_for
from tests.host.test_broadcast import by_task, messages
from tests.host.test_late_records import PARTITIONS, rounds, total
from tests.support.brokers import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.one_broker,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found and killed by way of /proc"),
]

EPOCH_BYTES = 1024
"""Limit of an epoch, so that the input, which is written in several batches, takes several."""
TASKS = 3
MESSAGES = 200


class KilledProgram:
    """One of the programs of `copies` with its topics, started until it is at the end of its input."""

    def __init__(self, runner: SparkRunner, directory: Path, name: str) -> None:
        self.runner, self.name = runner, name
        self.processes = MarkedProcesses()
        self._directory = directory

    def live(self, program: str, topics: Sequence[str], points: Sequence[str]) -> None:
        """Run to the end of the input over a kill at each of `points`, of which the last one kills the driver."""
        environment = self.processes.program_environment(self._directory, points)
        config = {
            "application.id": self.name,
            "bootstrap.servers": self.runner.bootstrap_servers,
            "state.dir": str(self._directory / "state"),
            "penstock.spark.master": "local[2,4]",
            "penstock.spark.partitions": 2,
            "penstock.batch.max.bytes": EPOCH_BYTES,
            "penstock.poll.ms": 20,
            "program": program,
            "topics": topics,
        }
        log = self._directory / "log"
        ends: list[bool] = []
        for _ in range(2):
            started = start_program(Path(copies.__file__), [json.dumps(config)], environment, log)
            ends.append(started.wait(TIMEOUT_SECONDS) == 0)
            wait_for(lambda: not self.processes.running(), END_SECONDS)
        assert ends == [False, True], log.read_text(errors="replace")[-6000:]
        assert all((self._directory / point).exists() for point in points)


@pytest.fixture
def killed(broker: RunningBroker, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[KilledProgram]:
    """A program, none of whose processes outlives the test."""
    runner = SparkRunner(broker.bootstrap_servers, tmp_path / "runner")
    program = KilledProgram(runner, tmp_path, unique_name("app"))
    yield program
    program.processes.kill()
    runner.close()


def test_late_records_are_written_once_though_their_epoch_runs_again(killed: KilledProgram) -> None:
    runner, prefix = killed.runner, killed.name
    topics = [f"{prefix}-{name}" for name in ("in", "keys", "values", "late-keys", "late-values")]
    runner.create_topics(dict.fromkeys(topics, PARTITIONS))
    written = rounds(seed=6)
    for records in written:
        runner.write(topics[0], records)
    killed.live("late", topics, ["segment.after_write@1", "transaction.after@2:driver"])
    for counted, dropped in (topics[1::2], topics[2::2]):
        late = runner.read(dropped)
        assert total(runner.read(counted)) + len(late) == sum(map(len, written))
        numbers = Counter(dict(record.headers)["number"] for record in late)
        assert len(numbers) > 40
        assert set(numbers.values()) == {1}


def test_a_broadcast_reaches_each_task_once_though_its_epoch_runs_again(killed: KilledProgram) -> None:
    runner, topics = killed.runner, [f"{killed.name}-{name}" for name in ("control", "data", "out")]
    runner.create_topics(dict(zip(topics, (1, TASKS, 1), strict=True)))
    for first in range(0, MESSAGES, 40):
        runner.write(topics[0], messages(*range(first, first + 40)))
    runner.write(topics[1], [InputRecord(b"d", b"d%d" % n, 5_000 + n, n) for n in range(TASKS)])
    killed.live("broadcast", topics, ["task.after_process@1", "transaction.open@2:driver"])
    sent = [b"m%d" % number for number in range(MESSAGES)]
    assert by_task(runner, topics[2]) == {b"%d" % n: [*sent, b"d%d" % n] for n in range(TASKS)}
