"""An application runs on and on, beside its broker and the readers of its pages, and takes no more descriptors, memory
and disk than before.

`make soak HOST=threads MINUTES=30`, or HOST=spark. The first quarter of the time is the warm-up.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.record import TopicPartition
from penstock_broker.process import BrokerProcess
from tests.host.support import wait_for
from tests.soak import program
from tests.soak.figures import MIB, figures_of, growth
from tests.soak.visitors import Visitors
from tests.support.ports import free_port
from tests.support.sources import SOURCES

MINUTES = float(os.environ.get("PENSTOCK_SOAK_MINUTES") or 5)
HOST = os.environ.get("PENSTOCK_SOAK_HOST") or "threads"
_ROOT = Path(__file__).parents[2]

WORDS = 500
_RECORDS_A_SECOND = 300
_START_SECONDS = 120.0
_SMALL = {"internal.segment.bytes": str(128 * 1024), "file.delete.delay.ms": "1000"}
_ENDS_SOON = {**_SMALL, "cleanup.policy": "delete", "retention.bytes": str(512 * 1024)}
_COMPACTED = {**_SMALL, "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "1000"}
_BROKER = {
    "log-cleaner-backoff-ms": 1_000,
    "log-initial-task-delay-ms": 1_000,
    "log-retention-check-interval-ms": 5_000,
}

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600 + 60 * MINUTES)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    arguments = [text for name, value in _BROKER.items() for text in (f"--{name}", str(value))]
    with BrokerProcess(tmp_path / "broker", auto_create_topics=False, arguments=arguments) as broker:
        yield broker


class Soak:
    """An application with its broker, and what they take from second to second."""

    def __init__(self, broker: BrokerProcess, directory: Path) -> None:
        """Make the topics, and start the application."""
        self.of_application: list[dict[str, float]] = []
        self.of_broker: list[dict[str, float]] = []
        client = StreamsConfig({"bootstrap.servers": broker.bootstrap_servers})
        self._admin, self._producer = ConfluentAdmin(client), ConfluentProducer(client)
        self._broker, self._directory, self._draw = broker, directory, random.Random(7)
        topics = (program.INPUT, program.COUNTS, program.SECONDS)
        self._admin.create_topics([NewTopic(topic, 2, config=_ENDS_SOON) for topic in topics])
        port = free_port()
        self.metrics = f"http://127.0.0.1:{port}/metrics"
        self._log = directory / "log"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(program.__file__)), json.dumps(self._config(port))],
                env={**os.environ, "PYTHONPATH": f"{SOURCES}:{_ROOT}"},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )

    def _config(self, port: int) -> dict[str, Any]:
        return {
            "application.id": "soak",
            "bootstrap.servers": self._broker.bootstrap_servers,
            "penstock.host": HOST,
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": 250,
            "state.dir": str(self._directory / "state"),
            "repartition.purge.interval.ms": 2_000,
            "penstock.ui.port": 0,
            "penstock.http.timeout.ms": 5_000,
            "penstock.metrics.prometheus.port": port,
            "penstock.manifests.retained": 10,
            "windowstore.changelog.additional.retention.ms": 1_000,  # the default keeps windows for a day
            **{f"topic.{key}": value for key, value in _COMPACTED.items()},
        }

    def close(self) -> None:
        """End the application."""
        self._process.kill()
        self._process.wait()
        self._producer.close()
        self._admin.close()

    def pages(self) -> str:
        """Wait until the application shows itself, and return where."""

        def found() -> re.Match[str] | None:
            assert self._process.poll() is None, self._log.read_text()
            return re.search(r"shows itself at (http://\S+/)", self._log.read_text())

        wait_for(lambda: found() is not None, _START_SECONDS)
        match = found()
        assert match is not None
        return match[1]

    def write(self) -> None:
        """Write the records of a second."""
        for _ in range(_RECORDS_A_SECOND):
            word = b"word%d" % self._draw.randrange(WORDS)
            self._producer.send(program.INPUT, word, word)
        self._producer.flush()

    def run(self, number: int) -> None:
        """Let a second pass, with records; then look."""
        self.write()
        time.sleep(1)  # the soak itself
        assert self._process.poll() is None, self._log.read_text()
        assert self._broker.pid is not None
        self.of_application.append(figures_of(self._process.pid, [self._directory / "state"]))
        self.of_broker.append(figures_of(self._broker.pid, [self._directory / "broker"]))
        if number % 15 == 0:
            print(number, readable(self.of_application[-1]), "broker:", readable(self.of_broker[-1]), flush=True)

    def lag(self) -> int:
        """Return how many records are not processed."""
        partitions = [TopicPartition(program.INPUT, number) for number in range(2)]
        ends = self._admin.end_offsets(partitions, read_committed=True)
        committed = self._admin.committed_offsets("soak", partitions, stable=False)
        return sum(end - (committed[each].offset if each in committed else 0) for each, end in ends.items())


def readable(figures: Mapping[str, float]) -> str:
    memory, disk = (figures[name] / MIB for name in ("memory", "disk"))
    counts = f"{figures['processes']:.0f} processes, {figures['descriptors']:.0f} descriptors"
    return f"{counts}, {memory:.0f} MiB of memory, {disk:.1f} MiB on disk"


def test_an_application_that_runs_on_takes_no_more_than_before(broker: BrokerProcess, tmp_path: Path) -> None:
    soak = Soak(broker, tmp_path)
    try:
        pages = soak.pages()
        soak.write()
        wait_for(lambda: soak.lag() == 0, _START_SECONDS)
        deadline = time.monotonic() + 60 * MINUTES
        with Visitors(pages, soak.metrics) as visitors:
            while time.monotonic() < deadline:
                soak.run(len(soak.of_application))
        wait_for(lambda: soak.lag() == 0, _START_SECONDS)
        assert visitors.visits > len(soak.of_application) // 2
        assert growth(soak.of_application) == {}, "of the application"
        assert growth(soak.of_broker) == {}, "of the broker"
    finally:
        soak.close()
