"""Runs one case on the test driver: builds its topology, takes its steps, makes the `expected` of what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock import Serde, StreamsBuilder, StreamsConfig, Topology, TopologyConfig
from penstock.host.inline.inline_host import ProducedRecord
from penstock.plan.subtopology import BuiltTopology, InternalTopic
from penstock.task import execution as task_execution
from penstock.testing import TopologyTestDriver
from tests.oracle.interpreter import errors, operations, settings
from tests.oracle.interpreter.comparison import normalised_description
from tests.oracle.interpreter.serdes import SERDES, decode, encode
from tests.oracle.interpreter.store_content import content
from tests.oracle.interpreter.values import headers_from_json, headers_to_json, to_json

task_execution.FEWEST_ROWS = 0  # a step is one record, and columns are to be compared

Case = Mapping[str, Any]
Expected = dict[str, Any]
Drive = Callable[[Case, Topology, Mapping[str, Any]], Expected]
"""Drives a built topology through the steps of a case with a configuration; returns `expected` without `describe`."""


def missing(case: Case) -> list[str]:
    """Return the features that a case needs and that are not built, sorted; a case for which this is empty can be
    run."""
    return sorted({*settings.missing(case), *operations.missing(case["topology"])})


class BuildError(Exception):
    """An operation of a case, or the build, failed; at: the number of the operation."""

    def __init__(self, at: int, error: Exception) -> None:
        super().__init__(at, error)
        self.at = at
        self.error = error


def build(case: Case, config: Mapping[str, Any]) -> Topology:
    """Return the topology of a case; raises BuildError if it cannot be built."""
    at = 0
    entries = case["topology"]
    try:
        builder = StreamsBuilder(TopologyConfig(config) if case.get("topology_config") else None)
        interpreter = operations.DslInterpreter(builder)
        while at < len(entries) and not operations.is_low_level(entries[at]):
            interpreter.apply(entries[at])
            at += 1
        topology = builder.build(StreamsConfig(config))
        for entry in entries[at:]:
            operations.apply_low_level(topology, entry)
            at += 1
        topology.describe()
    except Exception as error:  # whatever was raised is what the case asks about
        raise BuildError(at, error) from error
    return topology


def run(case: Case, execution: str, drive: Drive | None = None) -> Expected:
    """Return what came out of `case` in the shape of its `expected`.

    execution: auto or record. drive: the host; None for the test driver.
    """
    config = settings.configuration(case, execution)
    try:
        topology = build(case, config)
    except BuildError as failure:
        return {"error": errors.to_json("build", failure.at, failure.error)}
    description = normalised_description(str(topology.describe()))
    return {"describe": description, **(drive or drive_on_test_driver)(case, topology, config)}


def drive_on_test_driver(
    case: Case,
    topology: Topology,
    config: Mapping[str, Any],
    make_driver: Callable[[Topology, Mapping[str, Any], int], TopologyTestDriver] = TopologyTestDriver,
) -> Expected:
    """Drive a topology step by step with a TopologyTestDriver."""
    try:
        built = topology.build(settings.APPLICATION_ID)
    except Exception as error:
        return {"error": errors.to_json("topics", 0, error)}
    try:
        driver = make_driver(topology, config, case.get("initial_wall_clock_ms", 0))
    except Exception as error:
        return {"error": errors.to_json("start", 0, error)}
    result: Expected = {"internal_topics": internal_topics(built), "steps": []}
    try:
        for at, step in enumerate(case.get("steps", [])):
            try:
                _take(driver, case, step)
            except Exception as error:
                result["error"] = errors.to_json("step", at, error)
                break
            result["steps"].append(output_rows(case, driver.read_all_bytes()))
        else:
            names = named_stores(case)
            result["stores"] = {
                name: content(store, case)
                for name, store in sorted(driver.get_all_state_stores().items())
                if name in names
            }
        result["dropped_records"] = driver.dropped_records()
    finally:
        driver.close()
    return result


def _take(driver: TopologyTestDriver, case: Case, step: Case) -> None:
    if "advance_wall_clock_ms" in step:
        driver.advance_wall_clock_time(step["advance_wall_clock_ms"])
        return
    topic, key, value = encoded(case, step)
    driver.pipe_bytes(topic, key, value, step["ts"], headers_from_json(step.get("headers")))


def encoded(case: Case, step: Case) -> tuple[str, bytes | None, bytes | None]:
    """Return topic, key and value of an input step as bytes."""
    topic = step["in"]
    key_serde, value_serde = _serdes(case.get("inputs", {}), topic)
    return topic, encode(topic, key_serde, step.get("key")), encode(topic, value_serde, step.get("value"))


def _serdes(topics: Mapping[str, Any], topic: str) -> tuple[Serde, Serde]:
    key_serde, value_serde = topics.get(topic, ("string", "string"))
    return SERDES.read(key_serde), SERDES.read(value_serde)


def output_rows(case: Case, records: Iterable[ProducedRecord]) -> list[list[Any]]:
    """Return the records that went to topics outside the application as a case shows them."""
    rows = []
    for record in records:
        topic = record.topic
        if topic.startswith(f"{settings.APPLICATION_ID}-"):
            continue
        key_serde, value_serde = _serdes(case.get("outputs", {}), topic)
        key, value = decode(topic, key_serde, record.key), decode(topic, value_serde, record.value)
        row = [topic, to_json(key), to_json(value), record.timestamp]
        rows.append([*row, headers_to_json(record.headers)] if record.headers else row)
    return rows


def named_stores(case: Case) -> set[str]:
    """Return the names of the stores that the case itself names."""
    names: set[str] = set()
    for entry in case["topology"]:
        materialized = entry.get("materialized", {})
        specs = [materialized, materialized.get("store", {}), entry.get("store", {}), *entry.get("owned_stores", [])]
        names.update(spec["name"] for spec in specs if spec.get("name") is not None)
    return names


def internal_topics(built: BuiltTopology) -> dict[str, Any]:
    """Return the internal topics and their settings as a case shows them."""
    changelogs = {topic: dict(config) for part in built.subtopologies for topic, config in part.changelogs.values()}
    repartition = {name: _topic_settings(topic) for name, topic in built.repartition_topics.items()}
    return {"repartition": repartition, "changelog": changelogs}


def _topic_settings(topic: InternalTopic) -> dict[str, Any]:
    fixed = {} if topic.partitions is None else {"partitions": topic.partitions}
    return {**topic.config, **fixed}
