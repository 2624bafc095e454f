"""What tests of every host share: topics of a broker, and a runner of topologies, so that one test runs on each host.

A runner is not a fixture: make one with a broker's address and a directory, close it at the end.
"""

from __future__ import annotations

import contextlib
import io
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.host.api import Host, HostStatistics, StateQueries, StreamThreadExceptionResponse
from penstock.plan.topology import Topology
from penstock.record import Headers, TopicPartition
from penstock_broker.common.clock import Clock
from tests.support.waiting import WAIT_SECONDS, until

TIMEOUT_SECONDS = WAIT_SECONDS
CLOSE_MS = 120_000

ON_SPARK = pytest.param("spark", marks=(pytest.mark.spark, pytest.mark.xdist_group("spark")))
"""The parameter of `runner` for a test that starts a Spark session."""

ON_CONNECT = pytest.param("connect", marks=(pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")))
"""The parameter of `runner` for a test that starts a server of Spark Connect."""

WITH_A_SESSION = pytest.mark.parametrize("runner", [ON_SPARK, "threads"], indirect=True)
"""Mark of a test of each host that starts a Spark session on Spark; without it, Spark's part is played in this
process."""

IN_PROCESSES = pytest.param("processes", marks=pytest.mark.slow)
"""The parameter of `runner` for a test that starts worker processes of the threads host at each start of a program."""

WITH_PROCESSES = pytest.mark.parametrize("runner", ["spark", "threads", IN_PROCESSES], indirect=True)
"""Mark of a test of each host that also runs in worker processes of the threads host."""

LONG_ON_CONNECT = pytest.param("connect", marks=(*ON_CONNECT.marks, pytest.mark.long))
"""As ON_CONNECT, for a module whose tests take minutes there."""

WITH_ALL_SESSIONS = pytest.mark.parametrize("runner", [ON_SPARK, ON_CONNECT, "threads"], indirect=True)
"""As WITH_A_SESSION, also with a session of Spark Connect."""

WITH_ALL_SESSIONS_AT_LENGTH = pytest.mark.parametrize("runner", [ON_SPARK, LONG_ON_CONNECT, "threads"], indirect=True)
"""As WITH_ALL_SESSIONS, for a module whose tests take minutes on Spark Connect."""


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

    statistics: HostStatistics
    printed: str
    summary: str


class Program(Protocol):
    """A user's program that runs a topology, step by step."""

    def run_to_end(self) -> None:
        """Process and commit all that was written until now; raises the error that ends the application."""
        ...

    def advance(self) -> None:
        """Do what is due now, if the program does nothing by itself; raises the error that ends the application."""
        ...

    def pause(self) -> None:
        """Process nothing until `resume`."""
        ...

    def resume(self) -> None:
        """Continue after `pause`."""
        ...

    def restart(self) -> None:
        """End the program and start it again."""
        ...

    def change(self, topology: Topology) -> None:
        """End the program and start another one in its place."""
        ...

    def queries(self) -> StateQueries:
        """Return what reads the stores of the topology that runs now."""
        ...

    def close(self) -> None:
        """End the program and release everything."""
        ...


class Runner(ABC):
    """Runs topologies on one broker, on one host."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        """Connect to the broker."""
        self.bootstrap_servers = bootstrap_servers
        self.directory = directory
        connection = StreamsConfig({"bootstrap.servers": bootstrap_servers})
        self.admin = ConfluentAdmin(connection)
        self._connection = connection
        self._producer = ConfluentProducer(connection)
        self._fetcher = ConfluentFetcher(connection)

    @abstractmethod
    def config(self, application_id: str, values: Mapping[str, Any] | None = None) -> StreamsConfig:
        """Return the configuration of an application; its state goes below the runner's directory."""

    @abstractmethod
    def host(self, topology: Topology, config: StreamsConfig, until_end: bool = False) -> Host:
        """Return a host, not yet started."""

    @abstractmethod
    def program(self, topology: Topology, config: StreamsConfig, clock: Clock | None = None) -> Program:
        """Start a program that is played step by step. clock: by which it runs, None for that of the machine."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return what an application is made with beside topology and configuration."""

    @property
    @abstractmethod
    def with_changelogs(self) -> Mapping[str, Any]:
        """The settings with which the host writes changelog topics."""

    @abstractmethod
    def entries(self, table: Any) -> dict[Any, Any]:
        """Return the keys and values of what `streams.table` returns."""

    @abstractmethod
    def store(self, config: StreamsConfig, name: str) -> dict[bytes, bytes]:
        """Return the content of a store over all tasks, as the last commit left it; nothing may run."""

    def close(self) -> None:
        """End the clients."""
        self._producer.close()
        self._fetcher.close()
        self.admin.close()

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

    def run(self, topology: Topology, config: StreamsConfig) -> Ended:
        """Run to the end of the inputs; raises the error that ended the run."""
        return run_to_end(self.host(topology, config, until_end=True))

    def run_here(self, topology: Topology, config: StreamsConfig) -> None:
        """As `run`; where that needs a session of Spark, its part is played in this process."""
        self.run(topology, config)

    @contextlib.contextmanager
    def running(self, topology: Topology, config: StreamsConfig) -> Iterator[Host]:
        """Run inside the block, then close."""
        host = self.host(topology, config)
        listening = Listening()
        host.start(listening)
        try:
            yield host
        except TimeoutError as error:
            error.add_note(f"The host stands at {host.statistics()}.")
            raise
        finally:
            closed = host.close(CLOSE_MS)
        if listening.error is not None:
            raise listening.error
        assert closed, f"not closed after {CLOSE_MS} ms: {host.statistics()}"

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


def run_to_end(host: Host) -> Ended:
    """Run a host that stops at the end of its inputs; raises the error that ended the run."""
    listening = Listening()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        host.start(listening)
        try:
            if not listening.ended.wait(TIMEOUT_SECONDS):
                raise TimeoutError(f"not at the end after {TIMEOUT_SECONDS} s: {host.statistics()}")
        finally:
            host.close(CLOSE_MS)
    if listening.error is not None:
        raise listening.error
    return Ended(host.statistics(), printed.getvalue(), host.summary())


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


def advance_until(program: Program, condition: Callable[[], bool]) -> None:
    """Let a program go on until `condition()` is true; raises TimeoutError if it does not become true."""

    def is_met() -> bool:
        program.advance()
        return condition()

    wait_for(is_met)


def lines(texts: Sequence[str], partitions: int = 1, timestamp: int = 1_000) -> list[InputRecord]:
    """Return `texts` as records without keys, in turn over `partitions`, a millisecond apart."""
    return [
        InputRecord(None, text.encode(), timestamp + number, number % partitions) for number, text in enumerate(texts)
    ]
