"""State as DataFrames: stores of several kinds, manifests and segments."""

from __future__ import annotations

import pytest

from penstock import (
    KafkaStreams,
    KeyQuery,
    LagInfo,
    Position,
    QueryableStoreTypes,
    StateQueryRequest,
    StoreQueryParameters,
    open_state,
)
from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError, StateStoreNotAvailableError
from penstock.host.spark.query.queries import CheckpointQueries
from tests.host.spark.inline import InlineQuery
from tests.host.spark.query.test_state_queries import RECORDS, config, every_kind, source
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, wait_for

pytestmark = [pytest.mark.one_broker, pytest.mark.xdist_group("spark")]

__all__ = ["config", "source"]  # fixtures


@pytest.mark.spark
def test_stores_manifests_and_segments_are_data_frames(
    spark_runner: SparkRunner, source: str, config: StreamsConfig
) -> None:
    query = InlineQuery(every_kind(source), config, spark_runner.admin)
    for k, v, t in RECORDS:
        spark_runner.write(source, [InputRecord(k.encode(), v.encode(), t, int(k == "b"))])
        query.run_to_end()
    session = spark_runner.session
    session.conf.set("spark.sql.session.timeZone", "UTC")
    with open_state(every_kind(source), config) as state:
        assert isinstance(state, CheckpointQueries)
        counts = state.table("counts", session)
        assert counts.dtypes == [
            ("partition", "int"),
            ("key", "string"),
            ("value", "bigint"),
            ("timestamp", "timestamp"),
        ]
        spark_runner.write(source, [InputRecord(b"a", b"7", 300_000)])
        query.run_to_end()
        rows = [
            tuple(row) for row in counts.selectExpr("partition", "key", "value", "unix_millis(timestamp)").collect()
        ]
        assert sorted(rows) == [(0, "a", 3, 63_000), (0, "c", 1, 62_000), (1, "b", 2, 200_000)], "as of its manifest"
        first = state.table("counts", session, as_of=1).select("key", "value")
        assert list(map(tuple, first.collect())) == [("a", 1)]
        windows = state.table("windows", session).where("key = 'a'")
        shown = windows.selectExpr("unix_millis(window_start)", "unix_millis(window_end)", "value").collect()
        assert sorted(map(tuple, shown)) == [(0, 60_000, 1), (60_000, 120_000, 2), (300_000, 360_000, 1)]
        assert state.table("sessions", session).where("key = 'a'").count() == 3
        assert sorted(map(tuple, state.table("versions", session).select("key", "value").collect())) == [
            ("a", "7"),
            ("b", "6"),
            ("c", "4"),
        ]
        manifests = state.manifests(session).orderBy("epoch").collect()
        newest = spark_runner.manifest(config)
        assert [row["epoch"] for row in manifests] == list(range(1, newest.epoch + 1))
        assert sum(row["records_in"] for row in manifests) == 7
        assert manifests[-1]["offsets"] == dict(newest.offsets)
        segments = state.segments(session).collect()
        named = {(task, segment) for task, segment in newest.segments()}
        assert {(row["task"], row["segment"]) for row in segments} == named
        for task, segment in named:
            state._checkpoint.delete_segment(task, segment)
        with pytest.raises(Exception, match=StateStoreNotAvailableError.__name__):
            state.table("counts", session).collect()


@pytest.mark.spark
def test_a_running_application_answers_about_its_state(
    spark_runner: SparkRunner, source: str, config: StreamsConfig
) -> None:
    counts = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a")).require_active()
    with KafkaStreams(every_kind(source), config, spark=spark_runner.session) as streams:
        store = streams.store(counts)
        spark_runner.write(source, [InputRecord(b"a", b"1", 1_000), InputRecord(b"a", b"2", 2_000)])
        wait_for(lambda: store.get("a") == 2)
        answer = streams.query(request).only_partition_result
        assert answer is not None
        assert (answer.result, answer.position) == (2, Position.from_map({source: {0: 1}}))
        assert [tuple(row) for row in streams.table("counts").select("key", "value").collect()] == [("a", 2)]
        assert streams.all_local_store_partition_lags()["counts"][0] == LagInfo(2, 2)
        assert streams.staleness().epoch >= 1
    with pytest.raises(RuntimeError, match="not running"):
        streams.store(counts)
    with pytest.raises(InvalidStateStoreError, match="closed"):
        store.get("a")
