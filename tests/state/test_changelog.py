"""Changelog records against those that Kafka Streams 4.3.0 wrote: the test driver's, byte for byte, and stores that are
restored from Kafka's; and for every kind of store the way from a record to an entry and back.

`changelog_cases.jsonl` has topologies and inputs in the format of tests/oracle, the records that Kafka's
TopologyTestDriver wrote to changelog topics in each step (topic without application, key, value, timestamp, headers),
and what the stores held in the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock import (
    BufferConfig,
    Materialized,
    Processor,
    Record,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    Topology,
)
from penstock.errors import ProcessorStateError
from penstock.host.inline.inline_host import ProducedRecord
from penstock.record import NO_TIMESTAMP, Change, Headers, RecordBatch, ValueTimestampHeaders
from penstock.state.api import RecordContext
from penstock.state.buffered_change import BufferedChange, pack_change
from penstock.state.build import StoreServices, build_store, changelog_records, restore_store
from penstock.state.change_logging_store import ChangeLog
from penstock.state.changelog_format import (
    BUFFER_HEADERS,
    ChangelogFormat,
    ChangelogRecord,
    ChangelogValues,
    changelog_format,
)
from penstock.state.layouts import pack_session, pack_timestamp, pack_window
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.suppliers import (
    StoreSupplier,
    TimeOrderedBufferBytesStoreSupplier,
    TimeOrderedKeyValueBytesStoreSupplier,
)
from penstock.testing import TopologyTestDriver
from tests.oracle.interpreter import case_runner, settings
from tests.oracle.interpreter.store_content import content
from tests.oracle.interpreter.values import headers_from_json

Case = Mapping[str, Any]

STRING = Serdes.string()
CONFIG = StreamsConfig({"application.id": "app"}, environment={})
CASES = [json.loads(line) for line in (Path(__file__).parent / "changelog_cases.jsonl").read_text().splitlines()]
PREFIX = f"{settings.APPLICATION_ID}-"


# ---------- against Kafka


def _record_of(row: list[Any]) -> ChangelogRecord:
    _, key, value, timestamp, *headers = row
    read = tuple((name, None if data is None else bytes.fromhex(data)) for name, data in (headers or [[]])[0])
    return ChangelogRecord(bytes.fromhex(key), None if value is None else bytes.fromhex(value), timestamp, read)


def _batch(records: Iterable[ChangelogRecord]) -> RecordBatch:
    return RecordBatch.of(
        [
            (each.key, each.value, NO_TIMESTAMP if each.timestamp is None else each.timestamp, offset, each.headers)
            for offset, each in enumerate(records)
        ]
    )


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
        assert content(_restored(builder, config, records), case) == held


@pytest.mark.parametrize("case", [case for case in CASES if case["stores"]], ids=lambda case: case["id"])
def test_stores_are_made_again_from_the_records_of_their_entries(case: Case) -> None:
    config = _config_of(case)
    for builder, records, held in _written_stores(case, config):
        written = _entries_as_records(builder, config, records)
        assert content(_restored(builder, config, written), case) == held
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


def _entries_as_records(
    builder: StoreBuilder, config: StreamsConfig, records: Iterable[ChangelogRecord]
) -> list[ChangelogRecord]:
    """Return the changelog records of the entries of a store that was restored from `records`."""
    base = MemoryBase()
    base.apply({builder.name: restore_store(builder, config, base.view(builder.name), {}, _batch(records))}, b"")
    return list(changelog_records(builder, config, base.view(builder.name), 7, lambda: nullcontext(MemoryBase())))


def _restored(builder: StoreBuilder, config: StreamsConfig, records: Iterable[ChangelogRecord]) -> Any:
    base, metadata = MemoryBase(), dict[str, int]()
    base.apply({builder.name: restore_store(builder, config, base.view(builder.name), metadata, _batch(records))}, b"")
    return build_store(builder, config, base.view(builder.name), RecordCache(0), _context, metadata)


def _context() -> RecordContext:
    return RecordContext(7, (("h", b"1"),))


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


def test_a_host_takes_the_records_by_topic_as_columns() -> None:
    log = ChangeLog({"s": "s-changelog", "t": "t-changelog"})
    for store, key, value, timestamp in (
        ("s", b"a", b"1", 5),
        ("t", b"a", b"2", None),
        ("s", b"b", None, 6),
        ("s", b"a", b"3", 7),
    ):
        log.add(store, [ChangelogRecord(key, value, timestamp, (("h", b"x"),) if store == "t" else ())])
    taken = log.take_batches(now_ms=99)
    assert {topic: (batch.keys, batch.values, batch.timestamps.tolist()) for topic, batch in taken.items()} == {
        "s-changelog": ([b"b", b"a"], [None, b"3"], [6, 7]),
        "t-changelog": ([b"a"], [b"2"], [99]),
    }
    assert taken["t-changelog"].headers_at(0) == (("h", b"x"),)
    assert log.take_batches(now_ms=99) == {}


# ---------- from a record to an entry and back

TIMES = st.integers(0, 2**62)
BYTES = st.binary(max_size=12)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | BYTES), max_size=3).map(tuple)
CHANGES = st.builds(
    BufferedChange,
    st.none() | BYTES,
    st.none() | BYTES,
    BYTES,
    st.builds(RecordContext, TIMES, HEADERS, st.none() | st.text(max_size=5), st.integers(0, 99), TIMES),
)

PLAIN, TIMESTAMPED = ChangelogValues(), ChangelogValues(timestamped=True)
WITH_HEADERS = ChangelogValues(timestamped=True, with_headers=True)
AGGREGATION = ChangelogValues(with_headers=True)

WINDOW = Stores.persistent_window_store("s", 600_000, 10, False)
DUPLICATES = Stores.persistent_window_store("s", 600_000, 10, True)
SESSION = Stores.in_memory_session_store("s", 600_000)
KINDS: list[tuple[StoreSupplier, ChangelogValues]] = [
    (Stores.in_memory_key_value_store("s"), PLAIN),
    (Stores.persistent_timestamped_key_value_store("s"), TIMESTAMPED),
    (Stores.persistent_timestamped_key_value_store_with_headers("s"), WITH_HEADERS),
    (Stores.lru_map("s", 10), PLAIN),
    (Stores.persistent_versioned_key_value_store("s", 1000), PLAIN),
    (WINDOW, PLAIN),
    (WINDOW, TIMESTAMPED),
    (WINDOW, WITH_HEADERS),
    (DUPLICATES, PLAIN),
    (SESSION, PLAIN),
    (SESSION, AGGREGATION),
]


@st.composite
def _records(draw: st.DrawFn, supplier: StoreSupplier, values: ChangelogValues) -> ChangelogRecord:
    key = draw(BYTES)
    if supplier.kind == "window":
        key += pack_window(draw(TIMES), draw(st.integers(0, 2**31 - 1)))
    if supplier.kind == "session":
        key += pack_session(draw(TIMES), draw(TIMES))
    headers: Headers = draw(HEADERS) if values.with_headers else ()
    return ChangelogRecord(key, draw(st.none() | BYTES), draw(TIMES), headers)


def _there_and_back(format: ChangelogFormat, record: ChangelogRecord) -> ChangelogRecord:
    (key,), (value,) = format.entries(_batch([record]))
    return format.record(key, value, RecordContext(record.timestamp or 0, record.headers))


@pytest.mark.parametrize(("supplier", "values"), KINDS, ids=lambda given: getattr(given, "kind", str(given)))
@given(data=st.data())
def test_a_record_comes_back_from_its_entry(
    supplier: StoreSupplier, values: ChangelogValues, data: st.DataObject
) -> None:
    record = data.draw(_records(supplier, values))
    assert _there_and_back(changelog_format(supplier, values), record) == record


@given(BYTES, TIMES, st.none() | BYTES)
def test_a_record_of_a_join_buffer_comes_back(key: bytes, time: int, value: bytes | None) -> None:
    format = changelog_format(TimeOrderedKeyValueBytesStoreSupplier("s", False), PLAIN)
    written = None if value is None else value + bytes(8)
    record = ChangelogRecord(b"\0" + pack_timestamp(time) + key, written, None)
    assert _there_and_back(format, record) == record


@given(BYTES, TIMES, CHANGES)
def test_a_record_of_a_buffer_of_updates_comes_back(key: bytes, time: int, change: BufferedChange) -> None:
    format = changelog_format(TimeOrderedBufferBytesStoreSupplier("s"), PLAIN)
    record = ChangelogRecord(key, pack_change(change) + pack_timestamp(time), None, BUFFER_HEADERS)
    assert _there_and_back(format, record) == record


@pytest.mark.parametrize(
    ("supplier", "record", "expected"),
    [
        (WINDOW, ChangelogRecord(b"short", b"v", 1), "ends in 12 bytes"),
        (SESSION, ChangelogRecord(b"short", b"v", 1), "ends in 16 bytes"),
        (TimeOrderedBufferBytesStoreSupplier("s"), ChangelogRecord(b"k", bytes(99), 1), "another version"),
        (TimeOrderedBufferBytesStoreSupplier("s"), ChangelogRecord(b"k", b"v", 1, BUFFER_HEADERS), "8 bytes of time"),
        (TimeOrderedKeyValueBytesStoreSupplier("s", False), ChangelogRecord(b"k", b"v", 1), "a byte of 0"),
    ],
)
def test_a_record_of_another_store_is_refused(supplier: StoreSupplier, record: ChangelogRecord, expected: str) -> None:
    with pytest.raises(ProcessorStateError, match=expected):
        changelog_format(supplier, PLAIN).entries(_batch([record]))


# ---------- restored stores


def _logged(builder: StoreBuilder, metadata: dict[str, int]) -> tuple[Any, ChangeLog]:
    log = ChangeLog({"s": "topic"})
    view = MemoryBase().view("s")
    return build_store(builder, CONFIG, view, RecordCache(0), _context, metadata, StoreServices(change_log=log)), log


def _taken(log: ChangeLog) -> list[ChangelogRecord]:
    return [record for _, record in log.take()]


PUTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.text(max_size=3), st.integers(0, 200)), min_size=1, max_size=20
)


@given(PUTS)
def test_versions_come_back_from_the_changelog(puts: list[tuple[str, str | None, int]]) -> None:
    supplier = Stores.persistent_versioned_key_value_store("s", 100)
    builder = Stores.versioned_key_value_store_builder(supplier, STRING, STRING)
    store, log = _logged(builder, {})
    for key, value, timestamp in puts:
        store.put(key, value, timestamp)
    taken = _taken(log)
    for records in (taken, _entries_as_records(builder, CONFIG, taken)):
        restored = _restored(builder, CONFIG, records)
        for key in "abc":
            assert restored.get(key) == store.get(key)
            for time in range(0, 201, 10):
                assert restored.get(key, time) == store.get(key, time)


@given(PUTS)
def test_duplicates_come_back_from_their_entries_and_count_on(puts: list[tuple[str, str | None, int]]) -> None:
    builder = Stores.window_store_builder(DUPLICATES, STRING, STRING)
    store, log = _logged(builder, {})
    for key, value, start in puts:
        store.put(key, value, start)
    metadata: dict[str, int] = {}
    view = MemoryBase().view("s")
    restored = MemoryBase()
    written = _entries_as_records(builder, CONFIG, _taken(log))
    restored.apply({"s": restore_store(builder, CONFIG, view, metadata, _batch(written))}, b"")
    again = build_store(builder, CONFIG, restored.view("s"), RecordCache(0), _context, metadata)
    again.put("a", "next", 5)  # type: ignore[attr-defined]  # a window store
    store.put("a", "next", 5)
    assert list(again.all()) == list(store.all())  # type: ignore[attr-defined]  # a window store


def test_an_update_that_left_a_buffer_leaves_the_restored_one() -> None:
    builder = StoreBuilder(TimeOrderedBufferBytesStoreSupplier("s"), STRING, STRING)
    store, log = _logged(builder, {})
    for key, time in (("a", 3), ("b", 1), ("c", 2)):
        store.put(time, key, Change(key * 2, None), _context())
    store.changes()
    written = _taken(log)
    assert [record.key for record in written] == [b"a", b"b", b"c"]
    store.evict_while(lambda: store.min_timestamp < 2, lambda eviction: None)
    assert _taken(log) == [ChangelogRecord(b"b", None, None)]
    restored = _restored(builder, CONFIG, [*written, ChangelogRecord(b"b", None, None)])
    assert (restored.num_records, restored.buffer_size) == (store.num_records, store.buffer_size)
    evicted: list[Any] = []
    restored.evict_while(lambda: True, evicted.append)
    assert [(eviction.key, eviction.change) for eviction in evicted] == [
        ("c", Change("cc", None)),
        ("a", Change("aa", None)),
    ]


def test_what_expires_leaves_no_delete_in_the_changelog() -> None:
    store, log = _logged(Stores.window_store_builder(WINDOW, STRING, STRING), {})
    store.put("a", "old", 0)
    store.put("a", "new", 10_000_000)
    _taken(log)
    store.flush()
    assert any(value is None for value in store.changes().values())
    assert _taken(log) == []


def test_a_plain_store_below_timestamps_and_headers_keeps_the_values() -> None:
    plain = Stores.persistent_key_value_store("s")
    builder = Stores.timestamped_key_value_store_with_headers_builder(plain, STRING, STRING)
    store, log = _logged(builder, {})
    store.put("a", ValueTimestampHeaders("v", 5, (("h", b"1"),)))
    assert store.get("a") == ValueTimestampHeaders("v", -1, ())
    assert _taken(log) == [ChangelogRecord(b"a", b"v", 5, (("h", b"1"),))]
