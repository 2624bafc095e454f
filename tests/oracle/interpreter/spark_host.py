"""Runs cases on the Spark host, many after one another: on a real query of Spark, or with its part played in this
process (`InlineQuery`), which is the same code of ours without a JVM.

The test driver commits after every record, so if a result depends on commits, each step of a case is a separate epoch;
otherwise the input is cut into epochs at random, the same each time. What is compared is what each epoch wrote, topic
by topic, in order where one sink writes the topic, else in any order; stores at the end; errors, and the step that they
ended. Every topic has one partition, and the clock of the case is the one by which epochs are planned.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from penstock import StreamsConfig, Topology
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.driver.spark_host import SparkHost
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec
from penstock.record import TopicPartition
from penstock.state.lmdb import LmdbBase
from tests.host.spark.inline import InlineProgram, InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import Listening, wait_for
from tests.oracle.interpreter import case_runner, divergences
from tests.oracle.interpreter.broker_cases import COMPARED, BrokerCases, CaseClock, RunToEnd, store_content
from tests.oracle.interpreter.comparison import differences
from tests.oracle.interpreter.epoch_driver import EpochTestDriver
from tests.oracle.interpreter.hosts import (
    broker_topics,
    by_topic,
    read_topics,
    without_numbers,
    written_topics,
)
from tests.oracle.interpreter.settings import APPLICATION_ID, configuration

Case = case_runner.Case
Expected = case_runner.Expected

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


class SparkCases(BrokerCases):
    """An embedded broker and the Spark host for many cases; a context manager."""

    def __init__(self, inline: bool = False) -> None:
        """Start the broker; a session starts with the first case. inline: without a JVM."""
        super().__init__(SparkRunner)
        self._application = self._inline_application if inline else self._spark_application

    def run_settings(self) -> Mapping[str, Any]:
        """Return the keys of the configuration that each case has on this host."""
        return {"penstock.spark.partitions": 2, "penstock.poll.ms": 20}

    def epochs_of(self, case: Case, built: BuiltTopology) -> list[list[int]]:
        """Return the steps of each epoch."""
        return epochs_of(case, built)

    def run(self, case: Case, execution: str) -> Expected:
        """Return what came out of a case, in the shape of `comparable`."""
        result = super().run(case, execution)
        if _NOT_STARTED in result.get("error", {}).get("message", ""):
            result = super().run(case, execution)
        return result

    def application(
        self, topology: Topology, settings: StreamsConfig, clock: CaseClock
    ) -> AbstractContextManager[RunToEnd]:
        """Run the topology inside the block."""
        return self._application(topology, settings, clock)

    @contextmanager
    def _inline_application(self, topology: Topology, settings: StreamsConfig, clock: CaseClock) -> Iterator[RunToEnd]:
        query = InlineQuery(topology, settings, self._runner.admin, clock=clock)
        try:
            yield InlineProgram(query).run_to_end
        finally:
            query.close()

    @contextmanager
    def _spark_application(self, topology: Topology, settings: StreamsConfig, clock: CaseClock) -> Iterator[RunToEnd]:
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

    def stores(self, case: Case, built: BuiltTopology, settings: StreamsConfig) -> dict[str, Any]:
        builders = {name: store for part in built.subtopologies for name, store in part.stores.items()}
        names = case_runner.named_stores(case)
        remembered = self._runner.processor_metadata(settings)
        found = {
            name: store_content(case, builder, settings, self._runner.store(settings, name), remembered)
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
            name: store_content(case, builder, settings, dict(base.view(name).range(None, None, False)), remembered)
            for name, builder in spec.stores.items()
            if name in case_runner.named_stores(case)
        }
    finally:
        base.close()


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
    compared = {name: value for name, value in result.items() if name in COMPARED}
    if "steps" in compared:
        built = case_runner.build(case, configuration(case, "auto")).build(APPLICATION_ID)
        steps = result["steps"]
        epochs = [epoch for epoch in epochs_of(case, built) if epoch[0] < len(steps)]
        compared["steps"] = [by_topic(case, [row for number in epoch for row in steps[number]]) for epoch in epochs]
    if "error" in compared:
        compared["error"] = without_numbers(compared["error"])
    return compared
