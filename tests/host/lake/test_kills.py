"""Processes that copy a topic to a table are killed at each moment of a commit.

Then each record is one row, or, of a table with a row for each key, the last record of each key.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.lake.tables import LakeMode
from tests.support.brokers import RunningBroker
from tests.support.waiting import until

pytest.importorskip("pyiceberg", reason="the extra lake is not installed")
pytest.importorskip("deltalake", reason="the extra lake is not installed")

from tests.host.lake.program import KILLS  # needs the packages
from tests.lake.formats import FORMATS, LakeFormat, rows_of

pytestmark = [pytest.mark.one_broker, pytest.mark.crash]

ROOT = Path(__file__).parents[3]
PARTITIONS = 3
KEYS = 15


class Copying:
    """A topic, its table, and processes that copy it."""

    def __init__(self, broker: RunningBroker, topic: str, format_name: str, mode: LakeMode, directory: Path) -> None:
        self.topic, self._format, self._mode, self._directory = topic, format_name, mode, directory
        self._servers = broker.bootstrap_servers
        config = StreamsConfig({"bootstrap.servers": self._servers})
        self._admin, self._producer = ConfluentAdmin(config), ConfluentProducer(config)
        self.create_topic()
        self.lake: LakeFormat = FORMATS[format_name](directory)
        self.written: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def create_topic(self) -> None:
        self._admin.create_topics([NewTopic(self.topic, PARTITIONS)])

    def delete_topic(self) -> None:
        self._admin.delete_topics([self.topic])

    def write(self, records: int = 60) -> None:
        for number in range(records):
            text = str(len(self.written))
            self.written.append(text)
            key = text if self._mode is LakeMode.APPEND else str(number % KEYS)
            self._producer.send(self.topic, key.encode(), text.encode(), number % PARTITIONS)
        self._producer.flush()

    def start(self, *kills: str) -> subprocess.Popen[bytes]:
        arguments = self._servers, self.topic, self._format, self._mode.value, str(self._directory), *kills
        with (self._directory / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.host.lake.program", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        self._processes.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        """Let a process copy to the end of the topic; return its exit code."""
        process.communicate()
        return process.returncode

    def copied(self) -> list[str]:
        return sorted((row[0] for row in rows_of(self.lake, "value")), key=int)

    def newest(self) -> str:
        """Return the number of the newest record, -1 if there is no row."""
        return max(self.copied(), key=int, default="-1")

    def expected(self) -> list[str]:
        """Return the values of all rows; each write has the same keys."""
        return self.written if self._mode is LakeMode.APPEND else self.written[-KEYS:]

    def log(self) -> str:
        return (self._directory / "log").read_text()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._producer.close()
        self._admin.close()


@pytest.fixture(params=FORMATS)
def format_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=LakeMode)
def copying(
    request: pytest.FixtureRequest,
    broker: RunningBroker,
    unique_name: Callable[[str], str],
    format_name: str,
    tmp_path: Path,
) -> Iterator[Copying]:
    made = Copying(broker, unique_name("orders"), format_name, request.param, tmp_path)
    yield made
    made.close()


def test_a_kill_at_each_moment_of_a_commit_loses_and_doubles_nothing(copying: Copying) -> None:
    orders = [*(f"{moment}@1" for moment in KILLS), "commit.after@2"]
    copying.write()
    codes = []
    while (code := copying.finish(copying.start(*orders))) == -signal.SIGKILL:
        codes.append(code)
        copying.write(60)
    assert (code, len(codes)) == (0, len(orders)), copying.log()
    assert copying.copied() == copying.expected()


def test_processes_that_copy_at_once_and_die_lose_and_double_nothing(copying: Copying) -> None:
    draw = random.Random(5)
    copying.write()
    processes = [copying.start() for _ in range(3)]
    for _ in range(4):
        target = len(copying.written)
        assert until(lambda least=target: int(copying.newest()) >= least - 30), copying.log()
        copying.write()
        which = draw.randrange(3)
        processes[which].kill()
        processes[which] = copying.start()
    assert [copying.finish(process) for process in processes] == [0, 0, 0], copying.log()
    assert copying.copied() == copying.expected()


def test_a_topic_that_a_reset_has_deleted_begins_again(copying: Copying) -> None:
    copying.write()
    assert copying.finish(copying.start()) == 0, copying.log()
    copying.delete_topic()
    copying.create_topic()
    copying.write(20)
    assert copying.finish(copying.start("commit.after@1")) == -signal.SIGKILL
    copying.write(20)
    assert copying.finish(copying.start()) == 0, copying.log()
    assert copying.copied() == copying.expected()
