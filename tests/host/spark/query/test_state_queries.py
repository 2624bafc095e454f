"""Every kind of store, read from the checkpoint as the test driver shows it: by store and by request, with
positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import (
    Consumed,
    HostInfo,
    KeyQuery,
    KeyQueryMetadata,
    LagInfo,
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
    Serdes,
    SessionWindows,
    StateQueryRequest,
    StateQueryResult,
    StoreBuilder,
    StoreQueryParameters,
    Stores,
    StreamsBuilder,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    TimeWindows,
    Topology,
    ValueAndTimestamp,
    VersionedKeyQuery,
    VersionedRecord,
    WindowKeyQuery,
    WindowRangeQuery,
    open_state,
)
from penstock.config import StreamsConfig
from penstock.errors import UnsupportedOperationError
from penstock.host.spark.query.queries import CheckpointQueries
from penstock.plan.partitioning import partition_for
from penstock.state.query.request import FailureReason, QueryResult
from penstock.testing import TopologyTestDriver
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import InputRecord, SparkRunner

pytestmark = pytest.mark.one_broker

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
def source(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> str:
    name = unique_name("in")
    spark_runner.create_topics({name: 2})
    return name


@pytest.fixture
def config(spark_runner: SparkRunner, application: str) -> StreamsConfig:
    return spark_runner.config(application, VALUES)


@pytest.fixture
def driver(source: str) -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(every_kind(source), VALUES, 0) as driver:
        topic = driver.create_input_topic(source, STRING, STRING)
        for key, value, timestamp in RECORDS:
            topic.pipe_input(key, value, timestamp)
        yield driver


@pytest.fixture
def state(spark_runner: SparkRunner, source: str, config: StreamsConfig) -> Iterator[CheckpointQueries]:
    query = InlineQuery(every_kind(source), config, spark_runner.admin)
    for part in (RECORDS[:2], RECORDS[2:]):  # all in one partition, so that one task has what the driver's task has
        spark_runner.write(source, [InputRecord(k.encode(), v.encode(), t) for k, v, t in part])
        query.run_to_end()
    with open_state(every_kind(source), config) as state:
        assert isinstance(state, CheckpointQueries)
        yield state


def ask(state: CheckpointQueries, store: str, query: Query) -> StateQueryResult:
    return state.query(StateQueryRequest.in_store(store).with_query(query))


def answer(state: CheckpointQueries, store: str, query: Query) -> Any:
    """Return what the partition answers that has the records; iterators as lists."""
    result = ask(state, store, query).partition_results[0]
    assert result.is_success(), result.failure_message
    return list(result.result) if hasattr(result.result, "close") else result.result


def test_stores_are_as_the_test_driver_shows_them(state: CheckpointQueries, driver: TopologyTestDriver) -> None:
    def store(name: str, type: Any) -> Any:
        return state.store(StoreQueryParameters.from_name_and_type(name, type))

    types = QueryableStoreTypes
    counts, expected = store("counts", types.key_value_store()), driver.get_key_value_store("counts")
    assert expected is not None
    assert list(counts.all()) == list(expected.all()) != []
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


def test_requests_of_key_value_stores(state: CheckpointQueries) -> None:
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


def test_requests_of_window_and_session_stores(state: CheckpointQueries) -> None:
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


def test_requests_of_versioned_stores(state: CheckpointQueries) -> None:
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


def test_answers_say_how_far_they_have_seen_and_may_be_bound(
    spark_runner: SparkRunner, state: CheckpointQueries, source: str
) -> None:
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
    by_value = StateQueryRequest.in_store("by-value").with_query(RangeQuery.with_no_bounds()).with_position_bound(ahead)
    reasons = {each.failure_reason for each in state.query(by_value).partition_results.values()}
    assert reasons == {FailureReason.NOT_UP_TO_BOUND}, "behind a repartition everything depends on every partition"
    unknown = PositionBound.at(Position.from_map({"elsewhere": {1: 0}}))
    assert state.query(request.with_position_bound(unknown)).partition_results[1].is_failure()
    one = state.query(request.with_partitions([0, 7]).enable_execution_info())
    assert one.partition_results[7].failure_reason is FailureReason.NOT_PRESENT
    assert "as of epoch 2" in one.partition_results[0].execution_info[0]
    active = state.query(request.require_active())
    assert {each.failure_reason for each in active.partition_results.values()} == {FailureReason.NOT_ACTIVE}


def test_who_has_a_key_and_how_far_stores_are_behind(
    spark_runner: SparkRunner, state: CheckpointQueries, source: str, config: StreamsConfig
) -> None:
    for key in "abc":
        assert state.query_metadata_for_key("by-value", key).partition == partition_for(key.encode(), 2)
    unavailable = KeyQueryMetadata(HostInfo.unavailable(), frozenset(), 1)
    assert state.query_metadata_for_key("counts", "a", partitioner=lambda *_: {1}) == unavailable
    assert state.query_metadata_for_key("counts", 7, Serdes.long()).partition == partition_for(bytes(7) + b"\x07", 2)
    served = StreamsConfig({**config.given(), "application.server": "there:80"})
    with open_state(every_kind(source), served) as other:
        assert other.query_metadata_for_key("counts", "a").active_host == HostInfo("there", 80)
        [metadata] = other.streams_metadata()
        assert metadata.state_store_names == {*state.stores()} >= {"counts", "windows", "memory"}
        assert metadata.topic_partitions == {(source, 0), (source, 1)}
    written = [InputRecord(b"a", b"1", 300_000, 1)] * 3
    spark_runner.write(source, written)
    lags = state.all_local_store_partition_lags()
    assert {name: [lag.offset_lag for lag in by_partition.values()] for name, by_partition in lags.items()} == {
        **{name: [0, 3] for name in ("counts", "windows", "sessions", "versions", "lru", "memory")},
        "by-value": [3, 3],
    }
    assert lags["counts"][0] == LagInfo(6, 6)


def test_a_reader_follows_into_the_next_life_of_the_checkpoint(
    spark_runner: SparkRunner, config: StreamsConfig, source: str
) -> None:
    def counts(*more: str) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(source, consumed=TEXT)
        for name in more:  # before the first, so that sub-topologies and nodes get other numbers
            stream.group_by(lambda _, value: value).count(materialized=Materialized.as_(name))
        stream.group_by_key().count(materialized=Materialized.as_("counts"))
        return builder.build()

    spark_runner.write(source, [InputRecord(b"a", b"x", 0)])
    InlineQuery(counts(), config, spark_runner.admin).run_to_end()
    with open_state(counts(), config) as state:
        store = state.store(StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store()))
        assert store.get("a") == 1
        spark_runner.write(source, [InputRecord(b"a", b"x", 0)])
        InlineQuery(counts("more"), config, spark_runner.admin).run_to_end()
        assert store.get("a") == 2
        with open_state(counts("more"), config) as other:
            more = StoreQueryParameters.from_name_and_type("more", QueryableStoreTypes.key_value_store())
            assert dict(other.store(more).all()) == {"x": 1}


def test_an_answer_has_seen_a_record_when_what_was_carried_over_of_it_has_arrived(
    spark_runner: SparkRunner, config: StreamsConfig, source: str, unique_name: Callable[[str], str]
) -> None:
    other = unique_name("other")
    spark_runner.create_topics({other: 2})
    builder = StreamsBuilder()
    builder.table(source).join(
        builder.table(other),
        lambda value, joined: value + joined,
        foreign_key_extractor=lambda value: value,
        materialized=Materialized.as_("joined"),
    )
    topology = builder.build()
    key, foreign = (partition_for(each, 2) for each in (b"k", b"f"))
    spark_runner.write(source, [InputRecord(b"k", b"f", 0, key)])
    spark_runner.write(other, [InputRecord(b"f", b"x", 0, foreign)])
    query = InlineQuery(topology, config, spark_runner.admin)
    everything = StateQueryRequest.in_store("joined").with_query(RangeQuery.with_no_bounds())
    written = PositionBound.at(Position.from_map({source: {key: 0}, other: {foreign: 0}}))
    with open_state(topology, config) as state:
        query.epoch()
        answers = state.query(everything.with_position_bound(written)).partition_results.values()
        assert {each.failure_reason for each in answers} == {FailureReason.NOT_UP_TO_BOUND}
        query.run_to_end()
        answers = state.query(everything.with_position_bound(written)).partition_results.values()
        assert [entry for each in answers for entry in each.result] == [("k", "fx")]
