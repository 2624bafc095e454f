"""Runs cases on Spark, many in one session: those whose result does not depend on when commits happen.

A case goes to Spark as one batch of input, so there are no steps and no order between topics: what was written is
compared topic by topic, in order where one sink writes the topic, else in any order. Every topic has one partition.
Cases whose result shows more than that (caches, the wall clock, failures, the order of two inputs) are not run here;
`unfit` says why.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any

from penstock import StreamsConfig, Topology
from penstock.broker.process import BrokerProcess
from penstock.host.inline import ProducedRecord
from penstock.plan.subtopology import BuiltTopology
from penstock.record import NO_METADATA
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import build_store
from penstock.state.cache import RecordCache
from penstock.state.memory import MemoryBase
from tests.oracle.interpreter import case_runner, errors
from tests.oracle.interpreter.settings import APPLICATION_ID, configuration
from tests.oracle.interpreter.store_content import content
from tests.oracle.interpreter.values import headers_from_json
from tests.spark.support import InputRecord, SparkRunner

Case = case_runner.Case
Expected = case_runner.Expected

_COMPARED = ("describe", "internal_topics", "stores", "error")


def unfit(case: Case) -> list[str]:
    """Return why a case cannot be compared on Spark; an empty list says that it can."""
    found = sorted(set(_reasons(case)))
    if found:
        return found
    topology = case_runner.build(case, configuration(case, "auto")).build(APPLICATION_ID)
    return sorted(set(_reasons_of_topology(case, topology)))


def _reasons(case: Case) -> Iterator[str]:
    steps, text = case.get("steps", []), json.dumps(case["topology"])
    if "error" in case.get("expected", {"error": None}):
        yield "on Spark: errors"
    if not steps:
        yield "on Spark: no input"
    if "wall_clock" in text or '"times"' in text or any("in" not in step for step in steps):
        yield "on Spark: the wall clock"
    if len({step.get("in") for step in steps}) > 1:
        yield "on Spark: input of several topics"
    if any(step.get("ts", 0) <= 0 for step in steps):
        yield "on Spark: timestamps of 0, for which librdkafka writes the time of now, and below"
    if '"offset_reset": "latest"' in text:
        yield "on Spark: a source that begins behind its input"
    if "schedule_cancel" in text and any(step.get("value") == "again" for step in steps):
        yield "on Spark: schedules made after init"


def _reasons_of_topology(case: Case, topology: BuiltTopology) -> Iterator[str]:
    parts = topology.subtopologies
    if any(len(part.source_topics) != 1 for part in parts):
        yield "on Spark: several topics into one sub-topology, or a pattern"
    caches = int(case["config"].get("statestore.cache.max.bytes", 1)) != 0
    if caches and any(store.caching for part in parts for store in part.stores.values()):
        yield "on Spark: caches"
    if any(topic.partitions not in (None, 1) for topic in topology.repartition_topics.values()):
        yield "on Spark: the order of several partitions"
    if topology.global_topology is not None:
        yield "on Spark: global stores"
    written = {row[0] for rows in case["expected"]["steps"] for row in rows}
    if written & {topic for part in parts for topic in part.source_topics}:
        yield "on Spark: a topic that is written and read"
    if len(parts) > 1 and '"stream_time"' in json.dumps(case["topology"]):
        yield "on Spark: stream time of several sub-topologies"


class SparkCases:
    """An embedded broker and a Spark session for many cases; a context manager."""

    def __init__(self) -> None:
        """Start the broker; the session starts with the first case."""
        self._directory = Path(mkdtemp(prefix="penstock-cases-"))
        self._broker = BrokerProcess(self._directory / "broker")
        self._broker.start()
        self._runner = SparkRunner(self._broker.bootstrap_servers, self._directory)
        self._count = 0

    def __enter__(self) -> SparkCases:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.close()
        self._broker.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def run(self, case: Case, execution: str) -> Expected:
        """Return what came out of a case, in the shape of `comparable`."""
        return comparable(case, case_runner.run(case, execution, self._drive))

    def _drive(self, case: Case, topology: Topology, config: Mapping[str, Any]) -> Expected:
        built = topology.build(APPLICATION_ID)
        self._count += 1
        directory = str(self._directory / f"case-{self._count}")
        settings = self._runner.config(APPLICATION_ID, {**config, "state.dir": directory})
        written = {row[0] for rows in case["expected"]["steps"] for row in rows}
        read = {topic for part in built.subtopologies for topic in part.source_topics} - {*built.repartition_topics}
        sinks = {topic for part in built.subtopologies for topic in part.sink_topics} - {*built.repartition_topics}
        self._runner.create_topics(dict.fromkeys(sorted(written | read | sinks), 1))
        try:
            for step in case["steps"]:
                topic, key, value = case_runner.encoded(case, step)
                record = InputRecord(key, value, step["ts"], headers=headers_from_json(step.get("headers")))
                self._runner.write(topic, [record])
            self._runner.run(topology, settings)
            return self._results(case, built, settings, sorted(written | sinks))
        except Exception as error:
            return {"error": errors.to_json("step", 0, error)}
        finally:
            self._runner.admin.delete_topics(list(self._runner.admin.topics()))

    def _results(self, case: Case, built: BuiltTopology, settings: StreamsConfig, topics: list[str]) -> Expected:
        records = [
            ProducedRecord(0, topic, record.key, record.value, record.timestamp, record.headers)
            for topic in topics
            for record in self._runner.read(topic)
        ]
        builders = {name: store for part in built.subtopologies for name, store in part.stores.items()}
        names = case_runner.named_stores(case)
        return {
            "internal_topics": case_runner.internal_topics(built),
            "steps": [case_runner.output_rows(case, records)],
            "stores": {
                name: self._content(case, builder, settings)
                for name, builder in sorted(builders.items())
                if name in names
            },
        }

    def _content(self, case: Case, builder: StoreBuilder, settings: StreamsConfig) -> dict[str, Any]:
        base = MemoryBase()
        base.apply({builder.name: self._runner.store(settings, builder.name)}, b"")
        context, metadata = RecordContext(0, (), NO_METADATA), self._runner.processor_metadata(settings)
        store = build_store(builder, settings, base.view(builder.name), RecordCache(0), lambda: context, metadata)
        return content(store, case)


def comparable(case: Case, result: Expected) -> Expected:
    """Return a result (what a case expects, or what came out) in the shape that is compared on Spark."""
    topics: dict[str, list[Any]] = {}
    for rows in result.get("steps", []):
        for row in rows:
            topics.setdefault(row[0], []).append(row)
    sinks = [entry for entry in case["topology"] if entry["op"] in ("to", "add_sink")]
    extracted = any("topic_extractor" in sink for sink in sinks)
    for topic, rows in topics.items():
        if extracted or sum(sink.get("topic") == topic for sink in sinks) != 1:
            rows.sort(key=repr)
    return {**{name: value for name, value in result.items() if name in _COMPARED}, "topics": topics}
