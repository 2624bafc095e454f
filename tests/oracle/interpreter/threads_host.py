"""Runs cases on the core of the threads host, in this process and over topics in memory (`InlineInstance`): one task a
sub-topology and partition, with real repartition and changelog topics, and a commit after each run.

With `restarts`, each step is done by another instance, which has no disk and restores its stores from the changelog
topics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from penstock import StreamsConfig, Topology
from penstock.host.inline.inline_host import ProducedRecord
from penstock.plan.subtopology import BuiltTopology
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock_broker.common.clock import MockClock
from tests.host.threads.inline import InlineInstance
from tests.host.threads.memory_broker import MemoryBroker
from tests.oracle.interpreter import case_runner, errors
from tests.oracle.interpreter.hosts import broker_topics, by_topic, without_numbers, written_topics
from tests.oracle.interpreter.settings import APPLICATION_ID
from tests.oracle.interpreter.store_content import content
from tests.oracle.interpreter.values import headers_from_json

Case = case_runner.Case
Expected = case_runner.Expected

_UNFIT: Final[Mapping[str, tuple[str, ...]]] = {
    "a topic name that no broker takes": ("errors-topic_name-wrong",),
    "a record for a topic that the application does not read, which a test driver alone refuses": (
        "topology-error-no_source",
        "topology-error-unknown_input",
    ),
    "a punctuation that is due at the start, which the test driver makes when its clock is advanced": (
        "processor-punctuate-wall-0",
    ),
    "each sub-topology has its own stream time, that of the test driver is one of all": (
        "timestamps-stream_time-two_topics",
        "timestamps-stream_time-two_topics-replay-1-6",
    ),
    "the test driver counts the offsets of a pattern as those of one topic": ("topology-pattern",),
    "records of one time from several tasks, whose order, and the commits between, are those of one task": (
        "foreign_key_join-random-1-6",
        "optimisation-cogroup-none",
        "optimisation-cogroup-reuse_ktable_source_topics",
        "optimisation-cogroup-single_store_self_join",
        "optimisation-cogroup-none-replay-1-1",
        "optimisation-deep-none",
        "optimisation-deep-reuse_ktable_source_topics",
        "optimisation-deep-single_store_self_join",
        "optimisation-deep-reuse_ktable_source_topics-replay-1-9",
    ),
}
"""Cases whose result is that of a driver with one task; they are not run."""

_IN_MEMORY = ("punctuate", "flush", "schedule", '"logging": false', '"lru"')
_EXPIRING = ("windowed_by", '"window"', '"session"')

_COMPARED = ("describe", "internal_topics", "stores", "error", "steps")


def missing(case: Case) -> list[str]:
    """Return why a case cannot be run or compared on this host; an empty list says that it can."""
    unfit = [f"on threads: {reason}" for reason, ids in _UNFIT.items() if case["id"] in ids]
    return case_runner.missing(case) or unfit


def is_remembered(case: Case) -> bool:
    """Return whether the result depends on what an instance has in memory alone: schedules, stores without a changelog,
    the order in which entries were used, times of emission, and caches that show what the store below has dropped."""
    text = json.dumps(case["topology"])
    cached = case["config"].get("statestore.cache.max.bytes", 1) != 0
    return (
        any(word in text for word in _IN_MEMORY)
        or case["config"].get("emit_interval_ms", 0) > 0
        or (cached and any(word in text for word in _EXPIRING))
    )


def run(case: Case, execution: str, restarts: bool = False) -> Expected:
    """Return what came out of a case, in the shape of `comparable`."""
    return comparable(case, case_runner.run(case, execution, partial(_drive, restarts)))


def comparable(case: Case, result: Expected) -> Expected:
    """Return a result (what a case expects, or what came out) in the shape that is compared on this host."""
    compared = {name: value for name, value in result.items() if name in _COMPARED}
    if "steps" in compared:
        compared["steps"] = [by_topic(case, rows) for rows in compared["steps"]]
    if "error" in compared:
        compared["error"] = without_numbers(compared["error"])
    return compared


def _drive(restarts: bool, case: Case, topology: Topology, config: Mapping[str, Any]) -> Expected:
    try:
        built = topology.build(APPLICATION_ID)
    except Exception as error:
        return {"error": errors.to_json("topics", 0, error)}
    driver = _Driver(case, built, topology, StreamsConfig(config))
    result: Expected = {"internal_topics": case_runner.internal_topics(built), "steps": []}
    at, phase = 0, "start"
    try:
        driver.start()
        phase = "step"
        for at, step in enumerate(case.get("steps", [])):
            if restarts and at:
                driver.start()
            result["steps"].append(driver.take(step))
    except Exception as error:
        result["error"] = errors.to_json(phase, at, error)
    else:
        names = case_runner.named_stores(case)
        found = sorted(driver.instance.stores().items())
        result["stores"] = {name: content(store, case) for name, store in found if name in names}
    return result


class _Driver:
    """One case on its way."""

    def __init__(self, case: Case, built: BuiltTopology, topology: Topology, config: StreamsConfig) -> None:
        self._case = case
        self._topology = topology
        self._config = config
        self._clock = MockClock(case.get("initial_wall_clock_ms", 0))
        self._broker = MemoryBroker(dict.fromkeys(broker_topics(case, built), 1))
        self._written = sorted(written_topics(case, built))

    def start(self) -> None:
        self.instance = InlineInstance(self._topology, self._config, self._broker, self._clock)
        self.instance.run()

    def take(self, step: Case) -> list[list[Any]]:
        """Do a step, and return the rows that it has written."""
        ends = {topic: self._broker.end(TopicPartition(topic, 0)) for topic in self._written}
        if "advance_wall_clock_ms" in step:
            self._clock.advance(step["advance_wall_clock_ms"])
        else:
            topic, key, value = case_runner.encoded(self._case, step)
            row = key, value, step["ts"], 0, headers_from_json(step.get("headers"))
            self._broker.append([PartitionBatch(topic, 0, RecordBatch.of([row]))])
            if topic in ends:
                ends[topic] += 1
        self.instance.run()
        return case_runner.output_rows(self._case, self._records(ends))

    def _records(self, starts: Mapping[str, int]) -> list[ProducedRecord]:
        found = []
        for topic, start in starts.items():
            place = TopicPartition(topic, 0)
            if self._broker.end(place) > start:
                batch = self._broker.read(place, start, self._broker.end(place))
                found += [
                    ProducedRecord(0, topic, key, value, time, batch.headers_at(row))
                    for row, (key, value, time) in enumerate(
                        zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True)
                    )
                ]
        return found
