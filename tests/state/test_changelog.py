"""Changelog records against those of Kafka Streams 4.3.0, with `dsl.store.format=headers` 4.4.0.

The test driver's are equal byte for byte, and stores are restored from Kafka's.

`changelog_cases.jsonl` has topologies and inputs in the format of tests/oracle, the records that Kafka's
TopologyTestDriver wrote to changelog topics in each step (topic without application, key, value, timestamp, headers),
and what the stores held in the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock import (
    BufferConfig,
    Materialized,
    Processor,
    Record,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    Topology,
)
from penstock.host.inline.inline_host import ProducedRecord
from penstock.state.changelog_format import BUFFER_HEADERS, ChangelogRecord
from penstock.testing import TopologyTestDriver
from tests.oracle.interpreter import case_runner, settings
from tests.oracle.interpreter.store_content import content
from tests.oracle.interpreter.values import headers_from_json
from tests.support.stores import STRING, entries_as_records, restored

Case = Mapping[str, Any]

CASES = [json.loads(line) for line in (Path(__file__).parent / "changelog_cases.jsonl").read_text().splitlines()]
PREFIX = f"{settings.APPLICATION_ID}-"


# ---------- against Kafka


def _record_of(row: list[Any]) -> ChangelogRecord:
    _, key, value, timestamp, *headers = row
    read = tuple((name, None if data is None else bytes.fromhex(data)) for name, data in (headers or [[]])[0])
    return ChangelogRecord(bytes.fromhex(key), None if value is None else bytes.fromhex(value), timestamp, read)


def _last_by_topic(records: Iterable[tuple[str, ChangelogRecord]]) -> dict[str, list[ChangelogRecord]]:
    """Return the last record of each key by topic, in order: Kafka writes every put, Penstock the last of a commit."""
    topics: dict[str, dict[bytes, ChangelogRecord]] = {}
    for topic, record in records:
        last = topics.setdefault(topic, {})
        last.pop(record.key, None)
        last[record.key] = record
    return {topic: list(last.values()) for topic, last in topics.items()}


def _without_time(records: list[ChangelogRecord]) -> list[ChangelogRecord]:
    """Return the records of a buffer in any order, without times: Kafka lets the producer give them, and writes what a
    commit finds in the order of a hash set."""
    return sorted((replace(record, timestamp=None) for record in records), key=repr)


def _written(produced: Iterable[ProducedRecord]) -> list[tuple[str, ChangelogRecord]]:
    return [
        (record.topic.removeprefix(PREFIX), ChangelogRecord(record.key or b"", *record[3:]))
        for record in produced
        if record.topic.startswith(PREFIX) and record.topic.endswith("-changelog")
    ]


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_test_driver_writes_the_changelog_records_of_kafka(case: Case, execution: str) -> None:
    config = settings.configuration(case, execution)
    untimed = {row[0] for step in case["changelog"] for row in step if row[3] is None}
    with TopologyTestDriver(case_runner.build(case, config), config, case.get("initial_wall_clock_ms", 0)) as driver:
        for step, rows in zip(case["steps"], case["changelog"], strict=True):
            if "advance_wall_clock_ms" in step:
                driver.advance_wall_clock_time(step["advance_wall_clock_ms"])
            else:
                topic, key, value = case_runner.encoded(case, step)
                driver.pipe_bytes(topic, key, value, step["ts"], headers_from_json(step.get("headers")))
            expected = _last_by_topic((row[0], _record_of(row)) for row in rows)
            actual = _last_by_topic(_written(driver.read_all_bytes()))
            for topic in untimed & (expected.keys() | actual.keys()):
                expected[topic] = _without_time(expected.get(topic, []))
                actual[topic] = _without_time(actual.get(topic, []))
            assert actual == expected, step


@pytest.mark.parametrize("case", [case for case in CASES if case["stores"]], ids=lambda case: case["id"])
def test_stores_restored_from_the_changelog_of_kafka_hold_what_kafkas_held(case: Case) -> None:
    config = _config_of(case)
    for builder, records, held in _written_stores(case, config):
        assert content(restored(builder, config, records), case) == held


@pytest.mark.parametrize("case", [case for case in CASES if case["stores"]], ids=lambda case: case["id"])
def test_stores_are_made_again_from_the_records_of_their_entries(case: Case) -> None:
    config = _config_of(case)
    for builder, records, held in _written_stores(case, config):
        written = entries_as_records(builder, config, records)
        assert content(restored(builder, config, written), case) == held
        assert {record.key for record in written} <= {record.key for record in records}


def _config_of(case: Case) -> StreamsConfig:
    return StreamsConfig(settings.configuration(case, "auto"), environment={})


def _written_stores(case: Case, config: StreamsConfig) -> Iterator[tuple[StoreBuilder, list[ChangelogRecord], Any]]:
    """Yield the stores of a case that have changelog records, with these and with what Kafka's store held."""
    built = case_runner.build(case, config.given()).build(settings.APPLICATION_ID)
    builders = {name: builder for part in built.subtopologies for name, builder in part.stores.items()}
    for name, held in case["stores"].items():
        topic = f"{name}-changelog"
        records = [_record_of(row) for step in case["changelog"] for row in step if row[0] == topic]
        if records:
            yield builders[name], records, held


# ---------- the test driver


def _table(config: Mapping[str, Any], materialized: Materialized) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.table("in", materialized=materialized).to_stream().to("out")
    given = {"application.id": "app", "default.key.serde": STRING, "default.value.serde": STRING, **config}
    return TopologyTestDriver(builder.build(given), given)


def test_a_changelog_topic_is_read_as_any_other() -> None:
    with _table({}, Materialized.as_("kept")) as driver:
        source = driver.create_input_topic("in", STRING, STRING)
        changes = driver.create_output_topic("app-kept-changelog", STRING, STRING)
        source.pipe_input("k", "v", timestamp=5)
        source.pipe_input("k", None, timestamp=6)
        assert driver.produced_topic_names() == {"app-kept-changelog", "out"}
        assert [(record.key, record.value, record.timestamp) for record in changes.read_records_to_list()] == [
            ("k", "v", 5),
            ("k", None, 6),
        ]


def test_of_several_writes_of_a_key_in_a_commit_the_last_is_written() -> None:
    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("P", PutTwice, "S")
    topology.add_state_store(
        Stores.key_value_store_builder(Stores.in_memory_key_value_store("kept"), STRING, STRING), "P"
    )
    given = {"application.id": "app", "default.key.serde": STRING, "default.value.serde": STRING}
    with TopologyTestDriver(topology, given) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "v", timestamp=5)
        changes = driver.create_output_topic("app-kept-changelog", STRING, STRING)
        assert changes.read_key_values_to_list() == [("other", "v"), ("k", "v again")]


class PutTwice(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        store = self.context.get_state_store("kept")
        store.put(record.key, record.value)
        store.put("other", record.value)
        store.put(record.key, f"{record.value} again")


@pytest.mark.parametrize(
    ("config", "materialized"),
    [
        ({}, Materialized.as_("kept").with_logging_disabled()),
        ({"topology.optimization": "reuse.ktable.source.topics"}, Materialized.as_("kept")),
    ],
    ids=["logging disabled", "the source topic is the changelog"],
)
def test_a_store_without_a_changelog_topic_writes_none(config: Mapping[str, Any], materialized: Materialized) -> None:
    with _table(config, materialized) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "v")
        assert driver.produced_topic_names() == {"out"}


def test_a_record_whose_time_the_producer_gives_has_that_of_the_clock() -> None:
    builder = StreamsBuilder()
    until = Suppressed.until_time_limit(10, BufferConfig.unbounded())
    builder.table("in").suppress(until.with_name("held")).to_stream().to("out")
    given = {"application.id": "app", "default.key.serde": STRING, "default.value.serde": STRING}
    with TopologyTestDriver(builder.build(), given, initial_wall_clock_ms=77) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "v", timestamp=5)
        record = driver.read_bytes("app-held-store-changelog")
        assert (record.key, record.timestamp, record.headers) == (b"k", 77, BUFFER_HEADERS)


# ---------- from a record to an entry and back


# ---------- restored stores
