"""The process that makes the calls of an application on Spark is killed, or its driver, around a call: each answer is
used once, and no call is made again whose answer was written. So is a task that parks records: each has one result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.crash import calling
from tests.crash.processes import MarkedProcesses, start_program
from tests.crash.seed import ALL, SEED
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, wait_for
from tests.support.brokers import ON_KAFKA, RunningBroker
from tests.support.call_answers import first_results

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.timeout(7200 if ALL else 1200),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found and killed by way of /proc"),
]

_WINDOW = 2 * calling.CAPACITY
"""Most attempts that a kill cuts off: those in flight, and those whose answers are not written."""

_SIZES = dict.fromkeys(("batches", "reconciled batches", "model"), calling.BATCH_SIZE)
"""The number of records in an attempt, 1 for other kinds."""

_EACH = 30
"""Records that are written for each kill."""

_ORDERS = (
    "call.made@3",
    "call.answered@5",
    "call.written@5:driver",
    "call.answered@8:driver",
    "call.written@8",
    "source.planned@9",
    "transaction.after@12",
    "task.before_process@13",
    "source.partitions@14",
    "task.after_process@15",
    "segment.torn_write@16:driver",
    "segment.after_write@17",
    "base.after_apply@18",
    "transaction.before@19:driver",
    "transaction.open@20",
    "manifest.before_write@21",
    "manifest.torn_write@22",
    "manifest.after_write@23",
)
_ORDERS_OF_PARKED = (
    "task.after_process@4",
    "base.after_apply@7",
    "transaction.after@10:driver",
    "transaction.open@12:driver",
    "manifest.before_write@14",
    "result.torn_write@16",
    "result.after_write@18:driver",
    "transaction.after@20",
    "transaction.before@22:driver",
    "segment.torn_write@23",
    "segment.after_write@24",
    "manifest.after_write@25",
)
_SAMPLE = ("call.answered@5", "call.written@5:driver", "task.after_process@4", "transaction.after@10:driver")

_FIRST, _OTHERS = calling.KINDS[:2], calling.KINDS[2:]
_KINDS = (*_FIRST, *(_OTHERS if ALL else (_OTHERS[SEED % len(_OTHERS)],)))


class CallingProgram:
    """A program that is started again whenever it has ended."""

    def __init__(self, runner: SparkRunner, name: str, directory: Path, kind: str) -> None:
        """Make the topics; nothing is started yet. kind: see `calling`."""
        self.kind = kind
        orders = _ORDERS_OF_PARKED if kind == calling.PARKED else _ORDERS
        self.orders = tuple(order for order in orders if ALL or order in _SAMPLE)
        self.target, self.answers = f"{name}-out", f"{name}-{calling.NODE}-answers"
        self.starts = 0
        self.made = directory / "made"
        self.processes = MarkedProcesses()
        self._runner, self._directory, self._source = runner, directory, f"{name}-in"
        self._config = {
            "application.id": name,
            "bootstrap.servers": runner.bootstrap_servers,
            "state.dir": str(directory / "state"),
            "penstock.spark.master": "local[2,4]",
            "penstock.spark.partitions": 2,
            "penstock.poll.ms": 20,
            "repartition.purge.interval.ms": 3_600_000,  # so that all answers are there at the end
            "source": self._source,
            "target": self.target,
            "kind": kind,
        }
        self._running: subprocess.Popen[bytes] | None = None
        self._written = 0
        (directory / "struck").mkdir()
        runner.create_topics({self._source: 2, self.target: 2})

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Keep the program running until the condition is met."""

        def is_met() -> bool:
            if self._running is None or self._running.poll() is not None:
                assert self.starts <= len(self.orders), self.log()
                self.processes.kill()
                self._start()
            return condition()

        try:
            wait_for(is_met)
        except TimeoutError as error:
            error.add_note(f"Carried out: {sorted(self.struck())}. {self.log()[-5000:]}")
            raise

    def _start(self) -> None:
        self.starts += 1
        environment = {
            **self.processes.program_environment(self._directory, self.orders, self._directory / "struck"),
            calling.MADE: str(self.made),
        }
        arguments = [json.dumps(self._config)]
        self._running = start_program(Path(calling.__file__), arguments, environment, self._directory / "log")

    def log(self) -> str:
        """Return what the program has printed."""
        return (self._directory / "log").read_text(errors="replace")

    def write(self) -> int:
        """Write records; return how many there are now."""
        numbers = range(self._written, self._written + _EACH)
        self._runner.write(
            self._source,
            [InputRecord(b"%d" % (number % 6), b"%d" % number, 1_000 + number, number % 2) for number in numbers],
        )
        self._written += _EACH
        return self._written

    def output(self) -> list[str]:
        """Return the values of the output."""
        return [record.value.decode() for record in self._runner.read(self.target) if record.value is not None]

    def struck(self) -> set[str]:
        """Return the orders that were carried out."""
        return {path.name for path in (self._directory / "struck").iterdir()}

    def has_come_to(self, order: str) -> bool:
        """Return whether an order was carried out; write more records if all have their answers before that."""
        if order in self.struck():
            return True
        if len(self.output()) >= self._written:
            self.write()
        return False

    def first_answers(self) -> list[str]:
        """Return the first answer in the topic for each record."""
        answers = [(record.partition, record.value) for record in self._runner.read(self.answers)]
        return first_results(answers, self.answers)


@pytest.fixture(params=_KINDS)
def program(
    broker: RunningBroker, unique_name: Callable[[str], str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[CallingProgram]:
    """A program that does not outlive the test."""
    runner = SparkRunner(broker.bootstrap_servers, tmp_path / "runner")
    made = CallingProgram(runner, unique_name("app"), tmp_path, request.param)
    yield made
    made.processes.kill()
    runner.close()


@pytest.mark.parametrize(
    "broker", ["embedded", pytest.param("kafka", marks=(*ON_KAFKA, pytest.mark.long))], indirect=True
)
def test_each_answer_is_used_once_whoever_is_killed(program: CallingProgram) -> None:
    for order in program.orders:
        program.write()
        program.run_until(partial(program.has_come_to, order))
    count = program.write()
    program.run_until(lambda: len(program.output()) >= count)
    output = program.output()
    made = program.made.read_text().split("\n")[:-1]
    assert sorted(int(value.partition(" ")[0]) for value in output) == list(range(count)), program.log()
    if program.kind == calling.PARKED:
        return  # these calls are made in the task, and again when their epoch is replayed
    assert set(output) <= set(made)
    assert set(output) == set(program.first_answers())
    cut_off = len(program.orders) * _WINDOW * _SIZES.get(program.kind, 1)
    assert len(made) <= count + (0 if program.kind.startswith("reconciled") else cut_off)
