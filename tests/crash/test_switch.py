"""A switch to a changed program is killed at each of its points: there is always one owner, and each record is counted
once.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.api import NewTopic
from penstock.host.crashpoints import SWITCH_POINTS
from tests.crash import switching
from tests.crash.processes import END_SECONDS, MarkedProcesses, start_program
from tests.host.support import TIMEOUT_SECONDS, InputRecord, wait_for
from tests.host.threads.runner import ThreadsRunner
from tests.support.brokers import RunningBroker

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.one_broker,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found and killed by way of /proc"),
]

KEYS = 10


class SwitchedProgram:
    """The programs of `switching` with their topics."""

    def __init__(self, servers: str, name: str, directory: Path) -> None:
        self._runner = ThreadsRunner(servers, directory)  # for its clients
        self._servers, self._name, self._directory = servers, name, directory
        self._source, self.target = f"{name}-in", f"{name}-out"
        self.processes = MarkedProcesses()
        self.log = directory / "log"
        self.written: list[InputRecord] = []
        self._runner.admin.create_topics([NewTopic(self._source, 2), NewTopic(self.target, 2)])

    def write(self) -> None:
        begin = len(self.written)
        records = [InputRecord(f"k{n % KEYS}".encode(), b"", 1_000 + n, n % KEYS % 2) for n in range(begin, begin + 40)]
        self.written += records
        self._runner.write(self._source, records)

    def start(self, role: str, *points: str) -> subprocess.Popen[bytes]:
        environment = self.processes.program_environment(self._directory, points)
        config = {
            "application.id": self._name,
            "bootstrap.servers": self._servers,
            "state.dir": str(self._directory / "state"),
            "penstock.host": "spark",
            "penstock.spark.master": "local[2]",
            "penstock.spark.partitions": 2,
            "penstock.poll.ms": 20,
            "statestore.cache.max.bytes": 0,
            "role": role,
            "source": self._source,
            "target": self.target,
        }
        return start_program(Path(switching.__file__), [json.dumps(config)], environment, self.log)

    def run(self, role: str, *points: str) -> int:
        """Run a role to its end, and return its exit code."""
        return self.start(role, *points).wait(TIMEOUT_SECONDS)

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def await_output(self) -> None:
        """Wait until all input is counted."""
        wait_for(lambda: len(self._runner.read(self.target)) >= len(self.written), TIMEOUT_SECONDS)

    def assert_counted_once(self) -> None:
        found = Counter((each.key, each.value) for each in self._runner.read(self.target))
        numbers = Counter(each.key for each in self.written)
        assert found == Counter((key, b"%d" % n) for key, count in numbers.items() for n in range(1, count + 1))

    def close(self) -> None:
        self.processes.kill()
        self._runner.close()


@pytest.fixture
def program(broker: RunningBroker, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[SwitchedProgram]:
    made = SwitchedProgram(broker.bootstrap_servers, unique_name("app"), tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("point", SWITCH_POINTS)
def test_a_killed_switch_leaves_one_owner(program: SwitchedProgram, point: str) -> None:
    program.write()
    old = program.start("old")
    program.await_output()
    switching_process = program.start("switch", point)
    program.write()
    assert switching_process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL, program.text()[-6000:]
    assert old.wait(TIMEOUT_SECONDS) == 0, program.text()[-6000:]
    wait_for(lambda: not program.processes.running(), END_SECONDS)
    program.write()
    if point == "switch.after":
        assert program.run("old to end") == 1
        assert "has replaced this program" in program.text()
    else:
        assert program.run("old to end") == 0, program.text()[-6000:]
        assert program.run("switch") == 0, program.text()[-6000:]
    assert program.run("new to end") == 0, program.text()[-6000:]
    program.write()
    assert program.run("new to end") == 0, program.text()[-6000:]
    program.assert_counted_once()
