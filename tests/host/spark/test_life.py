"""How an application on Spark starts, refuses to start, runs, fails and ends."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from penstock import Processor, ProcessorContext, PunctuationType, Record, StreamsBuilder, Topology
from penstock.errors import (
    IncompatibleCheckpointError,
    LockError,
    MissingSourceTopicError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
)
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from tests.host.spark.support import Listening, SparkRunner, lines, wait_for
from tests.host.spark.test_topologies import TEXT, TEXT_OUT, final, text, word_count

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.partitions(2, 1)]


def test_runs_until_closed_and_continues_where_it_stopped(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    config = spark_runner.config(application)
    with spark_runner.running(word_count(source, target), config) as host:
        spark_runner.write(source, lines(["a b", "b"], partitions=2))
        wait_for(lambda: host.statistics()["records_in"] == 2)
        spark_runner.write(source, lines(["a"]))
        wait_for(lambda: host.statistics()["records_in"] == 3)
        figures = host.statistics()
        assert figures["records_out"] == 4
        assert figures["epoch"] >= 2
    assert final(spark_runner.read(target)) == {"a": 2, "b": 2}
    with spark_runner.running(word_count(source, target), config) as host:
        spark_runner.write(source, lines(["a"]))
        wait_for(lambda: host.statistics()["records_in"] == 1)
    assert final(spark_runner.read(target)) == {"a": 3, "b": 2}
    assert len(spark_runner.read(target)) == 5


@pytest.mark.one_broker
def test_an_idle_application_plans_no_epochs(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    with spark_runner.running(word_count(*topics), config) as host:
        wait_for(lambda: host.statistics()["epoch"] == 1)  # the first initialises the tasks
        spark_runner.write(topics[0], lines(["a"]))
        wait_for(lambda: host.statistics()["records_in"] == 1)
    assert spark_runner.manifest(config).epoch == 2


class Ticking(Processor):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(50, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", str(timestamp), timestamp))

    def process(self, record: Record[str, str]) -> None:
        raise NotImplementedError


@pytest.mark.one_broker
def test_punctuates_by_wall_clock_without_input(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).process(Ticking).to(target, produced=TEXT_OUT)
    with spark_runner.running(builder.build(), spark_runner.config(application)) as host:
        wait_for(lambda: host.statistics()["records_out"] >= 6)
    times = [int(text(record.value) or 0) for record in spark_runner.read(target)]
    assert len(times) >= 6
    assert len(set(times)) >= 3  # two tasks tick at the same time, in three epochs or more


@pytest.mark.one_broker
def test_prints_of_user_functions_arrive_once(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    builder = StreamsBuilder()
    builder.stream(topics[0], consumed=TEXT).peek(lambda _, value: print("saw", value)).to(topics[1], produced=TEXT_OUT)
    spark_runner.write(topics[0], lines(["x", "y"], partitions=2))
    ended = spark_runner.run(builder.build(), spark_runner.config(application))
    assert sorted(ended.printed.splitlines()) == ["saw x", "saw y"]


def failing(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).map_values(lambda value: str(1 / int(value))).to(target, produced=TEXT_OUT)
    return builder.build()


def test_an_error_of_a_user_function_is_one_readable_error_and_nothing_is_written(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    spark_runner.write(source, lines(["1", "2", "4", "5", "8", "0"], partitions=2))
    with pytest.raises(StreamsError) as caught:
        spark_runner.run(failing(source, target), spark_runner.config(application))
    message = str(caught.value)
    assert "KSTREAM-MAPVALUES-0000000001" in message
    assert f"topic={source}, partition=1, offset=2" in message
    notes = "\n".join(caught.value.__notes__)
    assert "ZeroDivisionError: division by zero" in notes
    assert "str(1 / int(value))" in notes
    assert Path(__file__).name in notes
    assert "org.apache.spark" not in message + notes
    assert spark_runner.read(target) == []


def test_continues_after_the_cause_of_an_error_is_fixed(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    config = spark_runner.config(application)
    spark_runner.write(source, lines(["1", "0"]))
    with pytest.raises(StreamsError):
        spark_runner.run(failing(source, target), config)
    builder = StreamsBuilder()
    mended = builder.stream(source, consumed=TEXT).map_values(lambda value: value * 2)
    mended.to(target, produced=TEXT_OUT)
    spark_runner.run(builder.build(), config)
    assert [text(record.value) for record in spark_runner.read(target)] == ["11", "00"]


@pytest.mark.one_broker
def test_an_application_that_failed_holds_nothing_that_another_needs(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    spark_runner.write(topics[0], lines(["0"]))
    config = spark_runner.config(application)
    failed = spark_runner.host(failing(*topics), config)
    listening = Listening()
    failed.start(listening)
    assert listening.ended.wait(120)
    assert isinstance(listening.error, StreamsError)
    builder = StreamsBuilder()
    builder.stream(topics[0], consumed=TEXT).map_values(lambda value: f"mended {value}").to(
        topics[1], produced=TEXT_OUT
    )
    spark_runner.run(builder.build(), config)  # before the first is closed, as in a cell of a notebook that runs again
    failed.close(30_000)
    assert [record.value for record in spark_runner.read(topics[1])] == [b"mended 0"]


@pytest.mark.one_broker
def test_a_missing_source_topic_is_named_with_the_command_that_makes_it(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    with pytest.raises(MissingSourceTopicError, match="penstock topics create no-such-topic"):
        spark_runner.run(word_count("no-such-topic", topics[1]), spark_runner.config(application))


def test_a_missing_topic_of_a_sink_is_named(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    with pytest.raises(StreamsError, match="sinks write to do not exist: no-such-topic"):
        spark_runner.run(word_count(topics[0], "no-such-topic"), spark_runner.config(application))


@pytest.mark.one_broker
def test_a_second_program_is_refused_while_the_first_runs(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    refused = pytest.raises(LockError, match=f"This program already runs '{application}'.*close the KafkaStreams")
    with spark_runner.running(word_count(*topics), config), refused:
        spark_runner.run(word_count(*topics), config)
    spark_runner.run(word_count(*topics), config)


def test_a_newer_driver_ends_an_older_one(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> None:
    config = spark_runner.config(application)
    host = spark_runner.host(word_count(*topics), config)
    listening = Listening()
    host.start(listening)
    wait_for(lambda: host.statistics()["epoch"] == 1)
    Checkpoint(config.checkpoint_directory()).take_generation()  # as a driver on another machine does
    spark_runner.write(topics[0], lines(["a"]))
    assert listening.ended.wait(120)
    host.close(30_000)
    assert isinstance(listening.error, TaskMigratedError)
    assert "Run only one program" in str(listening.error)


@pytest.mark.one_broker
def test_a_changed_topology_continues_and_says_what_changed(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b"]))
    spark_runner.run(word_count(*topics), config)
    builder = StreamsBuilder()
    builder.stream(topics[0], consumed=TEXT).filter(lambda _, value: True).to(topics[1], produced=TEXT_OUT)
    spark_runner.write(topics[0], lines(["b"]))
    spark_runner.run(builder.build(), config)
    assert "store counts is no longer in the program" in caplog.text
    assert "KSTREAM-FILTER-0000000001" in caplog.text
    spark_runner.write(topics[0], lines(["a"]))
    spark_runner.run(word_count(*topics), config)
    counted = [record for record in spark_runner.read(topics[1]) if record.key is not None]
    assert final(counted) == {"a": 2, "b": 1}


@pytest.mark.one_broker
def test_another_number_of_partitions_is_refused_under_a_store(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    spark_runner.run(word_count(*topics), config)
    spark_runner.admin.create_partitions(topics[0], 5)
    expected = r"store counts has its keys in 2 partitions \(tasks\) and would have 5 now: .*--rescale"
    with pytest.raises(IncompatibleCheckpointError, match=expected):
        spark_runner.run(word_count(*topics), config)


@pytest.mark.one_broker
def test_a_checkpoint_that_is_not_whole_is_refused(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b"]))
    spark_runner.run(word_count(*topics), config)
    checkpoint = Path(config.checkpoint_directory())
    shutil.rmtree(checkpoint / "manifests")
    shutil.rmtree(checkpoint / "offsets")
    with pytest.raises(TaskCorruptedError, match=f"{checkpoint}/manifests/.*penstock reset"):
        spark_runner.run(word_count(*topics), config)


def test_says_the_guarantee(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> None:
    ended = spark_runner.run(word_count(*topics), spark_runner.config(application))
    asked = spark_runner.config(f"{application}-asked", {"processing.guarantee": "exactly_once_v2"})
    assert ended.summary.startswith("exactly_once_v2; broker ")
    assert spark_runner.run(word_count(*topics), asked).summary.startswith("exactly_once_v2; broker ")
    plain = spark_runner.config(f"{application}-plain", {"processing.guarantee": "at_least_once"})
    assert spark_runner.run(word_count(*topics), plain).summary.startswith("at_least_once; broker ")


@pytest.mark.one_broker
def test_leaves_the_session_of_the_user_as_it_is(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    session = spark_runner.session
    before = session.conf.get("spark.sql.adaptive.enabled")
    threads = {thread.name for thread in threading.enumerate()}
    spark_runner.write(topics[0], lines(["a"]))
    spark_runner.run(word_count(*topics), spark_runner.config(application), session=session)
    assert session.conf.get("spark.sql.adaptive.enabled") == before
    assert session.range(3).count() == 3
    assert not [t.name for t in threading.enumerate() if t.name.startswith("penstock-") and t.name not in threads]


@pytest.mark.one_broker
def test_a_rebalance_starts_the_next_query_where_the_last_one_stopped(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    host = spark_runner.host(word_count(source, target), spark_runner.config(application))
    listening = Listening()
    host.start(listening)
    try:
        spark_runner.write(source, lines(["a b", "b"], partitions=2))
        wait_for(lambda: host.statistics()["records_in"] == 2)
        host.rebalance("a test asks for it")
        wait_for(lambda: listening.states == ["RUNNING", "REBALANCING", "RUNNING"] or listening.ended.is_set())
        spark_runner.write(source, lines(["a"]))
        wait_for(lambda: host.statistics()["records_in"] == 3 or listening.ended.is_set())
        host.rebalance("and again")
    finally:
        assert host.close(60_000)
    assert listening.error is None
    assert final(spark_runner.read(target)) == {"a": 2, "b": 2}
    assert len(spark_runner.read(target)) == 4
