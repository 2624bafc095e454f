"""Runs topologies on Spark to the end of their inputs, many in one session, and reads what came out: topics and stores.

Used by the tests of the host and by the interpreter of the oracle's cases. A runner is not a fixture: make one with a
broker's address and a directory, close it at the end.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.driver.spark_host import SparkHost
from penstock.host.spark.session import make_session, open_for_calls
from penstock.plan.topology import Topology
from penstock.record import Headers, TopicPartition
from penstock.state.memory import MemoryBase
from penstock.state.segment_log import log_from_json, path
from penstock.state.segments import decode
from penstock.task.task_checkpoint import TaskCheckpoint
from tests.support.waiting import until

TIMEOUT_SECONDS = 240


class InputRecord(NamedTuple):
    """A record to be written: bytes, and a timestamp in ms."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int = 0
    headers: Headers = ()


class OutputRecord(NamedTuple):
    """A record that was read, as bytes."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass
class Listening:
    """A listener of a host that waits. responses: to the failures that come, in order; then SHUTDOWN_CLIENT."""

    ended: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    states: list[str] = field(default_factory=list)
    responses: list[StreamThreadExceptionResponse] = field(default_factory=list)

    def on_running(self) -> None:
        self.states.append("RUNNING")

    def on_rebalancing(self) -> None:
        self.states.append("REBALANCING")

    def on_stopped(self) -> None:
        self.ended.set()

    def on_failure(self, error: BaseException) -> StreamThreadExceptionResponse:
        self.states.append(type(error).__name__)
        return self.responses.pop(0) if self.responses else StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    def on_error(self, error: BaseException) -> None:
        self.error = error
        self.ended.set()


@dataclass(frozen=True)
class Ended:
    """How a run ended: figures, what functions printed, the line about the guarantee."""

    statistics: Mapping[str, Any]
    printed: str
    summary: str


class SparkRunner:
    """Runs topologies on one broker in one local session."""

    def __init__(self, bootstrap_servers: str, directory: Path, partitions: int = 2) -> None:
        """Connect to the broker; the session starts with the first run. partitions: of each level of a topology."""
        self.bootstrap_servers = bootstrap_servers
        self.directory = directory
        self._partitions = partitions
        self._session: SparkSession | None = None
        connection = StreamsConfig({"bootstrap.servers": bootstrap_servers})
        self.admin = ConfluentAdmin(connection)
        self._connection = connection
        self._producer = ConfluentProducer(connection)
        self._fetcher = ConfluentFetcher(connection)

    def close(self) -> None:
        """End the session and the clients."""
        if self._session is not None:
            self._session.stop()
            self._session = None
        self._producer.close()
        self._fetcher.close()
        self.admin.close()

    @property
    def session(self) -> SparkSession:
        """The session, started when first asked for."""
        if self._session is None:
            config = self.config("penstock-tests")
            self._session = make_session(config, self.directory / "session")
            open_for_calls(self._session)  # before the clients of many tests are open in this process
        return self._session

    def config(self, application_id: str, values: Mapping[str, Any] | None = None) -> StreamsConfig:
        """Return the configuration of an application; its state goes below the runner's directory."""
        return StreamsConfig(
            {
                "application.id": application_id,
                "bootstrap.servers": self.bootstrap_servers,
                "state.dir": str(self.directory / "state"),
                "statestore.cache.max.bytes": 0,
                "penstock.spark.partitions": self._partitions,
                "penstock.poll.ms": 20,
                **(values or {}),
            }
        )

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics with their numbers of partitions; records stay for ever, whatever their timestamps."""
        config = {"retention.ms": "-1"}
        self.admin.create_topics([NewTopic(name, count, config=config) for name, count in partitions.items()])

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase `topic` to `total` partitions, and make the runner write to all of them."""
        self.admin.create_partitions(topic, total)
        self._producer.close()
        self._producer = ConfluentProducer(self._connection)  # the one before knows those that there were, for minutes

    def write(self, topic: str, records: Iterable[InputRecord]) -> None:
        """Write `records` in order."""
        for record in records:
            self._producer.send(topic, record.key, record.value, record.partition, record.timestamp, record.headers)
        self._producer.flush()

    def run(self, topology: Topology, config: StreamsConfig, session: SparkSession | None = None) -> Ended:
        """Run to the end of the inputs; raises the error that ended the run."""
        host = self.host(topology, config, until_end=True, session=session)
        listening = Listening()
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            host.start(listening)
            try:
                if not listening.ended.wait(TIMEOUT_SECONDS):
                    raise TimeoutError(f"not at the end after {TIMEOUT_SECONDS} s: {host.statistics()}")
            finally:
                host.close(30_000)
        if listening.error is not None:
            raise listening.error
        return Ended(host.statistics(), printed.getvalue(), host.summary())

    def host(
        self, topology: Topology, config: StreamsConfig, until_end: bool = False, session: SparkSession | None = None
    ) -> SparkHost:
        """Return a host in the runner's session, not yet started."""
        built = topology.build(str(config["application.id"]))
        return SparkHost(built, config, session=session or self.session, until_end=until_end)

    @contextlib.contextmanager
    def running(self, topology: Topology, config: StreamsConfig) -> Iterator[SparkHost]:
        """Run inside the block, then close."""
        host = self.host(topology, config)
        listening = Listening()
        host.start(listening)
        try:
            yield host
        finally:
            host.close(30_000)
        if listening.error is not None:
            raise listening.error

    def read(self, topic: str) -> list[OutputRecord]:
        """Return the committed records of `topic`, partition by partition."""
        partitions = [TopicPartition(topic, p) for p in range(self.admin.topics()[topic])]
        # a broker answers the end of a transaction before its marker is in every partition
        wait_for(lambda: self._is_stable(partitions))
        ends = self.admin.end_offsets(partitions, read_committed=True)
        return [record for tp, end in sorted(ends.items()) for record in self.fetch(tp, 0, end)]

    def fetch(self, partition: TopicPartition, start: int, end: int) -> list[OutputRecord]:
        """Return the committed records of `partition` from offset `start` to before `end`."""
        return [
            OutputRecord(partition.partition, key, value, timestamp, batch.headers_at(index))
            for batch in self._fetcher.fetch(partition, start, end, read_committed=True)
            for index, (key, value, timestamp) in enumerate(
                zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True)
            )
        ]

    def _is_stable(self, partitions: list[TopicPartition]) -> bool:
        committed = self.admin.end_offsets(partitions, read_committed=True)
        return committed == self.admin.end_offsets(partitions, read_committed=False)

    def manifest(self, config: StreamsConfig) -> Manifest:
        """Return the last manifest of an application."""
        checkpoint = Checkpoint(config.checkpoint_directory())
        manifest = checkpoint.read_manifest(checkpoint.last_epoch(), "")
        assert manifest is not None
        return manifest

    def store(self, config: StreamsConfig, name: str) -> dict[bytes, bytes]:
        """Return the content of a store over all tasks, as the last commit left it, from the segments alone."""
        return {key: value for content in self.store_by_task(config, name).values() for key, value in content.items()}

    def store_by_task(self, config: StreamsConfig, name: str) -> dict[str, dict[bytes, bytes]]:
        """As `store`, task by task."""
        checkpoint = Checkpoint(config.checkpoint_directory())
        contents = {}
        for task, entry in self.manifest(config).tasks.items():
            base = MemoryBase()
            for info in path(log_from_json(dict(entry.segments)), None).segments:
                data = checkpoint.read_segment(task, info.id.hex())
                assert data is not None, f"segment {info.id.hex()} of task {task} is missing"
                base.apply(decode(data, info.id).changes, info.last)
            contents[task] = dict(base.view(name).range(None, None, False))
        return contents

    def processor_metadata(self, config: StreamsConfig) -> dict[str, int]:
        """Return what the processors and stores of all tasks remember after the last commit, the largest of each."""
        checkpoint = Checkpoint(config.checkpoint_directory())
        found: dict[str, int] = {}
        for task, entry in self.manifest(config).tasks.items():
            for info in path(log_from_json(dict(entry.segments)), None).segments:
                data = checkpoint.read_segment(task, info.id.hex())
                assert data is not None, f"segment {info.id.hex()} of task {task} is missing"
                encoded = decode(data, info.id).checkpoint
                remembered = TaskCheckpoint.decode(encoded).processor_metadata if encoded else {}
                found.update({name: max(value, found.get(name, value)) for name, value in remembered.items()})
        return found


def wait_for(condition: Any, seconds: float = TIMEOUT_SECONDS) -> Any:
    """Return what `condition()` returns as soon as it is true; raises TimeoutError after `seconds`."""
    found: Any = None

    def is_met() -> bool:
        nonlocal found
        found = condition()
        return bool(found)

    if not until(is_met, seconds):
        raise TimeoutError(f"not true after {seconds} s: {condition}")
    return found


def lines(texts: Sequence[str], partitions: int = 1, timestamp: int = 1_000) -> list[InputRecord]:
    """Return `texts` as records without keys, in turn over `partitions`, a millisecond apart."""
    return [
        InputRecord(None, text.encode(), timestamp + number, number % partitions) for number, text in enumerate(texts)
    ]
