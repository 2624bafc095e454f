"""What Kafka Streams 4.4.0 has left on its brokers behind the first half of an input (java.json): the core of the
threads host leaves the same there, byte for byte, and goes on with the second half from there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from penstock import Consumed, Joined, Materialized, Serdes, Stores, StreamsBuilder
from penstock.client.api import OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.errors import ProcessorStateError
from penstock.host.commits.committing import PartitionMetadata
from penstock.host.deployment.internal_topics import internal_topics
from penstock.host.threads.takeover import check_serdes_of
from penstock.plan.topology import built_topology
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.state.changelog_format import ChangelogRecord
from penstock.testing import TopologyTestDriver
from penstock_broker.common.clock import MockClock
from tests.host.threads.inline import InlineInstance
from tests.host.threads.memory_broker import MemoryBroker
from tests.host.threads.takeover import twin
from tests.host.threads.takeover.running import (
    EXPIRING,
    RECORDED,
    SEED,
    as_json,
    compacted,
    from_json,
    split,
    unexpired,
)

EVERYTHING = json.loads(RECORDED.read_text())
FORMATS = ("default", "headers")
UNTIMED = ("held-store", "Buffer", "billed")
"""Changelogs whose records have the time of writing, or, in a join by a foreign key, a time that depends on which of
two tasks runs first, which is open."""
UNORDERED = "-topic"
"""The end of topics whose records come in an order that is open."""


class Place:
    """The application, on brokers in memory."""

    def __init__(self, store_format: str, own_format: str | None = None) -> None:
        """own_format: ours, None for the same as in Java."""
        self.java: Mapping[str, Any] = EVERYTHING[store_format]
        self.name, self.inputs = f"{store_format}-app", f"{store_format}-in-"
        self.settings = twin.settings("at_least_once", own_format or store_format)
        self.halves = split(twin.records(SEED, EVERYTHING["base_ms"]), 2)
        topics = {self.inputs + topic: twin.PARTITIONS for group in twin.GROUPS for topic in group}
        outputs = {f"{self.name}-out-{output}": 1 for output in twin.OUTPUTS}
        self.broker = MemoryBroker({**topics, **outputs})
        config = {**self.settings, "application.id": self.name, "auto.offset.reset": "earliest"}
        self.config = StreamsConfig(config, environment={})

    def write(self, half: int) -> None:
        """Write a half of the input."""
        rows: dict[TopicPartition, list[tuple[Any, ...]]] = {}
        for each in self.halves[half]:
            value = None if each.value is None else each.value.encode()
            own = rows.setdefault(TopicPartition(self.inputs + each.topic, each.partition), [])
            own.append((each.key.encode(), value, each.timestamp, 0, each.headers))
        self.broker.append([PartitionBatch(*place, RecordBatch.of(own)) for place, own in rows.items()])

    def instance(self) -> InlineInstance:
        topology = twin.topology(self.inputs, self.name)
        return InlineInstance(topology, self.config, self.broker, MockClock(0), records_at_once=1_000)

    def run(self) -> InlineInstance:
        """Process all that there is, and close."""
        instance = self.instance()
        instance.run()
        instance.close()
        return instance

    def rows(self, partition: TopicPartition, start: int = 0) -> list[ChangelogRecord]:
        end = self.broker.end(partition)
        if start == end:
            return []
        batch = self.broker.read(partition, start, end)
        times = batch.timestamps.tolist()
        rows = enumerate(zip(batch.keys, batch.values, times, strict=True))
        return [ChangelogRecord(k or b"", value, time, batch.headers_at(row)) for row, (k, value, time) in rows]

    def restore_what_java_left(self) -> None:
        """Write the changelogs of the application in Java and its offsets, but for those of repartition topics: all in
        them was read."""
        for name, rows in self.java["changelogs"].items():
            topic, _, partition = name.rpartition("-")
            self.broker.create_topic(self.name + topic, twin.PARTITIONS)
            records = [(row.key, row.value, row.timestamp or 0, 0, row.headers) for row in map(from_json, rows)]
            self.broker.append([PartitionBatch(self.name + topic, int(partition), RecordBatch.of(records))])
        for topic, partition, *committed in self.java["committed"]:
            if topic.startswith(self.inputs):
                self.broker.committed[TopicPartition(topic, partition)] = OffsetAndMetadata(*committed)


def _comparable(name: str, rows: Iterable[ChangelogRecord]) -> list[list[Any]]:
    """Return `rows` by their keys: a commit writes its changes in an order of its own."""
    untimed = any(part in name for part in UNTIMED)
    entries = map(as_json, unexpired(name, list(rows)))
    timed = ([key, value, None if untimed else time, headers] for key, value, time, headers in entries)
    return sorted(timed, key=lambda row: row[0])


@pytest.mark.parametrize("store_format", FORMATS)
def test_topics_and_changelogs_are_those_of_kafka_streams(store_format: str) -> None:
    place = Place(store_format)
    place.write(0)
    instance = place.run()
    topics = {
        each.name.removeprefix(place.name): [each.partitions, dict(sorted(each.config.items()))]
        for each in internal_topics(instance.layout)
    }
    assert topics == place.java["topics"]
    for name, rows in place.java["changelogs"].items():
        topic, _, partition = name.rpartition("-")
        ours = compacted(name, place.rows(TopicPartition(place.name + topic, int(partition))))
        assert _comparable(name, ours) == _comparable(name, map(from_json, rows)), name


@pytest.mark.parametrize("store_format", FORMATS)
def test_the_serdes_of_stores_read_the_changelogs_of_kafka_streams(store_format: str) -> None:
    place = Place(store_format)
    place.restore_what_java_left()
    layout = place.instance().layout
    stores = {
        (name, TopicPartition(partition.topic, number)): layout.spec(task).stores[name]
        for task in layout.groups
        for name, partition in layout.changelogs(task).items()
        for number in range(twin.PARTITIONS)
    }
    for (_, partition), builder in stores.items():
        records = place.broker.read(partition, 0, place.broker.end(partition))
        check_serdes_of(builder, place.config, partition.topic, records)


@pytest.mark.parametrize("store_format", FORMATS)
def test_the_text_beside_offsets_has_what_kafka_streams_reads_there(store_format: str) -> None:
    place = Place(store_format)
    place.write(0)
    place.run()
    remembered = 0
    for topic, partition, offset, metadata in place.java["committed"]:
        if topic.endswith(UNORDERED):
            continue
        ours, theirs = place.broker.committed[TopicPartition(topic, partition)], PartitionMetadata.decode(metadata)
        found = PartitionMetadata.decode(ours.metadata)
        assert found.partition_time == theirs.partition_time, topic
        assert found.processor_metadata.items() >= theirs.processor_metadata.items(), topic
        remembered += len(theirs.processor_metadata)
        if topic.startswith(place.inputs):
            assert ours.offset == offset
    assert remembered == twin.PARTITIONS  # the last emission of windows that are emitted when they close


@pytest.mark.parametrize("own_format", FORMATS)
@pytest.mark.parametrize("store_format", FORMATS)
def test_an_application_goes_on_where_kafka_streams_has_stopped(store_format: str, own_format: str) -> None:
    place = Place(store_format, own_format)
    place.write(0)
    place.restore_what_java_left()
    place.write(1)
    place.run()
    _, rows = twin.expected(place.halves, place.settings)
    expected = twin.outputs(rows)
    found = twin.outputs(
        (name, each.key, twin.Output(each.value, each.timestamp or 0, each.headers))
        for name in twin.OUTPUTS
        for each in place.rows(TopicPartition(f"{place.name}-out-{name}", 0))
    )
    for name in twin.OUTPUTS:
        if name in twin.REORDERED:  # what an order leaves out another one may write again
            assert {key: found[name][key] for key in expected[name]} == expected[name]
        else:
            assert found[name] == expected[name], name


@pytest.mark.parametrize("store_format", FORMATS)
def test_what_kafka_streams_has_left_expires(store_format: str) -> None:
    place = Place(store_format)
    place.write(0)
    place.restore_what_java_left()
    left = {}
    for number in range(twin.PARTITIONS):
        changelog = TopicPartition(f"{place.name}{EXPIRING}", number)
        left[changelog] = place.rows(changelog)
        time = max(row.timestamp or 0 for row in left[changelog]) + twin.TTL
        tap = RecordBatch.of([(b"new", b"1", time, 0, ())])
        place.broker.append([PartitionBatch(f"{place.inputs}taps", number, tap)])
    place.run()
    for changelog, rows in left.items():
        written = {row.key: row.value for row in place.rows(changelog, len(rows))}
        assert written.pop(b"new") == (1).to_bytes(8)
        assert written == {row.key: None for row in rows}


def test_a_sale_does_not_replace_one_that_waits_since_kafka_streams() -> None:
    place = Place("default")
    place.write(0)
    place.restore_what_java_left()
    changelog = TopicPartition(f"{place.name}-priced-Buffer-changelog", 0)
    waiting = {each.key: each for each in place.rows(changelog)}
    first = min((key for key, each in waiting.items() if each.value is not None), key=lambda key: key[-4:])
    time, key, number = int.from_bytes(first[1:9]), first[9:-4], int.from_bytes(first[-4:])
    others = [(b"other", b"0", time, 0, ())] * (number - 1)
    later = (b"other", b"0", time + 20 * twin.SECOND, 0, ())
    sales = RecordBatch.of([*others, (key, b"new", time, 0, ()), later])
    price = RecordBatch.of([(key, b"9", time, 0, ())])
    place.broker.append([PartitionBatch(f"{place.inputs}prices", 0, price)])
    place.broker.append([PartitionBatch(f"{place.inputs}sales", 0, sales)])
    place.run()
    output = place.rows(TopicPartition(f"{place.name}-out-sales", 0))
    joined = [each.value for each in output if (each.key, each.timestamp) == (key, time)]
    assert len(joined) == 2
    assert joined[-1] == b"new@9"


def test_serdes_read_the_changelog_of_a_buffer_of_a_join() -> None:
    builder, longs = StreamsBuilder(), Consumed.with_(Serdes.long(), Serdes.long())
    prices = Stores.persistent_versioned_key_value_store("prices", 60_000)
    table = builder.table("prices", longs, Materialized.as_(prices))
    joined = Joined.as_("priced").with_grace_period(10)
    builder.stream("sales", longs).join(table, lambda sale, price: sale * price, joined=joined).to("out")
    topology = builder.build()
    config = StreamsConfig({"application.id": "app", "default.value.serde": Serdes.long()})
    with TopologyTestDriver(topology, config) as driver:
        driver.pipe_bytes("sales", bytes(8), bytes(8), 5)
        changelog = "app-priced-Buffer-changelog"
        [waiting] = [each for each in driver.read_all_bytes() if each.topic == changelog]
    [store] = [
        spec.stores["priced-Buffer"]
        for spec in built_topology(topology, "app").subtopologies
        if "priced-Buffer" in spec.stores
    ]
    check_serdes_of(store, config, changelog, RecordBatch.of([(waiting.key, waiting.value, 5, 0, ())]))
    shorter = RecordBatch.of([(b"\0" + (waiting.key or b"")[2:], waiting.value, 5, 0, ())])
    with pytest.raises(ProcessorStateError, match="cannot read the key"):
        check_serdes_of(store, config, changelog, shorter)
