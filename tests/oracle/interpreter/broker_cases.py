"""Runs cases on a host that reads and writes topics of a broker, many after one another: what the hosts share.

Records are written to the broker by its protocol. Every topic has one partition, and the clock of the case is that of
the application.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Final, Self

from penstock import StreamsConfig, Topology
from penstock.host.inline.inline_host import ProducedRecord
from penstock.plan.subtopology import BuiltTopology
from penstock.record import TopicPartition
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import build_store
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock_broker.process import BrokerProcess
from tests.host.support import Runner, wait_for
from tests.oracle.interpreter import case_runner, errors
from tests.oracle.interpreter.hosts import TOPIC_NAME, broker_topics, by_topic, without_numbers, written_topics
from tests.oracle.interpreter.settings import APPLICATION_ID
from tests.oracle.interpreter.store_content import content
from tests.oracle.interpreter.values import headers_from_json
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.waiting import until

Case = case_runner.Case
Expected = case_runner.Expected
Ends = Mapping[str, int]
"""The end of each topic."""

RunToEnd = Callable[[], None]
"""Processes and commits all that was written until now; raises the error that ends the application."""

COMPARED: Final = ("describe", "internal_topics", "stores", "error", "steps")
_PRODUCE: Final = (0, 11)  # number and version of the API


class CaseClock:
    """A clock that stands still between steps, read from a file: other processes plan by it."""

    def __init__(self, path: Path) -> None:
        """Show what is in the file at `path`."""
        self._path = path

    def set(self, milliseconds: int) -> None:
        """Show `milliseconds` (since the epoch) from now on."""
        temporary = self._path.with_suffix(".new")
        temporary.write_text(str(milliseconds))
        os.replace(temporary, self._path)

    def milliseconds(self) -> int:
        """Return the time of the case in ms."""
        return int(self._path.read_text())


class BrokerCases(ABC):
    """A broker and a host for many cases; a context manager."""

    def __init__(self, make_runner: Callable[[str, Path], Runner], bootstrap_servers: str | None = None) -> None:
        """Connect to the broker. make_runner: of its address and a directory. bootstrap_servers: None for an embedded
        broker of its own."""
        self._directory = Path(mkdtemp(prefix="penstock-cases-"))
        self._broker: BrokerProcess | None = None
        if bootstrap_servers is None:
            self._broker = BrokerProcess(self._directory / "broker", auto_create_topics=False)
            self._broker.start()
            bootstrap_servers = self._broker.bootstrap_servers
        self._servers = bootstrap_servers
        self._runner = make_runner(bootstrap_servers, self._directory)
        self._wire = ProtocolClient(bootstrap_servers)
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.close()
        self._wire.socket.close()
        if self._broker is not None:
            self._broker.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @abstractmethod
    def run_settings(self) -> Mapping[str, Any]:
        """Return the keys of the configuration that each case has on this host."""

    @abstractmethod
    def epochs_of(self, case: Case, built: BuiltTopology) -> list[list[int]]:
        """Return the numbers of the steps that are processed together."""

    @abstractmethod
    def application(
        self, topology: Topology, settings: StreamsConfig, clock: CaseClock
    ) -> AbstractContextManager[RunToEnd]:
        """Run the topology inside the block."""

    @abstractmethod
    def stores(self, case: Case, built: BuiltTopology, settings: StreamsConfig) -> dict[str, Any]:
        """Return the content of the stores that the case names, after the application has ended."""

    def run(self, case: Case, execution: str) -> Expected:
        """Return what came out of a case, in the shape that is compared."""
        result = case_runner.run(case, execution, self._drive)
        compared = {name: value for name, value in result.items() if name in COMPARED}
        if "error" in compared:
            compared["error"] = without_numbers(compared["error"])
        return compared

    def _drive(self, case: Case, topology: Topology, config: Mapping[str, Any]) -> Expected:
        try:
            built = topology.build(APPLICATION_ID)
        except Exception as error:
            return {"error": errors.to_json("topics", 0, error)}
        self._count += 1
        directory = self._directory / f"case-{self._count}"
        directory.mkdir()
        connection = {"bootstrap.servers": self._servers, "state.dir": str(directory)}
        topics = broker_topics(case, built)
        self._runner.create_topics(dict.fromkeys(topics, 1))
        clock = CaseClock(directory / "clock")
        clock.set(case.get("initial_wall_clock_ms", 0))
        try:
            settings = StreamsConfig({**config, **connection, **self.run_settings()})
            return self._play(case, built, topology, settings, clock)
        finally:
            self._delete(topics)
            shutil.rmtree(directory)

    def _delete(self, topics: Sequence[str]) -> None:
        """Delete the topics of a case, and those that the application has made."""
        admin = self._runner.admin

        def left() -> list[str]:
            return [topic for topic in admin.topics() if topic in topics or topic.startswith(f"{APPLICATION_ID}-")]

        admin.delete_topics(left())
        wait_for(lambda: not left())  # a broker may do it later
        admin.delete_groups([APPLICATION_ID])

    def _play(
        self, case: Case, built: BuiltTopology, topology: Topology, settings: StreamsConfig, clock: CaseClock
    ) -> Expected:
        result: Expected = {"internal_topics": case_runner.internal_topics(built)}
        written = [topic for topic in sorted(written_topics(case, built)) if TOPIC_NAME.fullmatch(topic)]
        starts, ends = [], [self._ends(written)]
        at, phase = 0, "start"
        try:
            with self.application(topology, settings, clock) as run_to_end:
                run_to_end()
                phase = "step"
                for epoch in self.epochs_of(case, built):
                    at = epoch[0]
                    starts.append(_after(ends[-1], *self._take(case, epoch, clock)))
                    run_to_end()
                    ends.append(self._ends(written))
        except Exception as error:
            if phase == "start" and isinstance(error, TimeoutError):
                raise
            result["error"] = errors.to_json(phase, at, error)
        else:
            result["stores"] = self.stores(case, built, settings)
        result["steps"] = self._output(case, list(zip(starts, ends[1:], strict=False)))
        return result

    def _take(self, case: Case, epoch: Sequence[int], clock: CaseClock) -> tuple[str, int]:
        """Perform the steps of an epoch: write their records, or move the clock; return topic and number of the
        records."""
        topic, records = "", []
        for number in epoch:
            step = case["steps"][number]
            if "in" not in step:
                clock.set(clock.milliseconds() + step["advance_wall_clock_ms"])
                continue
            topic, key, value = case_runner.encoded(case, step)
            records.append(BatchRecord(step["ts"], key, value, headers_from_json(step.get("headers"))))
        if records:
            self._write(topic, bytes(encode_batch(records)))
        return topic, len(records)

    def _write(self, topic: str, batch: bytes) -> None:
        data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
        answer = self._wire.call(*_PRODUCE, {"acks": -1, "timeout": 10_000, "topic_data": [data]})
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer

    def _ends(self, topics: Sequence[str]) -> dict[str, int]:
        partitions = [TopicPartition(topic, 0) for topic in topics]
        ends = dict[TopicPartition, int]()

        def are_stable() -> bool:  # a transaction may end before brokers have marked its end in all partitions
            ends.update(self._runner.admin.end_offsets(partitions, read_committed=True))
            return ends == self._runner.admin.end_offsets(partitions)

        assert until(are_stable), ends
        return {partition.topic: end for partition, end in ends.items()}

    def _output(self, case: Case, epochs: Sequence[tuple[Ends, Ends]]) -> list[list[Any]]:
        """Return the rows that each epoch wrote."""
        found = []
        for starts, ends in epochs:
            records = [
                ProducedRecord(0, topic, key, value, time, headers)
                for topic, end in ends.items()
                if end > starts[topic]
                for _, key, value, time, headers in self._runner.fetch(TopicPartition(topic, 0), starts[topic], end)
            ]
            found.append(by_topic(case, case_runner.output_rows(case, records)))
        return found


def store_content(
    case: Case,
    builder: StoreBuilder,
    settings: StreamsConfig,
    entries: Mapping[bytes, bytes],
    remembered: Mapping[str, int],
) -> dict[str, Any]:
    """Return a store as a case shows it. entries: as its base has them. remembered: the metadata of processors."""
    base = MemoryBase()
    base.apply({builder.name: dict(entries)}, b"")
    context = RecordContext(0, ())
    view = base.view(builder.name)
    return content(build_store(builder, settings, view, RecordCache(0), lambda: context, dict(remembered)), case)


def _after(ends: Ends, topic: str, records: int) -> Ends:
    return {**ends, topic: ends[topic] + records} if topic in ends else ends
