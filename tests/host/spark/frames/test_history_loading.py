"""Histories from DataFrames and files of Spark, then their topics."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, TaskMigratedError
from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from penstock.host.spark.checkpoints.stored_history import HistoryReader, histories_of, read_index, stored_histories
from penstock.host.spark.frames.history_loading import HistoryLoader, _before
from penstock.plan.partitioning import partition_for
from penstock.record import RecordBatch
from penstock.termination import TERMINATED, terminating
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, Listening, wait_for

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.spark]

TEXT = Serdes.string()
COLUMNS = "key string, value string, timestamp timestamp"


def numbered(history: Any, topic: str, target: str, at: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream_from_history(history, topic, at, Consumed.with_(TEXT, TEXT).with_name("in"))
    counted = stream.group_by_key().count(materialized=Materialized.as_("counts")).to_stream()
    counted.map_values(str).to(target, produced=Produced.with_(key_serde=TEXT, value_serde=TEXT))
    return builder.build()


def rows_of(runner: SparkRunner, times: dict[str, list[int]]) -> DataFrame:
    """Return a row for each key and time (ms), in no order of time."""
    rows = [(key, f"{key}{time}", time) for key, all_times in times.items() for time in reversed(all_times)]
    frame = runner.session.createDataFrame(rows, "key string, value string, ms bigint")
    return frame.withColumn("timestamp", f.timestamp_millis("ms")).repartition(3)


def loaded(runner: SparkRunner, topology: Topology, config: StreamsConfig, topic: str) -> dict[int, RecordBatch]:
    """Copy the history of `topic` into the checkpoint; return its rows by partition."""
    built = topology.build(str(config["application.id"]))
    HistoryLoader(built, config, checkpoint_of(config)).load(runner.admin, lambda: runner.session)
    files = histories_of(config.checkpoint_directory()).below(topic)
    history = read_index(files)
    assert history is not None
    reader, bounds = HistoryReader(files, history), history.bounds()
    return {
        number: RecordBatch.concat(list(reader.read(number, bounds.first[number], bounds.end[number])))
        for number in range(len(bounds.end))
    }


@pytest.mark.slow
def test_files_and_then_their_topic_are_counted_once_over_restarts(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    config = spark_runner.config(application)
    past = {f"k{number}": [1_000 + 10 * time + number for time in range(20)] for number in range(6)}
    rows_of(spark_runner, past).write.parquet(str(tmp_path / "past"))
    spark_runner.write(
        source,
        [InputRecord(key.encode(), b"new", 1_300, partition_for(key.encode(), 3)) for key in past],
    )
    topology = numbered(str(tmp_path / "past"), source, target, 1_150)
    spark_runner.run(topology, config)
    expected = {key: [time for time in times if time < 1_150] for key, times in past.items()}
    written = spark_runner.read(target)
    for key, times in expected.items():
        own = [(each.timestamp, int(each.value or b"")) for each in written if each.key == key.encode()]
        assert own == [(time, number + 1) for number, time in enumerate([*times, 1_300])]

    (tmp_path / "past").rename(tmp_path / "moved")  # the checkpoint has the rows
    spark_runner.write(source, [InputRecord(b"k0", b"newer", 1_400, partition_for(b"k0", 3))])
    spark_runner.run(topology, config)
    values = [int(each.value or b"") for each in spark_runner.read(target) if each.key == b"k0"]
    assert values == list(range(1, len(expected["k0"]) + 3))


@pytest.mark.one_broker
def test_sigterm_cancels_the_copy_and_leaves_the_session_usable(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    began, goes_on = tmp_path / "began", tmp_path / "goes on"

    def slow(frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for frame in frames:
            began.touch()
            wait_for(goes_on.exists)
            yield frame

    def terminate() -> None:
        wait_for(began.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    rows = rows_of(spark_runner, {"k": [5, 3]})
    topology = numbered(rows.mapInArrow(slow, rows.schema), *topics, 9)
    config = spark_runner.config(application)
    killer = threading.Thread(target=terminate)
    killer.start()
    with pytest.raises(SystemExit) as ended, terminating():
        spark_runner.host(topology, config).start(Listening())
    killer.join()
    assert ended.value.code == TERMINATED
    jobs = spark_runner.session.sparkContext.statusTracker()
    wait_for(lambda: not jobs.getActiveJobsIds())
    assert spark_runner.session.range(3).count() == 3
    goes_on.touch()
    found = loaded(spark_runner, topology, config, topics[0])
    assert [value for batch in found.values() for value in batch.values] == [b"k3", b"k5"]


@pytest.mark.one_broker
def test_an_archive_of_the_topic_stops_at_the_offsets(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    spark_runner.write(source, [InputRecord(b"k", b"v", 5, number % 3) for number in range(12)])
    rows = [("k", f"v{offset}", 5, partition, offset) for offset in (2, 0, 3, 1) for partition in range(3)]
    names = "key string, value string, ms bigint, partition int, offset bigint"
    frame = spark_runner.session.createDataFrame(rows, names).withColumn("timestamp", f.timestamp_millis("ms"))
    topology = numbered(frame.repartition(4), source, target, {0: 3, 1: 0, 2: 4})
    found = loaded(spark_runner, topology, spark_runner.config(application), source)
    assert {number: batch.values for number, batch in found.items()} == {
        0: [b"v0", b"v1", b"v2"],
        1: [],
        2: [b"v0", b"v1", b"v2", b"v3"],
    }
    assert found[0].offsets.tolist() == [0, 1, 2], "the offsets of an archive without gaps are those of the topic"


@pytest.mark.one_broker
def test_a_topic_of_many_partitions_has_an_offset_for_each(spark_runner: SparkRunner) -> None:
    rows = [(0, 3), (0, 4), (1999, 2002), (1999, 2003), (5, None), (None, 9)]
    frame = spark_runner.session.createDataFrame(rows, "partition int, offset bigint")
    kept = frame.filter(_before({number: number + 4 for number in range(2_000)})).collect()
    assert [tuple(row) for row in kept] == [(0, 3), (1999, 2002), (5, None), (None, 9)]


@pytest.mark.one_broker
def test_an_interrupted_copy_is_made_again(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    first = numbered(rows_of(spark_runner, {"a": [1, 2, 3]}), *topics, 100)
    loaded(spark_runner, first, config, topics[0])  # and the program is killed before its first epoch
    second = numbered(rows_of(spark_runner, {"a": [1, 2]}), *topics, 100)
    found = loaded(spark_runner, second, config, topics[0])
    assert sorted(time for batch in found.values() for time in batch.timestamps.tolist()) == [1, 2]
    files = histories_of(config.checkpoint_directory()).below(topics[0])
    assert sum(len(files.find(str(number))) for number in range(3)) == 1


@pytest.mark.one_broker
def test_unsuitable_histories_are_refused_with_the_line_of_the_program(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config, session = spark_runner.config(application), spark_runner.session
    line = r"\(source in, created at .*test_history_loading.py:\d+\)"

    def refused(history: Any, text: str, check: Callable[[HistoryLoader], Any]) -> None:
        built = numbered(history, *topics, 100).build(application)
        with pytest.raises(StreamsError, match=text):
            check(HistoryLoader(built, config, checkpoint_of(config)))

    def load(loader: HistoryLoader) -> None:
        loader.load(spark_runner.admin, lambda: session)

    rows = rows_of(spark_runner, {"a": [1]})
    refused(rows.drop("timestamp"), f"{line} must have a column timestamp", load)
    refused(rows.drop("value"), f"{line} must have a column value", load)
    refused(rows.withColumn("timestamp", f.col("ms")), f"{line} has timestamps of the type bigint", load)
    refused(
        rows.withColumn("timestamp", f.lit(None).cast("timestamp")),
        f"A row of the history of topic {topics[0]} has no timestamp {line}: each row needs the time",
        load,
    )
    refused(rows.withColumn("headers", f.lit("x")), f"{line} is struct<.*CAST.* Expected timestamp as", load)
    refused(rows.withColumn("timestamp", f.array("ms")), f"{line} is struct<.*CAST.* Expected timestamp as", load)
    refused(rows.withColumn("partition", f.lit(9)), "A row for .* has the partition 9; .* partitions 0 to 2", load)
    refused(str(tmp_path / "none"), f"{line} cannot be read as Parquet: {tmp_path}/none", load)
    stream = session.readStream.schema(COLUMNS).parquet(str(tmp_path))
    refused(stream, f"{line}; got a streaming DataFrame", HistoryLoader.session)
    refused(17, f"DataFrame that does not stream.*{line}; got 17", HistoryLoader.session)


@pytest.mark.one_broker
def test_the_session_is_that_of_the_data_frames(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    for history, expected in ((rows_of(spark_runner, {"a": [1]}), spark_runner.session), ("/files", None)):
        built = numbered(history, *topics, 100).build(application)
        assert HistoryLoader(built, config, checkpoint_of(config)).session() is expected


@pytest.mark.one_broker
def test_a_driver_that_was_overtaken_completes_no_history(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    built = numbered(rows_of(spark_runner, {"a": [1]}), *topics, 100).build(application)
    newer = checkpoint_of(config)

    def session() -> SparkSession:
        newer.take_generation()  # another driver starts during the copy
        return spark_runner.session

    with pytest.raises(TaskMigratedError):
        HistoryLoader(built, config, checkpoint_of(config)).load(spark_runner.admin, session)
    assert stored_histories(config.checkpoint_directory()) == {}
