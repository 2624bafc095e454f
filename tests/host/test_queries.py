"""Every kind of store, read as the test driver shows it: by store and by request, with positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import (
    AggregationWithHeaders,
    Consumed,
    Headers,
    HostInfo,
    IsolationLevel,
    KeyQuery,
    KeyQueryMetadata,
    Materialized,
    MultiVersionedKeyQuery,
    Position,
    PositionBound,
    Processor,
    ProcessorContext,
    ProcessorSupplier,
    Query,
    QueryableStoreTypes,
    RangeQuery,
    Record,
    Serde,
    Serdes,
    SessionWindow,
    SessionWindows,
    StateQueryRequest,
    StateQueryResult,
    StoreBuilder,
    StoreQueryParameters,
    Stores,
    StreamsBuilder,
    TimestampedKeyQuery,
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
    TimeWindow,
    TimeWindows,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedKeyQuery,
    VersionedRecord,
    Windowed,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.config import StreamsConfig
from penstock.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    UnknownStateStoreError,
    UnsupportedOperationError,
)
from penstock.host.api import StateQueries
from penstock.plan.partitioning import partition_for
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.query.queryable import StoreTableType
from penstock.state.query.request import FailureReason, QueryResult
from penstock.testing import TopologyTestDriver
from tests.host.support import WITH_PROCESSES, InputRecord, Program, Runner, lines, wait_for
from tests.host.test_topologies import word_count

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
RECORDS = [
    ("a", "1", 1_000),
    ("b", "2", 2_000),
    ("a", "3", 61_000),
    ("c", "4", 62_000),
    ("a", "5", 63_000),
    ("b", "6", 200_000),
]
VALUES = {
    "default.key.serde": STRING,
    "default.value.serde": STRING,
    "penstock.query.refresh.ms": 0,
    "statestore.cache.max.bytes": 0,  # a cache shows what has expired
}


class LastUsed(Processor):
    """Puts into an LRU store and one in memory."""

    def init(self, context: ProcessorContext) -> None:
        self.stores: list[Any] = [context.get_state_store("lru"), context.get_state_store("memory")]

    def process(self, record: Record[str, str]) -> None:
        for store in self.stores:
            store.put(record.key, record.value)


class LastUsedSupplier(ProcessorSupplier):
    def get(self) -> LastUsed:
        return LastUsed()

    def stores(self) -> list[StoreBuilder]:
        return [
            Stores.key_value_store_builder(Stores.lru_map("lru", 2), STRING, STRING),
            Stores.key_value_store_builder(Stores.in_memory_key_value_store("memory"), STRING, STRING),
        ]


class KeyWithHeaders(Serde[str]):
    """Writes the values of the headers before the key."""

    uses_headers = True

    def serialize(self, topic: str, value: str, headers: Headers = ()) -> bytes:
        return b"".join(each or b"" for _, each in headers) + value.encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return data.decode()


def partition_by_headers(topic: str, key: str, value: None, headers: Headers, partitions: int) -> set[int]:
    """Return the partition that the first header names (KIP-1321)."""
    return {int(headers[0][1] or b"0") % partitions}


def every_kind(source: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(source, consumed=TEXT)
    grouped = stream.group_by_key()
    grouped.count(materialized=Materialized.as_("counts"))
    minute = TimeWindows.of_size_with_no_grace(60_000)
    grouped.windowed_by(minute).count(materialized=Materialized.as_("windows").with_retention(600_000))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5_000)).count(
        materialized=Materialized.as_("sessions").with_retention(600_000)
    )
    stream.to_table(materialized=Materialized.as_(Stores.persistent_versioned_key_value_store("versions", 600_000)))
    stream.process(LastUsedSupplier())
    stream.group_by(lambda _, value: value).count(materialized=Materialized.as_("by-value"))
    return builder.build()


@pytest.fixture
def source(runner: Runner, unique_name: Callable[[str], str]) -> str:
    name = unique_name("in")
    runner.create_topics({name: 2})
    return name


@pytest.fixture
def config(runner: Runner, application: str) -> StreamsConfig:
    return runner.config(application, VALUES)


@pytest.fixture
def driver(source: str) -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(every_kind(source), VALUES, 0) as driver:
        topic = driver.create_input_topic(source, STRING, STRING)
        for key, value, timestamp in RECORDS:
            topic.pipe_input(key, value, timestamp)
        yield driver


@pytest.fixture
def state(runner: Runner, start: Callable[..., Program], source: str, config: StreamsConfig) -> StateQueries:
    program = start(every_kind(source), config)
    for part in (RECORDS[:2], RECORDS[2:]):  # all in one partition, so that one task has what the driver's task has
        runner.write(source, [InputRecord(k.encode(), v.encode(), t) for k, v, t in part])
        program.run_to_end()
    return program.queries()


def ask(state: StateQueries, store: str, query: Query) -> StateQueryResult:
    return state.query(StateQueryRequest.in_store(store).with_query(query))


def answer(state: StateQueries, store: str, query: Query) -> Any:
    """Return what the partition answers that has the records; iterators as lists."""
    result = ask(state, store, query).partition_results[0]
    assert result.is_success(), result.failure_message
    return list(result.result) if hasattr(result.result, "close") else result.result


def test_stores_are_as_the_test_driver_shows_them(state: StateQueries, driver: TopologyTestDriver) -> None:
    def store(name: str, type: Any) -> Any:
        return state.store(StoreQueryParameters.from_name_and_type(name, type))

    types = QueryableStoreTypes
    counts, expected = store("counts", types.key_value_store()), driver.get_key_value_store("counts")
    assert expected is not None
    assert list(counts.all()) == list(expected.all()) != []
    assert counts.to_arrow() == expected.to_arrow()
    assert list(counts.prefix_scan("b", STRING)) == [("b", 2)]
    timestamped, expected = (
        store("counts", types.timestamped_key_value_store()),
        driver.get_all_state_stores()["counts"],
    )
    assert list(timestamped.reverse_range("a", "b")) == list(expected.reverse_range("a", "b")) != []
    for name in ("lru", "memory"):
        plain = driver.get_key_value_store(name)
        assert plain is not None
        assert list(store(name, types.key_value_store()).all()) == list(plain.all()) != []

    windows, expected = store("windows", types.window_store()), driver.get_window_store("windows")
    assert expected is not None
    assert list(windows.all()) == list(expected.all()) != []
    assert list(windows.backward_all()) == list(expected.backward_all())
    assert windows.to_arrow() == expected.to_arrow()
    assert list(windows.fetch("a", 0, 100_000)) == list(expected.fetch("a", 0, 100_000)) == [(0, 1), (60_000, 2)]
    assert list(windows.backward_fetch("a", 0, 100_000)) == [(60_000, 2), (0, 1)]
    assert windows.fetch("a", 60_000) == 2
    assert windows.fetch("a", 120_000) is None
    for method, arguments in {
        "fetch_range": ("a", "b", 0, 100_000),
        "backward_fetch_range": ("a", "b", 0, 100_000),
        "fetch_all": (0, 60_000),
        "backward_fetch_all": (0, 60_000),
    }.items():
        assert list(getattr(windows, method)(*arguments)) == list(getattr(expected, method)(*arguments)) != []
    assert store("windows", types.timestamped_window_store()).fetch("a", 60_000) == ValueAndTimestamp(2, 63_000)

    sessions, expected = store("sessions", types.session_store()), driver.get_session_store("sessions")
    assert expected is not None
    for method, arguments in {
        "fetch": ("a",),
        "backward_fetch": ("a",),
        "fetch_range": ("a", "c"),
        "backward_fetch_range": ("a", "c"),
        "find_sessions": ("a", 0, 62_000),
        "backward_find_sessions": ("a", 0, 62_000),
        "find_sessions_range": ("a", "c", 0, 62_000),
        "backward_find_sessions_range": ("a", "c", 0, 62_000),
    }.items():
        assert list(getattr(sessions, method)(*arguments)) == list(getattr(expected, method)(*arguments)) != []
    assert sessions.fetch_session("a", 61_000, 63_000) == 2
    assert sessions.to_arrow() == expected.to_arrow()

    versions, expected = store("versions", StoreTableType()), driver.get_versioned_key_value_store("versions")
    assert expected is not None
    assert versions.to_arrow() == expected.to_arrow()
    assert versions.to_arrow().num_rows > 0


def test_requests_of_key_value_stores(state: StateQueries) -> None:
    assert answer(state, "counts", KeyQuery.with_key("a")) == 3
    assert answer(state, "counts", KeyQuery.with_key("z").skip_cache()) is None
    assert answer(state, "counts", TimestampedKeyQuery.with_key("a")) == ValueAndTimestamp(3, 63_000)
    assert answer(state, "counts", RangeQuery.with_no_bounds()) == [("a", 3), ("b", 2), ("c", 1)]
    assert answer(state, "counts", RangeQuery.with_lower_bound("b").with_descending_keys()) == [("c", 1), ("b", 2)]
    timestamped = TimestampedRangeQuery.with_upper_bound("a").with_ascending_keys()
    assert answer(state, "counts", timestamped) == [("a", ValueAndTimestamp(3, 63_000))]
    assert answer(state, "memory", KeyQuery.with_key("c")) == "4"
    refused = ask(state, "memory", TimestampedKeyQuery.with_key("c")).partition_results[0]
    assert refused.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    with pytest.raises(ValueError, match="Cannot get result for failed query"):
        _ = refused.result


def test_requests_of_window_and_session_stores(state: StateQueries) -> None:
    by_key = WindowKeyQuery.with_key_and_window_start_range("a", 0, 60_000)
    assert answer(state, "windows", by_key) == [
        (0, ValueAndTimestamp(1, 1_000)),
        (60_000, ValueAndTimestamp(2, 63_000)),
    ]
    all_keys = answer(state, "windows", WindowRangeQuery.with_window_start_range(60_000, 60_000))
    assert [(str(key), value.value) for key, value in all_keys] == [("[a@60000/120000]", 2), ("[c@60000/120000]", 1)]
    sessions = answer(state, "sessions", WindowRangeQuery.with_key("a"))
    assert [(str(key), value) for key, value in sessions] == [("[a@1000/1000]", 1), ("[a@61000/63000]", 2)]
    for store, query in {
        "windows": WindowRangeQuery.with_key("a"),
        "sessions": WindowRangeQuery.with_window_start_range(0, 1),
        "counts": by_key,
    }.items():
        assert ask(state, store, query).partition_results[0].failure_reason is FailureReason.UNKNOWN_QUERY_TYPE


HEADERS = (("h", b"x"), ("none", None))


class Headed(Processor):
    """Puts each record into a store of each kind with headers."""

    def init(self, context: ProcessorContext) -> None:
        self.keys: Any = context.get_state_store("keys")
        self.windows: Any = context.get_state_store("windows")
        self.sessions: Any = context.get_state_store("sessions")

    def process(self, record: Record[str, str]) -> None:
        start, value = record.timestamp // 10 * 10, ValueTimestampHeaders(record.value, record.timestamp, HEADERS)
        self.keys.put(record.key, value)
        self.windows.put(record.key, value, start)
        session = Windowed(record.key, SessionWindow(record.timestamp, record.timestamp + 3))
        self.sessions.put(session, AggregationWithHeaders(record.value, HEADERS))


class HeadedSupplier(ProcessorSupplier):
    def get(self) -> Headed:
        return Headed()

    def stores(self) -> list[StoreBuilder]:
        keys = Stores.persistent_timestamped_key_value_store_with_headers("keys")
        windows = Stores.persistent_timestamped_window_store_with_headers("windows", 100_000, 10, False)
        sessions = Stores.persistent_session_store_with_headers("sessions", 100_000)
        return [
            Stores.timestamped_key_value_store_with_headers_builder(keys, STRING, STRING),
            Stores.timestamped_window_store_with_headers_builder(windows, STRING, STRING),
            Stores.session_store_with_headers_builder(sessions, STRING, STRING),
        ]


def test_requests_of_stores_with_headers(
    runner: Runner, start: Callable[..., Program], source: str, config: StreamsConfig
) -> None:
    """The answers of Kafka Streams 4.4."""
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).process(HeadedSupplier())
    program = start(builder.build(), config)
    runner.write(source, [InputRecord(k, v, t) for k, v, t in ((b"a", b"1", 5), (b"b", b"2", 17), (b"a", b"3", 25))])
    program.run_to_end()
    state = program.queries()
    a, b = Record("a", "3", 25, HEADERS), Record("b", "2", 17, HEADERS)
    assert answer(state, "keys", TimestampedKeyWithHeadersQuery.with_key("a")) == a
    assert answer(state, "keys", TimestampedKeyWithHeadersQuery.with_key("z").skip_cache()) is None
    assert answer(state, "keys", TimestampedRangeWithHeadersQuery.with_no_bounds()) == [a, b]
    descending = TimestampedRangeWithHeadersQuery.with_range("a", "b").with_descending_keys()
    assert answer(state, "keys", descending) == [b, a]

    def window(key: str, time: int) -> Windowed[str]:
        return Windowed(key, TimeWindow(time, time + 10))

    of_a = [Record(window("a", 0), "1", 5, HEADERS), Record(window("a", 20), "3", 25, HEADERS)]
    by_key = TimestampedWindowKeyWithHeadersQuery.with_key_and_window_start_range("a", 0, 100)
    assert answer(state, "windows", by_key) == of_a
    by_time = TimestampedWindowRangeWithHeadersQuery.with_window_start_range(0, 100)
    assert answer(state, "windows", by_time) == [*of_a, Record(window("b", 10), "2", 17, HEADERS)]
    sessions = answer(state, "sessions", TimestampedWindowRangeWithHeadersQuery.with_key("a"))
    assert [(str(each.key), each.value, each.timestamp, each.headers) for each in sessions] == [
        ("[a@5/8]", "1", 8, HEADERS),
        ("[a@25/28]", "3", 28, HEADERS),
    ]


def test_committed_state_is_read_at_each_isolation_level(state: StateQueries) -> None:
    counts = state.store(COUNTS)
    for level in IsolationLevel:
        request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a")).with_isolation_level(level)
        assert state.query(request).partition_results[0].result == 3
        assert counts.read_only(level).get("a") == 3


def test_requests_of_versioned_stores(state: StateQueries) -> None:
    versions = [VersionedRecord("5", 63_000), VersionedRecord("3", 61_000, 63_000), VersionedRecord("1", 1_000, 61_000)]
    assert answer(state, "versions", VersionedKeyQuery.with_key("a")) == versions[0]
    assert answer(state, "versions", VersionedKeyQuery.with_key("a").as_of(62_000)) == versions[1]
    assert answer(state, "versions", VersionedKeyQuery.with_key("a").as_of(0)) is None
    every = MultiVersionedKeyQuery.with_key("a")
    assert answer(state, "versions", every) == versions
    assert answer(state, "versions", every.with_ascending_timestamps()) == versions[::-1]
    assert answer(state, "versions", every.from_time(61_000).to_time(62_000)) == [versions[1]]
    before = every.to_time(10_000).with_descending_timestamps()
    assert answer(state, "versions", before) == [versions[2]], "though it was replaced in a later segment of the store"
    with pytest.raises(UnsupportedOperationError, match="do not support KeyQuery"):
        ask(state, "versions", KeyQuery.with_key("a"))
    with pytest.raises(ValueError, match="must be smaller"):
        ask(state, "versions", every.from_time(2).to_time(1))


def test_tasks_say_how_far_they_are(
    runner: Runner, start: Callable[..., Program], source: str, config: StreamsConfig
) -> None:
    program = start(every_kind(source), config)
    runner.write(source, [InputRecord(b"k", b"v", 1_000 + number, number % 2) for number in range(3)])
    program.run_to_end()
    runner.write(source, [InputRecord(b"k", b"v", 2_000, 0)])
    found = {each.task_id: each for each in program.queries().task_metadata()}
    partitions = [TopicPartition(source, number) for number in (0, 1)]
    first = found[TaskId(0, 0)]
    assert first.topic_partitions == {partitions[0]}
    committed = first.committed_offsets[partitions[0]]
    assert committed in (2, 3)  # some programs run on
    assert (first.end_offsets[partitions[0]], first.lag) == (3, 3 - committed)
    assert found[TaskId(0, 1)].topic_partitions == {partitions[1]}
    assert found[TaskId(0, 1)].lag == 0
    assert found.keys() == {TaskId(part, number) for part in (0, 1) for number in (0, 1)}
    assert source not in {each.topic for each in found[TaskId(1, 0)].topic_partitions}
    program.run_to_end()
    wait_for(lambda: sum(each.lag for each in program.queries().task_metadata()) == 0)


def test_answers_say_how_far_they_have_seen_and_may_be_bound(state: StateQueries, source: str) -> None:
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a"))
    result = state.query(request)
    assert result.position == Position.from_map({source: {0: 5}})
    assert result.only_partition_result == QueryResult(3, position=Position.from_map({source: {0: 5}}))
    seen = PositionBound.at(result.position)
    assert state.query(request.with_position_bound(seen)).partition_results[0].result == 3
    ahead = PositionBound.at(Position.empty_position().with_component(source, 0, 6))
    behind = state.query(request.with_position_bound(ahead)).partition_results
    assert behind[0].failure_reason is FailureReason.NOT_UP_TO_BOUND
    assert behind[1].is_success(), "a bound on a partition that this one does not depend on"
    unknown = PositionBound.at(Position.from_map({"elsewhere": {1: 0}}))
    assert state.query(request.with_position_bound(unknown)).partition_results[1].is_failure()
    one = state.query(request.with_partitions([0, 7]).enable_execution_info())
    assert one.partition_results[7].failure_reason is FailureReason.NOT_PRESENT
    assert one.partition_results[0].execution_info


def test_metadata_name_the_partition_of_a_key_and_what_the_program_has(
    start: Callable[..., Program], source: str, config: StreamsConfig
) -> None:
    program = start(every_kind(source), config.overridden({"application.server": "there:80"}))
    program.run_to_end()
    state, there = program.queries(), HostInfo("there", 80)
    for key in "abc":
        expected = KeyQueryMetadata(there, frozenset(), partition_for(key.encode(), 2))
        assert state.query_metadata_for_key("by-value", key) == expected
    assert state.query_metadata_for_key("counts", "a", partitioner=lambda *_: {1}).partition == 1
    assert state.query_metadata_for_key("counts", 7, Serdes.long()).partition == partition_for(bytes(7) + b"\x07", 2)
    headers = (("to", b"1"),)
    by_headers = state.query_metadata_for_key("counts", "a", KeyWithHeaders(), headers=headers)
    assert by_headers.partition == partition_for(b"1a", 2)
    sent = state.query_metadata_for_key("counts", "a", partitioner=partition_by_headers, headers=headers)
    assert sent.partition == 1
    [metadata] = state.streams_metadata()
    assert metadata.host_info == there
    assert metadata.state_store_names == {*state.stores()} >= {"counts", "windows", "memory"}
    assert metadata.topic_partitions >= {(source, 0), (source, 1)}


def test_a_program_without_an_address_is_not_available_to_others(state: StateQueries) -> None:
    found = state.query_metadata_for_key("counts", "a", partitioner=lambda *_: {1})
    assert found == KeyQueryMetadata(HostInfo.unavailable(), frozenset(), 1)


COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())


@pytest.mark.partitions(3, 1)
def test_a_key_value_store_is_read_as_it_grows(
    runner: Runner, start: Callable[..., Program], topics: tuple[str, str], application: str
) -> None:
    program = start(word_count(*topics), runner.config(application, VALUES))
    program.run_to_end()
    state = program.queries()
    counts = state.store(COUNTS)
    assert counts.get("a") is None
    assert list(counts.all()) == []
    runner.write(topics[0], lines(["a b", "b c", "a"], partitions=3))
    program.run_to_end()
    assert {word: counts.get(word) for word in "abcd"} == {"a": 2, "b": 2, "c": 1, "d": None}
    assert dict(counts.all()) == dict(counts.reverse_all()) == {"a": 2, "b": 2, "c": 1}
    assert dict(counts.range("b", None)) == {"b": 2, "c": 1}
    wait_for(lambda: counts.approximate_num_entries() == 3)  # of the base, which applies a commit when it is made
    runner.write(topics[0], lines(["a b c d"]))
    program.run_to_end()
    assert dict(counts.all()) == {"a": 3, "b": 3, "c": 2, "d": 1}
    timestamped = QueryableStoreTypes.timestamped_key_value_store()
    found = state.store(StoreQueryParameters.from_name_and_type("counts", timestamped))
    assert found.get("d") == ValueAndTimestamp(1, 1000)
    by_partition = [dict(state.store(COUNTS.with_partition(number)).all()) for number in range(3)]
    assert sum(map(len, by_partition)) == 4
    assert all(len(each) < 4 for each in by_partition)


def test_what_cannot_be_read_is_reported(start: Callable[..., Program], source: str, config: StreamsConfig) -> None:
    program = start(every_kind(source), config)
    program.run_to_end()
    state = program.queries()
    with pytest.raises(UnknownStateStoreError, match=r"Cannot get state store count because.* It has: .*counts"):
        state.store(StoreQueryParameters.from_name_and_type("count", QueryableStoreTypes.key_value_store()))
    windows = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.window_store())
    with pytest.raises(InvalidStateStoreError, match=r"\[window store\] does not accept"):
        state.store(windows).all()
    with pytest.raises(InvalidStateStorePartitionError, match="partition 2 for store counts does not exist"):
        state.store(COUNTS.with_partition(2)).get("a")
    counts = state.store(COUNTS)
    with pytest.raises(TypeError):
        counts.get(None)
    program.close()
    with pytest.raises(InvalidStateStoreError):
        counts.get("a")
