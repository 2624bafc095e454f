"""Leads an application and the embedded broker, both on one disk, through losses of power at random moments.

What must hold afterwards is in the test. Every wait has a bound.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.process import BrokerProcess
from tests.crash import power_program
from tests.crash.processes import MarkedProcesses, start_program
from tests.host.spark.support import SparkRunner
from tests.host.support import OutputRecord, wait_for
from tests.support.loop_disk import LoopDisk
from tests.support.ports import free_port

DISK_MEGABYTES = 512
PARTITIONS = 2
FORCED = {"flush.messages": "1"}

_LINES_AT_ONCE = 5
_COMMIT_SECONDS = 600.0
"""How long an application may take to commit after a start."""
_MOST_SECONDS = 3.0
"""How long it lives after that, at most."""
_NEW_CHECKPOINT = "Start with a new checkpoint"
"""The remedy in the error of an application on Spark if its topics have lost records that it has processed."""
_CONFIG: Mapping[str, Mapping[str, object]] = {
    "threads": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "commit.interval.ms": 100},
    "spark": {"penstock.spark.master": "local[2,4]", "penstock.spark.partitions": 2, "penstock.poll.ms": 20},
}


class PowerTrial:
    """An application, its broker and their disk; a context manager that leaves no process behind.

    acknowledged: the lines that the broker has acknowledged, in the order of each partition.
    """

    def __init__(self, host: str, configs: Mapping[str, str], disk: LoopDisk, directory: Path, seed: int) -> None:
        """Make the topics; the application is not started yet.

        Args:
            host: threads or spark.
            configs: the configuration of the topics of input and output.
            disk: for the data of the broker and the state of the application.
            directory: for what outlives a loss of power.
            seed: draws the moments.
        """
        self.acknowledged: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        self._directory = directory
        self._random = random.Random(seed)
        self._lines = 0
        self._disk = disk
        self._broker = BrokerProcess(disk.path / "broker", port=free_port())
        self._application = MarkedProcesses()
        self._log_bytes = 0
        self._broker.start()
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        topics = [NewTopic(name, PARTITIONS, 1, config=dict(configs)) for name in ("in", "out")]
        for made in admin.create_topics(topics).values():
            made.result(60)
        self._config = {
            "application.id": "app",
            "bootstrap.servers": self._broker.bootstrap_servers,
            "processing.guarantee": "exactly_once_v2",
            "penstock.host": host,
            "state.dir": str(disk.path / "state"),
            "statestore.cache.max.bytes": 0,
            "source": "in",
            "target": "out",
            **_CONFIG[host],
        }

    def __enter__(self) -> PowerTrial:
        return self

    def __exit__(self, *_: object) -> None:
        self._application.kill()
        self._broker.kill()

    def live(self, losses: int) -> None:
        """Go through losses of power, while input is written."""
        for _ in range(losses):
            self._start()
            ends = self._random.uniform(0, _MOST_SECONDS)
            self._write_until_commit(ends)
            self._lose_power()
        self._start()
        self._write_until_commit(0)

    def _start(self) -> None:
        environment = self._application.program_environment(self._directory)
        if self._broker.pid is None:
            self._broker.start()
        self._log_bytes = len(self._log())
        arguments = [json.dumps(self._config)]
        start_program(Path(power_program.__file__), arguments, environment, self._directory / "application.log")

    def _log(self) -> bytes:
        path = self._directory / "application.log"
        return path.read_bytes() if path.exists() else b""

    def _follow_remedy(self) -> None:
        """Start the application with a new checkpoint if its error asks for it."""
        if _NEW_CHECKPOINT.encode() in self._log()[self._log_bytes :]:
            self._application.kill()
            shutil.rmtree(Path(str(self._config["state.dir"])) / str(self._config["application.id"]))
            self._start()

    def _write_until_commit(self, more_seconds: float) -> None:
        """Write input until the application has committed output, and for some seconds more."""
        producer = Producer({"bootstrap.servers": self._broker.bootstrap_servers, "enable.idempotence": True})
        watching = Consumer({"bootstrap.servers": self._broker.bootstrap_servers, "group.id": "watching"})
        before = _committed(watching)
        deadline = time.monotonic() + _COMMIT_SECONDS
        ends: float | None = None
        while ends is None or time.monotonic() < ends:
            self._write(producer)
            self._follow_remedy()
            if ends is None and _committed(watching) > before:
                ends = time.monotonic() + more_seconds
            assert time.monotonic() < deadline, self.story("no commit")
        assert producer.flush(60) == 0, "the broker acknowledges nothing"
        watching.close()

    def _write(self, producer: Producer) -> None:
        for _ in range(_LINES_AT_ONCE):
            self._lines += 1
            line = f"line-{self._lines} a w{self._lines % 7}"
            producer.produce("in", line, partition=self._lines % PARTITIONS, on_delivery=self._note)
        producer.poll(0.02)

    def _note(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[message.partition()].append(message.value().decode())  # type: ignore[attr-defined]  # untyped

    def _lose_power(self) -> None:
        frozen = [process.pid for process in self._application.running()]
        for pid in (*frozen, self._broker.pid):
            with suppress(ProcessLookupError):
                os.kill(pid or 0, signal.SIGSTOP)
        with suppress(FileNotFoundError):
            said = (self._disk.path / "broker" / "broker.log").read_bytes()
            (self._directory / "broker.log").write_bytes(said)
        self._disk.lose_power(self._kill)

    def _kill(self) -> None:
        self._application.kill()
        self._broker.kill()

    def story(self, what: str) -> str:
        """Return what went wrong, with the ends of the logs."""
        logs = [self._directory / "application.log", self._directory / "broker.log"]
        return "\n".join([what, *(path.read_text(errors="replace")[-4000:] for path in logs if path.exists())])

    # ---------- what it left

    def _read(self, topic: str) -> list[OutputRecord]:
        runner = SparkRunner(self._broker.bootstrap_servers, self._directory)
        try:
            return runner.read(topic)
        finally:
            runner.close()

    def output(self) -> list[OutputRecord]:
        """Return the committed records of the output, partition by partition."""
        return self._read("out")

    def input(self) -> dict[int, list[str]]:
        """Return the lines of the input topic, by partition."""
        found: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        for record in self._read("in"):
            found[record.partition].append((record.value or b"").decode())
        return found

    def wait_for_counts(self, expected: Mapping[str, int]) -> None:
        """Wait until the output has each word with its last count."""
        try:
            wait_for(lambda: expected.items() <= last_counts(self.output()).items(), _COMMIT_SECONDS)
        except TimeoutError:
            found = last_counts(self.output())
            wrong = {word: (found.get(word), count) for word, count in expected.items() if found.get(word) != count}
            raise AssertionError(
                self.story(f"{len(wrong)} words are wrong, found and expected: {list(wrong.items())[:20]}")
            ) from None


def _committed(consumer: Consumer) -> int:
    """Return the end of the committed output, over all partitions."""
    ends = (consumer.get_watermark_offsets(TopicPartition("out", partition), 60) for partition in range(PARTITIONS))
    return sum(end for _, end in ends)


def last_counts(output: list[OutputRecord]) -> dict[str, int]:
    """Return the last count of each word."""
    return {(record.key or b"").decode(): int.from_bytes(record.value or b"", "big") for record in output}


def words_of(lines: Mapping[int, list[str]]) -> Counter[str]:
    """Return how often each word is in the lines."""
    return Counter(word for partition in lines.values() for line in partition for word in line.split())
