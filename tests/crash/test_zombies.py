"""A program stands still in the middle of an epoch, as a machine that swaps or a suspended one does; another one
replaces it, and the first continues: it ends on its own, and the output of the other one shows nothing of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.lock import LOCK_FILE
from tests.crash import replaced
from tests.crash.processes import END_SECONDS, MarkedProcesses, Process, start_program
from tests.crash.seed import ALL, SEED
from tests.crash.test_kills import assert_strictly_growing, final_counts
from tests.host.spark.support import SparkRunner
from tests.host.support import TIMEOUT_SECONDS, lines, wait_for
from tests.support.brokers import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found and stopped by way of /proc"),
]

_STOPPED_IN_EPOCH = 2
AFTER_MANIFEST = "manifest.after_write"
BROKERS = ("embedded", pytest.param("kafka", marks=pytest.mark.kafka))
POINTS = (AFTER_MANIFEST, "manifest.before_write", "transaction.open", "source.planned")


class Programs:
    """Programs of one application on one checkpoint, each as if on a separate machine."""

    def __init__(self, runner: SparkRunner, name: str, directory: Path) -> None:
        """Make the topics; nothing is started yet."""
        self.target = f"{name}-out"
        self.processes = MarkedProcesses()
        self.checkpoint = Checkpoint(str(directory / "checkpoint"))
        self._runner, self._directory, self._source = runner, directory, f"{name}-in"
        self._config = {
            "application.id": name,
            "bootstrap.servers": runner.bootstrap_servers,
            "penstock.checkpoint.dir": self.checkpoint.uri,
            "penstock.spark.master": "local[2]",
            "penstock.spark.partitions": 2,
            "penstock.poll.ms": 20,
        }
        self._expected = Counter[str]()
        runner.create_topics({self._source: 2, self.target: 2})

    def start(self, machine: str, crash_points: str = "") -> subprocess.Popen[bytes]:
        """Start one on `machine`, which has a state.dir and a log."""
        directory = self.directory(machine)
        directory.mkdir()
        environment = self.processes.program_environment(self._directory, crash_points.split(), directory)
        values = {**self._config, "state.dir": str(directory / "state"), "source": self._source, "target": self.target}
        return start_program(Path(replaced.__file__), [json.dumps(values)], environment, directory / "log")

    def directory(self, machine: str) -> Path:
        """Return where the program on `machine` has its state and log, and where it notes its crash points."""
        return self._directory / machine

    def log(self, machine: str) -> str:
        """Return what the program on `machine` has printed."""
        return (self.directory(machine) / "log").read_text(errors="replace")

    def unlock(self) -> None:
        """Take the lock of the checkpoint away, which holds on one machine alone."""
        (self._directory / "checkpoint" / LOCK_FILE).unlink()

    def write(self, text: str) -> None:
        """Write a line of words."""
        self._runner.write(self._source, lines([text], 2))
        self._expected.update(text.split())

    def wait_for_output(self) -> None:
        """Wait until the last counts are those of all that was written, and check that no count is there twice."""

        def is_there() -> bool:
            output = self._runner.read(self.target)
            assert_strictly_growing(output)
            return final_counts(output) == self._expected

        wait_for(is_there)


@pytest.fixture
def programs(broker: RunningBroker, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Programs]:
    """Programs of an application, none of which outlives the test."""
    runner = SparkRunner(broker.bootstrap_servers, tmp_path / "runner")
    started = Programs(runner, unique_name("app"), tmp_path)
    yield started
    started.processes.kill()
    runner.close()


def signal_all(processes: Sequence[Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


@pytest.mark.parametrize("broker", BROKERS if ALL else [BROKERS[SEED % 2]], indirect=True)
@pytest.mark.parametrize("point", POINTS if ALL else [AFTER_MANIFEST])
def test_a_program_that_stood_still_ends_once_another_has_its_place(programs: Programs, point: str) -> None:
    order = f"{point}@{_STOPPED_IN_EPOCH}:stop"
    older = programs.start("older", order)
    programs.write("a b")
    programs.wait_for_output()
    programs.write("a c")
    wait_for((programs.directory("older") / order).exists)
    frozen = programs.processes.running()
    signal_all(frozen, signal.SIGSTOP)

    programs.unlock()
    newer = programs.start("newer")
    for words in ("a b d", "d"):  # two epochs, also if what the older program planned left no trace
        programs.write(words)
        programs.wait_for_output()
    wait_for(lambda: programs.checkpoint.last_epoch() > _STOPPED_IN_EPOCH)
    signal_all(frozen, signal.SIGCONT)

    assert older.wait(TIMEOUT_SECONDS) == 1
    gone = {process.pid for process in frozen}
    wait_for(lambda: gone.isdisjoint(process.pid for process in programs.processes.running()), END_SECONDS)
    errors = [line for line in programs.log("older").splitlines() if line.startswith("handler: ")]
    assert [error.split(": ")[1] for error in errors] == ["TaskMigratedError"], programs.log("older")
    assert "does not restart: another program has replaced it" in programs.log("older")
    programs.write("c d e")
    programs.wait_for_output()
    assert newer.poll() is None
    assert "handler: " not in programs.log("newer")
