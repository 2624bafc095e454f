"""What is Spark's own about queries: answers are as of the newest commit of the checkpoint, in any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock import (
    KeyQuery,
    LagInfo,
    Materialized,
    Position,
    PositionBound,
    QueryableStoreTypes,
    RangeQuery,
    StateQueryRequest,
    StoreQueryParameters,
    StreamsBuilder,
    Topology,
    open_state,
)
from penstock.config import StreamsConfig
from penstock.host.api import StateQueries
from penstock.plan.partitioning import partition_for
from penstock.state.query.request import FailureReason
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_queries import RECORDS, TEXT, VALUES, every_kind

pytestmark = pytest.mark.one_broker


@pytest.fixture
def source(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> str:
    name = unique_name("in")
    spark_runner.create_topics({name: 2})
    return name


@pytest.fixture
def config(spark_runner: SparkRunner, application: str) -> StreamsConfig:
    return spark_runner.config(application, VALUES)


@pytest.fixture
def state(spark_runner: SparkRunner, source: str, config: StreamsConfig) -> Iterator[StateQueries]:
    query = InlineQuery(every_kind(source), config, spark_runner.admin)
    for part in (RECORDS[:2], RECORDS[2:]):
        spark_runner.write(source, [InputRecord(k.encode(), v.encode(), t) for k, v, t in part])
        query.run_to_end()
    with open_state(every_kind(source), config) as state:
        yield state


def test_answers_are_those_of_an_epoch_and_of_no_running_task(
    spark_runner: SparkRunner, state: StateQueries, source: str
) -> None:
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a"))
    answered = state.query(request.with_partitions([0]).enable_execution_info())
    assert "as of epoch 2" in answered.partition_results[0].execution_info[0]
    active = state.query(request.require_active())
    assert {each.failure_reason for each in active.partition_results.values()} == {FailureReason.NOT_ACTIVE}
    ahead = PositionBound.at(Position.empty_position().with_component(source, 0, 6))
    by_value = StateQueryRequest.in_store("by-value").with_query(RangeQuery.with_no_bounds()).with_position_bound(ahead)
    reasons = {each.failure_reason for each in state.query(by_value).partition_results.values()}
    assert reasons == {FailureReason.NOT_UP_TO_BOUND}, "behind a repartition everything depends on every partition"


def test_how_far_stores_are_behind_counts_records_of_the_source_topics(
    spark_runner: SparkRunner, state: StateQueries, source: str
) -> None:
    spark_runner.write(source, [InputRecord(b"a", b"1", 300_000, 1)] * 3)
    lags = state.all_local_store_partition_lags()
    assert {name: [lag.offset_lag for lag in by_partition.values()] for name, by_partition in lags.items()} == {
        **{name: [0, 3] for name in ("counts", "windows", "sessions", "versions", "lru", "memory")},
        "by-value": [3, 3],
    }
    assert lags["counts"][0] == LagInfo(6, 6)


def test_sizes_of_stores_are_those_of_the_newest_commit(state: StateQueries, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = state.store_sizes()
    counts = state.store(StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store()))
    assert sizes["counts"].entries == len(list(counts.all())) > 0
    assert all(size.entries and size.segments and size.segment_bytes for size in sizes.values()), sizes
    assert sizes["counts"][1:] == sizes["memory"][1:], "stores of one task share its segments"
    monkeypatch.setattr("penstock.host.spark.query.queries.MOST_COUNTED_BYTES", 10)
    assert state.store_sizes() == {name: size._replace(entries=None) for name, size in sizes.items()}


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
