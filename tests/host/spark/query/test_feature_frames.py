"""Features of labels in a Spark DataFrame, compared with those of the same labels in Arrow."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock import Consumed, Materialized, Serdes, Stores, StreamsBuilder, Topology, open_state
from penstock.config import StreamsConfig
from penstock.errors import StateStoreNotAvailableError
from penstock.host.spark.query.queries import CheckpointQueries
from tests.docs.pages import given, run_block
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord

pytestmark = [
    pytest.mark.spark,
    pytest.mark.one_broker,
    pytest.mark.xdist_group("spark"),
    pytest.mark.partitions(3, 2),
]

KEYS = ("a", "b", "c", "d", "e")
NAMES = ("profiles", "risk.score")


@pytest.fixture
def topology(topics: tuple[str, str]) -> Topology:
    builder = StreamsBuilder()
    for name, topic, serde in zip(NAMES, topics, (Serdes.string(), Serdes.double()), strict=True):
        supplier = Stores.persistent_versioned_key_value_store(name, 300)
        builder.table(topic, Consumed.with_(Serdes.string(), serde), Materialized.as_(supplier))
    return builder.build()


@pytest.fixture
def config(spark_runner: SparkRunner, application: str) -> StreamsConfig:
    return spark_runner.config(application)


@pytest.fixture
def query(spark_runner: SparkRunner, config: StreamsConfig, topology: Topology, topics: tuple[str, str]) -> InlineQuery:
    """An application with three commits of two versioned stores with deletes."""
    query, drawn = InlineQuery(topology, config, spark_runner.admin), random.Random(7)
    for last in (400, 800, 1_200):
        for topic, partitions, serde in zip(topics, (3, 2), (Serdes.string(), Serdes.double()), strict=True):
            records = []
            for _ in range(40):
                key, time = drawn.choice(KEYS[:4]), drawn.randrange(last - 400, last)
                given = (
                    None if drawn.random() < 0.2 else serde.serialize("", time / 2 if partitions == 2 else str(time))
                )
                records.append(InputRecord(key.encode(), given, time, KEYS.index(key) % partitions))
            spark_runner.write(topic, records)
        query.run_to_end()
    return query


def labels() -> pa.Table:
    drawn = random.Random(11)
    keys = [drawn.choice((*KEYS, None)) for _ in range(300)]
    times = [
        drawn.choice((drawn.randrange(1_300), None)) if row % 5 == 0 else drawn.randrange(1_300) for row in range(300)
    ]
    return pa.table({"customer": keys, "at.ms": times, "label": list(range(300))})


def test_a_data_frame_gets_the_features_of_arrow(
    spark_runner: SparkRunner, query: InlineQuery, topology: Topology, config: StreamsConfig
) -> None:
    frame_of = spark_runner.session.createDataFrame(labels().to_pandas().astype({"at.ms": "Int64"}))
    rows_of = frame_of.selectExpr(
        "IF(customer = 'None', NULL, customer) AS customer", "CAST(`at.ms` AS bigint) AS `at.ms`", "label"
    )
    for as_of in (None, 1):
        with open_state(topology, config, as_of) as state:
            features = state.features(NAMES)
            expected = features.as_of(labels(), time="at.ms", key="customer")
            frame = features.as_of(rows_of, time="at.ms", key="customer")
            assert frame.columns == expected.column_names
            assert dict(frame.dtypes)["risk.score_timestamp"] == "timestamp"
            found = frame.selectExpr(
                "label",
                "profiles",
                "unix_millis(profiles_timestamp)",
                "profiles_expired",
                "`risk.score`",
                "unix_millis(`risk.score_timestamp`)",
                "`risk.score_expired`",
            ).collect()
            rows = [
                tuple(
                    int(each.timestamp() * 1_000 + 0.5) if hasattr(each, "timestamp") else each for each in row.values()
                )
                for row in expected.drop_columns(["customer", "at.ms"]).to_pylist()
            ]
            assert sorted(map(tuple, found)) == sorted(rows)
            flags = expected.column("profiles_expired").to_pylist()
            assert set(flags) == {False, True}
            assert not all(value is None for value in expected.column("profiles").to_pylist())


def test_the_block_of_the_page_makes_a_data_frame(
    spark_runner: SparkRunner, query: InlineQuery, topology: Topology, config: StreamsConfig
) -> None:
    table = labels().rename_columns(["customer", "paid_at", "label"]).drop_null()
    with open_state(topology, config) as state:
        names = given(spark=spark_runner.session, streams=state, labels=table)
        run_block("docs/features.md", 2, names)
        expected = state.features(["profiles"]).as_of(table, time="paid_at", key="customer")
    rows = names["training_frame"].select("label", "profiles", "profiles_expired").collect()
    assert sorted(map(tuple, rows)) == sorted(
        tuple(row.values()) for row in expected.select(["label", "profiles", "profiles_expired"]).to_pylist()
    )


def test_times_of_a_data_frame_are_timestamps_or_ms(
    spark_runner: SparkRunner, query: InlineQuery, topology: Topology, config: StreamsConfig
) -> None:
    session = spark_runner.session
    ms = session.createDataFrame([("a", 1_250)], "key string, timestamp bigint")
    with open_state(topology, config) as state:
        features = state.features(["profiles"])
        expected = [row["profiles"] for row in features.as_of(ms).collect()]
        timestamps = ms.selectExpr("key", "timestamp_millis(timestamp) AS timestamp")
        assert [row["profiles"] for row in features.as_of(timestamps).collect()] == expected != [None]
        with pytest.raises(TypeError, match=r"'timestamp' of times has the type timestamp_ntz: expected .* Cast it"):
            features.as_of(timestamps.selectExpr("key", "CAST(timestamp AS timestamp_ntz) AS timestamp"))
        with pytest.raises(ValueError, match="no column 'key'"):
            features.as_of(ms.drop("key"))


def test_a_data_frame_shows_the_commit_of_its_creation(
    spark_runner: SparkRunner, query: InlineQuery, topology: Topology, config: StreamsConfig, topics: tuple[str, str]
) -> None:
    label = spark_runner.session.createDataFrame([("a", 5_000)], "key string, timestamp bigint")
    with open_state(topology, config) as state:
        assert isinstance(state, CheckpointQueries)
        frame = state.features(["profiles"]).as_of(label)
        before = frame.collect()
        spark_runner.write(topics[0], [InputRecord(b"a", b"new", 4_000)])
        query.run_to_end()
        assert frame.collect() == before
        assert [row["profiles"] for row in state.features(["profiles"]).as_of(label).collect()] == ["new"]
        for task, segment in spark_runner.manifest(config).segments():
            state._checkpoint.delete_segment(task, segment)
        with pytest.raises(Exception, match=StateStoreNotAvailableError.__name__):
            state.features(["profiles"]).as_of(label).collect()
