"""Applications that write tables of a lake are killed, in their commits and in those of the tables, and start again:
each record is one row, and each key has the row of its last update.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from tests.crash.processes import END_SECONDS, MarkedProcesses, start_program
from tests.host.support import TIMEOUT_SECONDS, wait_for
from tests.support.brokers import RunningBroker

pytest.importorskip("pyiceberg", reason="the extra lake is not installed")
pytest.importorskip("deltalake", reason="the extra lake is not installed")

from tests.crash import lake  # needs the packages
from tests.lake.formats import FORMATS, rows_of

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found and killed by way of /proc"),
]

PARTITIONS, KEYS, RECORDS = 3, 10, 120
POINTS = ("lake.read@0", "lake.committed@0", "lake.read@1", "lake.committed@1")
SETTINGS = {
    "threads": {
        "penstock.host": "threads",
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": 20,
        "transaction.timeout.ms": 10_000,
    },
    "spark": {
        "penstock.host": "spark",
        "penstock.spark.master": "local[2,4]",
        "penstock.spark.partitions": 2,
        "penstock.batch.max.bytes": 1024,
        "penstock.poll.ms": 20,
    },
}


class LakeProgram:
    """The program of `lake` with its topic and its tables, killed and started until the end of its input."""

    def __init__(self, servers: str, name: str, format_name: str, directory: Path) -> None:
        self._name, self._format, self._directory = name, format_name, directory
        self._servers, self._source = servers, f"{name}-in"
        self.processes = MarkedProcesses()
        self.written: list[tuple[str, str]] = []
        for table in (lake.LINES, lake.COUNTS):
            (directory / table).mkdir()
        config = StreamsConfig({"bootstrap.servers": servers})
        self._admin, self._producer = ConfluentAdmin(config), ConfluentProducer(config)
        self._admin.create_topics([NewTopic(self._source, PARTITIONS)])

    def write(self) -> None:
        for _ in range(RECORDS):
            number = len(self.written)
            key, line = f"k{number % KEYS}", f"line {number}"
            self.written.append((key, line))
            self._producer.send(self._source, key.encode(), line.encode(), number % KEYS % PARTITIONS)
        self._producer.flush()

    def live(self, settings: dict[str, Any], points: Sequence[str]) -> None:
        """Write, and start the program again after each kill, until no point of `points` is left."""
        environment = self.processes.program_environment(self._directory, points)
        config = {
            "application.id": self._name,
            "bootstrap.servers": self._servers,
            "state.dir": str(self._directory / "state"),
            "penstock.lake.commit.interval.ms": 20,
            "penstock.lake.commit.max.bytes": 400,
            "repartition.purge.interval.ms": 0,
            **settings,
            "source": self._source,
            "format": self._format,
            "directory": str(self._directory),
        }
        log = self._directory / "log"
        for _ in range(len(points) + 1):
            self.write()
            started = start_program(Path(lake.__file__), [json.dumps(config)], environment, log)
            code = started.wait(TIMEOUT_SECONDS)
            wait_for(lambda: not self.processes.running(), END_SECONDS)
            if code == 0:
                break
            assert code == -signal.SIGKILL, log.read_text(errors="replace")[-6000:]
        assert code == 0, log.read_text(errors="replace")[-6000:]
        left = [point for point in points if not (self._directory / point).exists()]
        assert not left, log.read_text(errors="replace")[-6000:]

    def assert_written_once(self) -> None:
        """Check both tables."""
        lines, counts = (FORMATS[self._format](self._directory / name) for name in (lake.LINES, lake.COUNTS))
        assert rows_of(lines, "_key, value") == sorted(self.written)
        assert rows_of(counts, "_key, value") == sorted(Counter(key for key, _ in self.written).items())

    def close(self) -> None:
        self.processes.kill()
        self._producer.close()
        self._admin.close()


@pytest.fixture(params=FORMATS)
def program(
    request: pytest.FixtureRequest, broker: RunningBroker, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[LakeProgram]:
    made = LakeProgram(broker.bootstrap_servers, unique_name("app"), request.param, tmp_path)
    yield made
    made.close()


def test_an_application_of_threads_that_dies_writes_each_record_once(program: LakeProgram) -> None:
    program.live(SETTINGS["threads"], [*POINTS, "commit.offsets@0", "commit.committed@0"])
    program.assert_written_once()


@pytest.mark.spark
@pytest.mark.one_broker
def test_an_application_on_spark_that_dies_writes_each_record_once(program: LakeProgram) -> None:
    program.live(SETTINGS["spark"], [*POINTS[:2], "transaction.after@1:driver", "manifest.before_write@2:driver"])
    program.assert_written_once()
