"""DataFrames of Spark as sources and sinks: rows of files in, tables of files out, each once."""

from __future__ import annotations

import json
import shutil
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.errors import ConfigError, StreamsError, TopologyError
from penstock.host.spark.frames import data_frames
from penstock.host.spark.frames.batch_numbers import first_number, numbered_from
from penstock.host.spark.frames.data_frames import BatchPartitions, DataFrameQueries, columns, partitions_of
from penstock.host.spark.protocol.failures import QueryFailedError
from penstock.host.spark.versions import map_in_arrow
from penstock.host.storage.files import Files as CheckpointFiles
from penstock.plan.partitioning import murmur2
from penstock.spark import TopicDataSource, reset
from penstock.testing import TopologyTestDriver
from penstock_broker.common.clock import MockClock
from tests.host.spark.forged import failure_that_makes
from tests.host.spark.support import SparkRunner
from tests.host.support import TIMEOUT_SECONDS, InputRecord, wait_for
from tests.support.brokers import EMBEDDED_ONLY

pytestmark = pytest.mark.xdist_group("spark")

TEXT = Serdes.string()
COUNTS = "word string, count int, epoch bigint"


def write_words(spark: SparkSession, directory: Path, words: list[str]) -> None:
    rows = [(word, json.dumps({"word": word, "place": place})) for place, word in enumerate(words)]
    spark.createDataFrame(rows, "key string, value string").coalesce(1).write.mode("append").parquet(str(directory))


def word_count(frame: object, function: Callable[[DataFrame, int], None]) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream_from(frame, consumed=Consumed.with_(key_serde=TEXT, value_serde=TEXT).with_name("words"))
        .map_values(lambda value: json.loads(value)["word"])
        .group_by(lambda _, word: word, grouped=Grouped.with_(key_serde=TEXT, value_serde=TEXT))
        .count(materialized=Materialized.with_(key_serde=TEXT, value_serde=Serdes.long()))
        .to_stream()
        .map_values(str)
        .to_spark(function, produced=Produced.with_(key_serde=TEXT, value_serde=TEXT).with_name("counts"))
    )
    return builder.build()


class Files:
    """Directories of parquet: words in, counts out; a batch replaces what it wrote before."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.words, self.counts = directory / "words", directory / "counts"
        self.words.mkdir()

    def topology(self) -> Topology:
        frame = self.spark.readStream.schema("key string, value string").parquet(str(self.words))
        target = str(self.counts)

        def store(counts: DataFrame, epoch: int) -> None:
            texts = counts.selectExpr("CAST(key AS STRING) AS word", "CAST(CAST(value AS STRING) AS INT) AS count")
            texts.write.mode("overwrite").parquet(f"{target}/epoch={epoch}")

        return word_count(frame, store)

    def stored(self) -> list[tuple[str, int]]:
        return sorted(
            (row.word, row["count"]) for row in self.spark.read.schema(COUNTS).parquet(str(self.counts)).collect()
        )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.one_broker
def test_rows_of_files_are_counted_once_and_the_counts_stored_once(
    spark_runner: SparkRunner, application: str, tmp_path: Path
) -> None:
    spark = spark_runner.session
    files = Files(spark, tmp_path)
    config = spark_runner.config(application)
    write_words(spark, files.words, ["a", "b", "a"])
    spark_runner.run(files.topology(), config)
    assert files.stored() == [("a", 1), ("a", 2), ("b", 1)]

    write_words(spark, files.words, ["b", "c"])
    # the commit of the first batch is lost: Spark runs it again, and its rows are there
    shutil.rmtree(Path(config.checkpoint_directory()) / "dataframes" / f"{application}-words-source" / "commits")
    spark_runner.run(files.topology(), config)
    assert files.stored() == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)]
    written = spark_runner.read(f"{application}-words-source")
    assert Counter(record.key for record in written) == {b"a": 2, b"b": 2, b"c": 1}
    partitions = spark_runner.admin.topics()[f"{application}-words-source"]
    for record in written:
        assert record.key is not None
        assert record.partition == (murmur2(record.key) & 0x7FFFFFFF) % partitions


@pytest.mark.spark
@pytest.mark.one_broker
def test_a_batch_that_is_run_again_after_its_topic_has_grown_is_there_once(
    spark_runner: SparkRunner, application: str, tmp_path: Path
) -> None:
    spark, topic, admin = spark_runner.session, f"{application}-words-source", spark_runner.admin
    files = Files(spark, tmp_path)
    queries = DataFrameQueries(
        files.topology().build(application), spark_runner.config(application), CheckpointFiles(str(tmp_path / "frames"))
    )
    words = [f"w{number}" for number in range(20)]
    write_words(spark, files.words, words)
    queries.start_sources(admin, 2, to_end=True)
    shutil.rmtree(tmp_path / "frames" / topic / "commits")  # the first batch is run again
    admin.create_partitions(topic, 5)
    write_words(spark, files.words, words)
    queries.start_sources(admin, 2, to_end=True)
    records = spark_runner.read(topic)
    assert Counter((record.key or b"").decode() for record in records) == dict.fromkeys(words, 2)
    assert {record.partition for record in records} == set(range(5))


@EMBEDDED_ONLY
def test_the_topic_of_markers_has_as_many_partitions_as_that_of_the_rows(
    spark_runner: SparkRunner, application: str, tmp_path: Path
) -> None:
    topic, admin = f"{application}-words-source", spark_runner.admin
    spark_runner.create_topics({topic: 3})
    built = word_count("a frame", print).build(application)
    queries = DataFrameQueries(built, spark_runner.config(application), CheckpointFiles(str(tmp_path)))
    queries.create_topics(admin, 2)
    assert admin.topics()[f"{topic}-commits"] == 3
    admin.create_partitions(topic, 5)
    queries.create_topics(admin, 2)
    assert admin.topics()[f"{topic}-commits"] == 5


@pytest.mark.parametrize("scheme", ["file", "fsspec+memory"])
def test_every_attempt_of_a_batch_is_spread_over_as_many_partitions(tmp_path: Path, scheme: str) -> None:
    def partitions_now(count: int) -> BatchPartitions:
        return BatchPartitions(CheckpointFiles(f"{scheme}://{tmp_path}"), "t", count)

    running = partitions_now(2)
    assert [running.of(0), running.of(0), running.of(1)] == [2, 2, 2]
    again = partitions_now(5)
    assert [again.of(1), again.of(1), again.of(2)] == [2, 2, 5]
    assert partitions_now(7).of(2) == 5


@pytest.mark.parametrize("scheme", ["file", "fsspec+memory"])
def test_the_numbers_of_batches_do_not_go_back_when_the_checkpoint_is_lost(tmp_path: Path, scheme: str) -> None:
    files, seen = CheckpointFiles(f"{scheme}://{tmp_path}"), list[int]()
    for now in (5_000, 6_000):
        number = numbered_from(first_number(files, "t", MockClock(now)), lambda _, number: seen.append(number))
        files.write("t/offsets/0", b"the first batch")
        number(None, 0), number(None, 1)
    files.clear()
    numbered_from(first_number(files, "t", MockClock(7_000)), lambda _, number: seen.append(number))(None, 0)
    files.write("t/offsets/0", b"the first batch")
    files.delete_directory("t")  # the checkpoint of the function alone
    numbered_from(first_number(files, "t", MockClock(8_000)), lambda _, number: seen.append(number))(None, 0)
    assert seen == [5_000, 5_001, 5_000, 5_001, 7_000, 8_000]
    files.write("earlier/offsets/0", b"a batch of an earlier version")
    assert [first_number(files, "earlier", MockClock(now)) for now in (8_000, 9_000)] == [0, 0]


@pytest.mark.slow
@pytest.mark.spark
@EMBEDDED_ONLY
def test_a_table_that_skips_numbers_it_has_seen_gets_all_rows_after_a_reset(
    spark_runner: SparkRunner, application: str, tmp_path: Path
) -> None:
    """As a table of Delta does with txnAppId and txnVersion."""
    files, config = Files(spark_runner.session, tmp_path), spark_runner.config(application)
    frame = files.spark.readStream.schema("key string, value string").parquet(str(files.words))
    rows, last = list[str](), -1

    def store(counts: DataFrame, epoch: int) -> None:
        nonlocal last
        if epoch > last:
            last = epoch
            rows.extend(str(row.key) for row in counts.selectExpr("CAST(key AS STRING) AS key").collect())

    write_words(files.spark, files.words, ["a", "b"])
    for _ in range(2):
        spark_runner.run(word_count(frame, store), config)
        reset(word_count(frame, store), config)
    assert Counter(rows) == {"a": 2, "b": 2}


@pytest.mark.spark
@EMBEDDED_ONLY
def test_rows_are_processed_while_the_application_runs(
    spark_runner: SparkRunner, application: str, tmp_path: Path
) -> None:
    files = Files(spark_runner.session, tmp_path)
    write_words(files.spark, files.words, ["a"])
    with spark_runner.running(files.topology(), spark_runner.config(application)):
        wait_for(lambda: files.counts.exists() and files.stored() == [("a", 1)])
        write_words(files.spark, files.words, ["a"])
        wait_for(lambda: files.stored() == [("a", 1), ("a", 2)])


@pytest.mark.spark
@EMBEDDED_ONLY
def test_an_error_of_the_function_ends_the_application(
    spark_runner: SparkRunner, application: str, tmp_path: Path
) -> None:
    files = Files(spark_runner.session, tmp_path)
    write_words(files.spark, files.words, ["a"])
    frame = files.spark.readStream.schema("key string, value string").parquet(str(files.words))

    def failing(counts: DataFrame, epoch: int) -> None:
        raise ValueError("the disk is full")

    with pytest.raises(StreamsError, match=rf"between {application}-counts-sink and a DataFrame.*the disk is full"):
        spark_runner.run(word_count(frame, failing), spark_runner.config(application))


@pytest.mark.spark
@EMBEDDED_ONLY
def test_a_record_that_an_error_of_spark_quotes_runs_no_code(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    proof, topic = tmp_path / "proof", unique_name("amounts")
    failure = failure_that_makes(proof)
    forged = f"[penstock-failure:{b64encode(failure).decode()}] {QueryFailedError(failure, b'guessed')}"
    spark_runner.create_topics({topic: 1})
    spark_runner.write(topic, [InputRecord(b"a", forged.encode(), 0)])
    builder = StreamsBuilder()

    def function(rows: DataFrame, epoch: int) -> None:
        rows.selectExpr("CAST(CAST(value AS STRING) AS INT) AS amount").collect()

    produced = Produced.with_(key_serde=TEXT, value_serde=TEXT).with_name("lake")
    builder.stream(topic, Consumed.with_(key_serde=TEXT, value_serde=TEXT)).to_spark(function, produced=produced)
    with pytest.raises(StreamsError, match=rf"between {application}-lake-sink and a DataFrame.*penstock-failure"):
        spark_runner.run(builder.build(), spark_runner.config(application))
    assert not proof.exists()


@pytest.mark.spark
@EMBEDDED_ONLY
def test_a_function_that_does_not_return_does_not_hold_up_the_end(
    spark_runner: SparkRunner,
    application: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = Files(spark_runner.session, tmp_path)
    write_words(files.spark, files.words, ["a"])
    frame = files.spark.readStream.schema("key string, value string").parquet(str(files.words))
    called, may_return = threading.Event(), threading.Event()

    def waiting(counts: DataFrame, epoch: int) -> None:
        called.set()
        may_return.wait(TIMEOUT_SECONDS)

    monkeypatch.setattr(data_frames, "STOP_SECONDS", 0.2)
    try:
        with spark_runner.running(word_count(frame, waiting), spark_runner.config(application)):
            wait_for(called.is_set)
        assert f"between {application}-counts-sink and a DataFrame does not end" in caplog.text
    finally:
        may_return.set()
        wait_for(lambda: not files.spark.streams.active)


@pytest.mark.spark
@EMBEDDED_ONLY
def test_topics_are_read_as_data_frames(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> None:
    topic, spark = unique_name("in"), spark_runner.session
    spark_runner.create_topics({topic: 2})
    spark_runner.write(topic, [InputRecord(b"k", b"v", 1_500, 1, (("h", b"x"),)), InputRecord(None, b"w", 2_000)])
    spark.dataSource.register(TopicDataSource)
    options = {"kafka.bootstrap.servers": spark_runner.bootstrap_servers, "subscribe": topic}
    frame = spark.read.format("penstock").options(**options).load()
    rows = [(*row[:2], *row[3:5], row[5].timestamp(), row[7]) for row in frame.orderBy("partition").collect()]
    assert rows == [(None, b"w", 0, 0, 2.0, []), (b"k", b"v", 1, 0, 1.5, [("h", b"x")])]


def frame_of(rows: list[tuple[bytes | None, bytes | None, int | None]]) -> pa.RecordBatch:
    keys, values, partitions = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(partitions, pa.int32())],
        ["key", "value", "partition"],
    )


def null_headers(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield how many arrays of headers are null among the rows, and how many are empty."""
    for frame in frames:
        headers = frame.column("headers")
        empty = sum(row == [] for row in headers.to_pylist())
        yield pa.RecordBatch.from_pydict({"nulls": [headers.null_count], "empty": [empty]})


@pytest.mark.spark
@EMBEDDED_ONLY
@pytest.mark.parametrize(
    ("given", "empty"),
    [
        ((), 5),
        (("NULL AS headers",), 5),
        (("IF(id = 1, array(struct('h' AS key, binary('x') AS value)), NULL) AS headers",), 4),
    ],
)
def test_rows_without_headers_have_empty_ones(spark_runner: SparkRunner, given: tuple[str, ...], empty: int) -> None:
    rows = columns(spark_runner.session.range(5).selectExpr("string(id) AS value", *given), "t")
    found = map_in_arrow(rows.coalesce(1), null_headers, "nulls bigint, empty bigint").collect()
    assert (sum(row.nulls for row in found), sum(row.empty for row in found)) == (0, empty)


def test_a_row_goes_to_its_partition_or_where_its_key_belongs() -> None:
    rows = [(b"k", b"v", 2), (b"k", b"v", None), (b"", None, None), (None, b"v", None), (None, None, None)]
    usual = [(murmur2(data) & 0x7FFFFFFF) % 7 for data in (b"k", b"", b"v", b"")]
    assert partitions_of(frame_of(rows), "t", 7) == [2, *usual]


@pytest.mark.parametrize("partition", [-1, 7])
def test_a_partition_that_the_topic_does_not_have_is_refused(partition: int) -> None:
    with pytest.raises(StreamsError, match=rf"A row for t has the partition {partition}; .* 0 to 6"):
        partitions_of(frame_of([(b"k", b"v", partition)]), "t", 7)


def test_the_topics_are_internal_and_their_objects_stay_out_of_the_description() -> None:
    topology = word_count("a frame", print)
    built = topology.build("app")
    assert built.data_frame_topics == ("app-words-source", "app-counts-sink")
    assert built.subtopologies[0].source_topics == ("app-words-source",)
    assert "Source: words (topics: [words-source])" in str(topology.describe())
    assert "Sink: counts (topic: counts-sink)" in str(topology.describe())


def test_the_test_driver_plays_the_part_of_spark() -> None:
    with TopologyTestDriver(word_count("a frame", print), {"application.id": "app"}) as driver:
        words = driver.create_input_topic("app-words-source", TEXT, TEXT)
        counts = driver.create_output_topic("app-counts-sink", TEXT, TEXT)
        words.pipe_input("a", '{"word": "x"}')
        assert counts.read_key_value() == ("x", "1")


def test_two_data_frames_do_not_share_a_topic() -> None:
    builder = StreamsBuilder()
    for frame in ("one", "two"):
        builder.stream_from(frame, consumed=Consumed.as_("words"))
    with pytest.raises(TopologyError, match="Two DataFrames write to words-source"):
        builder.build()


def test_two_functions_do_not_share_a_topic() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("t", consumed=Consumed.with_(key_serde=TEXT, value_serde=TEXT))
    for function in (print, max):
        stream.to_spark(function, produced=Produced.as_("counts"))
    with pytest.raises(TopologyError, match="counts is already added"):
        builder.build()


def test_a_topic_has_partitions() -> None:
    with pytest.raises(ValueError, match="partitions=0"):
        StreamsBuilder().stream_from("frame", partitions=0)


@EMBEDDED_ONLY
def test_what_is_no_streaming_data_frame_is_refused(spark_runner: SparkRunner) -> None:
    queries = DataFrameQueries(
        word_count("a frame", print).build("app"), spark_runner.config("app"), CheckpointFiles("nowhere")
    )
    with pytest.raises(StreamsError, match=r"takes a streaming DataFrame of Spark.*app-words-source; got 'a frame'"):
        queries.session()


@pytest.mark.parametrize("options", [{}, {"subscribe": "t"}, {"kafka.bootstrap.servers": "b:1", "subscribe": ","}])
def test_options_that_are_missing_are_named(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        TopicDataSource(options).reader(columns)  # type: ignore[arg-type]  # the schema is not looked at
