"""Runs cases on the Spark host, many after one another: on a real query of Spark, or with its part played in this
process (`InlineQuery`), which is the same code of ours without a JVM.

The test driver commits after every record, so if a result depends on commits, each step of a case is a separate epoch;
otherwise the input is cut into epochs at random, the same each time. What is compared is what each epoch wrote, topic
by topic, in order where one sink writes the topic, else in any order; stores at the end; errors, and the step that they
ended. Every topic has one partition, and the clock of the case is the one by which epochs are planned.

Records are written to the embedded broker by its protocol: librdkafka takes the timestamp 0 for "now". What the
application writes goes through librdkafka, so an output of the time of writing stands for one of time 0.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Final

import orjson

from penstock import StreamsConfig, Topology
from penstock.broker.process import BrokerProcess
from penstock.host.inline import ProducedRecord
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.driver.spark_host import SparkHost
from penstock.host.spark.protocol.failures import QueryFailedError, failure_in
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec
from penstock.record import NO_METADATA, TopicPartition
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import build_store
from penstock.state.lmdb import LmdbBase
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import Listening, SparkRunner, wait_for
from tests.oracle.interpreter import case_runner, divergences, errors
from tests.oracle.interpreter.comparison import differences
from tests.oracle.interpreter.epoch_driver import EpochTestDriver
from tests.oracle.interpreter.hosts import (
    TOPIC_NAME,
    broker_topics,
    by_topic,
    read_topics,
    without_numbers,
    written_topics,
)
from tests.oracle.interpreter.settings import APPLICATION_ID, configuration
from tests.oracle.interpreter.store_content import content
from tests.oracle.interpreter.values import headers_from_json
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch

Case = case_runner.Case
Expected = case_runner.Expected
Ends = Mapping[str, int]
"""The end of each topic."""

RunEpochs = Callable[[], None]
"""Runs epochs until nothing is due; raises the error that ends the application."""

_COMPARED = ("describe", "internal_topics", "stores", "error", "steps")
_PRODUCE: Final = (0, 11)  # number and version of the API
_NOT_STARTED: Final = "Python worker failed to connect back"  # Spark gives a process ten seconds to start


_UNFIT: Final[Mapping[str, tuple[str, ...]]] = {
    "a topic name that no broker takes": ("errors-topic_name-wrong",),
    "a record for a topic that the application does not read, which a test driver alone refuses": (
        "topology-error-no_source",
        "topology-error-unknown_input",
    ),
    "the serdes of a global store are shown the headers of the last global record": (
        "record_context-global-header",
        "record_context-global-header-uncached",
    ),
    "schedule() outside init, which Spark refuses": (
        "processor-schedule_cancel-stream_time",
        "processor-schedule_cancel-wall_clock",
    ),
}
"""Cases whose result another host cannot have, by the reason; they are not run."""


def unfit(case: Case) -> list[str]:
    """Return why a case cannot be compared on Spark; an empty list says that it can."""
    return [f"on Spark: {reason}" for reason, ids in _UNFIT.items() if case["id"] in ids]


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


def epochs_of(case: Case, built: BuiltTopology) -> list[list[int]]:
    """Return the numbers of the steps of each epoch: alone where the result depends on it, else cut at random."""
    steps, draw = case.get("steps", []), random.Random(case["id"])
    alone = _depends_on_commits(case, built)
    epochs: list[list[int]] = []
    for number, step in enumerate(steps):
        goes_on = not alone and epochs and "in" in step and steps[number - 1].get("in") == step["in"]
        if goes_on and draw.random() < 0.8:
            epochs[-1].append(number)
        else:
            epochs.append([number])
    return epochs


def _depends_on_commits(case: Case, built: BuiltTopology) -> bool:
    parts = built.subtopologies
    cached = int(case["config"].get("statestore.cache.max.bytes", 1)) != 0
    return (
        "error" in case.get("expected", {})
        or case["config"].get("emit_interval_ms", 0) > 0
        or (cached and any(store.caching for part in parts for store in part.stores.values()))
        or any(
            len(part.source_topics) > 1 and any(topic in built.repartition_topics for topic in part.source_topics)
            for part in parts
        )
        or bool(written_topics(case, built) & read_topics(built))
    )


class SparkCases:
    """An embedded broker and the Spark host for many cases; a context manager."""

    def __init__(self, inline: bool = False) -> None:
        """Start the broker; a session starts with the first case. inline: without a JVM."""
        self._directory = Path(mkdtemp(prefix="penstock-cases-"))
        self._broker = BrokerProcess(self._directory / "broker", auto_create_topics=False)
        self._broker.start()
        self._runner = SparkRunner(self._broker.bootstrap_servers, self._directory)
        self._wire = ProtocolClient(self._broker.bootstrap_servers)
        self._application = self._inline_application if inline else self._spark_application
        self._count = 0

    def __enter__(self) -> SparkCases:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.close()
        self._wire.socket.close()
        self._broker.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def run(self, case: Case, execution: str) -> Expected:
        """Return what came out of a case, in the shape of `comparable`."""
        result = case_runner.run(case, execution, self._drive)
        if _NOT_STARTED in result.get("error", {}).get("message", ""):
            result = case_runner.run(case, execution, self._drive)
        compared = {name: value for name, value in result.items() if name in _COMPARED}
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
        connection = {
            "bootstrap.servers": self._broker.bootstrap_servers,
            "state.dir": str(directory),
            "penstock.spark.partitions": 2,
            "penstock.poll.ms": 20,
        }
        self._runner.create_topics(dict.fromkeys(broker_topics(case, built), 1))
        clock = CaseClock(directory / "clock")
        clock.set(case.get("initial_wall_clock_ms", 0))
        try:
            return self._play(case, built, topology, StreamsConfig({**config, **connection}), clock)
        finally:
            topics = self._runner.admin.topics()
            self._runner.admin.delete_topics([topic for topic in topics if not topic.startswith("__")])
            shutil.rmtree(directory)

    def _play(
        self, case: Case, built: BuiltTopology, topology: Topology, settings: StreamsConfig, clock: CaseClock
    ) -> Expected:
        result: Expected = {"internal_topics": case_runner.internal_topics(built)}
        written = [topic for topic in sorted(written_topics(case, built)) if TOPIC_NAME.fullmatch(topic)]
        starts, ends = [], [self._ends(written)]
        at, phase = 0, "start"
        started = time.time_ns() // 1_000_000
        try:
            with self._application(topology, settings, clock) as run_epochs:
                run_epochs()
                phase = "step"
                for epoch in epochs_of(case, built):
                    at = epoch[0]
                    starts.append(_after(ends[-1], *self._take(case, epoch, clock)))
                    run_epochs()
                    ends.append(self._ends(written))
        except Exception as error:
            if phase == "start" and isinstance(error, TimeoutError):
                raise
            result["error"] = errors.to_json(phase, at, _told(error))
        else:
            result["stores"] = self._stores(case, built, settings)
        result["steps"] = self._output(case, list(zip(starts, ends[1:], strict=False)), started)
        return result

    @contextmanager
    def _inline_application(self, topology: Topology, settings: StreamsConfig, clock: CaseClock) -> Iterator[RunEpochs]:
        query = InlineQuery(topology, settings, self._runner.admin, clock=clock)
        try:
            yield query.run_to_end
        finally:
            query.close()

    @contextmanager
    def _spark_application(self, topology: Topology, settings: StreamsConfig, clock: CaseClock) -> Iterator[RunEpochs]:
        host = SparkHost(topology.build(APPLICATION_ID), settings, session=self._runner.session, clock=clock)
        listening = Listening()
        host.start(listening)

        def run_epochs() -> None:
            wait_for(lambda: listening.ended.is_set() or self._is_idle(settings, clock))
            if listening.error is not None:
                raise listening.error

        try:
            yield run_epochs
        finally:
            host.close(60_000)

    def _is_idle(self, settings: StreamsConfig, clock: CaseClock) -> bool:
        """Return whether all that was written is committed, nothing is carried to a next epoch, and no punctuation is
        due."""
        manifest = self._runner.manifest(settings)
        carried = any(entry.carried is not None for entry in manifest.tasks.values())
        if manifest.epoch == 0 or carried or ((due := manifest.due_ms()) is not None and due <= clock.milliseconds()):
            return False
        if Checkpoint(settings.checkpoint_directory()).last_planned_epoch() != manifest.epoch:
            return False
        positions = {
            TopicPartition(topic, number): offset
            for topic, offsets in {**manifest.offsets, **manifest.global_offsets}.items()
            for number, offset in enumerate(offsets)
        }
        return self._runner.admin.end_offsets(list(positions), read_committed=True) == positions

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
            part = {"index": 0, "records": bytes(encode_batch(records))}
            data = {"name": topic, "partition_data": [part]}
            answer = self._wire.call(*_PRODUCE, {"acks": -1, "timeout": 10_000, "topic_data": [data]})
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer
        return topic, len(records)

    def _ends(self, topics: Sequence[str]) -> dict[str, int]:
        partitions = [TopicPartition(topic, 0) for topic in topics]
        return {tp.topic: end for tp, end in self._runner.admin.end_offsets(partitions, read_committed=True).items()}

    def _output(self, case: Case, epochs: Sequence[tuple[Ends, Ends]], started: int) -> list[list[Any]]:
        """Return the rows that each epoch wrote."""
        found = []
        for starts, ends in epochs:
            records = [
                ProducedRecord(0, topic, key, value, 0 if time >= started else time, headers)
                for topic, end in ends.items()
                if end > starts[topic]
                for _, key, value, time, headers in self._runner.fetch(TopicPartition(topic, 0), starts[topic], end)
            ]
            found.append(by_topic(case, case_runner.output_rows(case, records)))
        return found

    def _stores(self, case: Case, built: BuiltTopology, settings: StreamsConfig) -> dict[str, Any]:
        builders = {name: store for part in built.subtopologies for name, store in part.stores.items()}
        names = case_runner.named_stores(case)
        remembered = self._runner.processor_metadata(settings)
        found = {
            name: _content(case, builder, settings, self._runner.store(settings, name), remembered)
            for name, builder in builders.items()
            if name in names
        }
        if built.global_topology is not None:
            found.update(_global_stores(case, built.global_topology, settings))
        return dict(sorted(found.items()))


def _global_stores(case: Case, spec: SubtopologySpec, settings: StreamsConfig) -> dict[str, Any]:
    """Return the content of the global stores that the case names, as this machine has them."""
    base = LmdbBase(Path(settings["state.dir"]) / APPLICATION_ID / "global" / "global")
    try:
        stamp = base.stamp()
        remembered = {} if stamp is None else orjson.loads(stamp)["processor_metadata"]
        return {
            name: _content(case, builder, settings, dict(base.view(name).range(None, None, False)), remembered)
            for name, builder in spec.stores.items()
            if name in case_runner.named_stores(case)
        }
    finally:
        base.close()


def _content(
    case: Case,
    builder: StoreBuilder,
    settings: StreamsConfig,
    entries: Mapping[bytes, bytes],
    remembered: Mapping[str, int],
) -> dict[str, Any]:
    base = MemoryBase()
    base.apply({builder.name: dict(entries)}, b"")
    context = RecordContext(0, (), NO_METADATA)
    view = base.view(builder.name)
    return content(build_store(builder, settings, view, RecordCache(0), lambda: context, dict(remembered)), case)


def _after(ends: Ends, topic: str, records: int) -> Ends:
    return {**ends, topic: ends[topic] + records} if topic in ends else ends


def _told(error: Exception) -> Exception:
    """Return the error that a program receives, for one that ends the query from inside Spark."""
    if isinstance(error, QueryFailedError):
        found = failure_in(str(error))
        assert found is not None
        return found[0]
    return error


def expected(case: Case, execution: str, actual: Expected) -> tuple[Expected, bool]:
    """Return what `actual` is to be compared with, and whether that is the answer of Kafka's test driver itself.

    Where a case depends on commits between the records of one step, or on a record cache that outlives them, it is the
    answer of `EpochTestDriver`.
    """
    of_kafka = comparable(case, case["expected"])
    if divergences.diverges(case) or not differences(of_kafka, actual):
        return of_kafka, True
    built = case_runner.build(case, configuration(case, execution)).build(APPLICATION_ID)
    make_driver = partial(EpochTestDriver, broker_topics(case, built))
    drive = partial(case_runner.drive_on_test_driver, make_driver=make_driver)
    of_epochs = comparable(case, case_runner.run(case, execution, drive))
    return (of_kafka, True) if differences(of_epochs, actual) else (of_epochs, False)


def comparable(case: Case, result: Expected) -> Expected:
    """Return a result (what a case expects, or what the test driver gave) in the shape that is compared on Spark."""
    compared = {name: value for name, value in result.items() if name in _COMPARED}
    if "steps" in compared:
        built = case_runner.build(case, configuration(case, "auto")).build(APPLICATION_ID)
        steps = result["steps"]
        epochs = [epoch for epoch in epochs_of(case, built) if epoch[0] < len(steps)]
        compared["steps"] = [by_topic(case, [row for number in epoch for row in steps[number]]) for epoch in epochs]
    if "error" in compared:
        compared["error"] = without_numbers(compared["error"])
    return compared
