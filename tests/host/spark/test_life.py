"""How an application on Spark starts, refuses to start, runs, fails and ends."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from penstock import StreamsBuilder
from penstock.errors import (
    IncompatibleCheckpointError,
    LockError,
    TaskCorruptedError,
    TaskMigratedError,
)
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.end_request import EndRequest
from penstock.host.spark.checkpoints.lock import CheckpointLock
from tests.host.spark.support import SparkRunner
from tests.host.support import CLOSE_MS, TIMEOUT_SECONDS, Listening, lines, wait_for
from tests.host.test_topologies import TEXT, TEXT_OUT, final, word_count

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.partitions(2, 1)]


@pytest.mark.one_broker
def test_an_idle_application_plans_no_epochs(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    with spark_runner.running(word_count(*topics), config) as host:
        wait_for(lambda: host.statistics().epoch == 1)  # the first initialises the tasks
        spark_runner.write(topics[0], lines(["a"]))
        wait_for(lambda: host.statistics().records_in == 1)
    assert spark_runner.manifest(config).epoch == 2


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
    wait_for(lambda: host.statistics().epoch == 1)
    Checkpoint(config.checkpoint_directory()).take_generation()  # as a driver on another machine does
    spark_runner.write(topics[0], lines(["a"]))
    assert listening.ended.wait(TIMEOUT_SECONDS)
    host.close(CLOSE_MS)
    assert isinstance(listening.error, TaskMigratedError)
    assert "Run only one program" in str(listening.error)


@pytest.mark.one_broker
@pytest.mark.parametrize("is_asked_before", [False, True])
def test_an_application_that_is_asked_to_end_processes_its_input_first(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], is_asked_before: bool
) -> None:
    config = spark_runner.config(application)
    request = EndRequest(config.checkpoint_directory())
    if is_asked_before:  # of an earlier run, which has ended
        request.send()
    host = spark_runner.host(word_count(*topics), config)
    listening = Listening()
    host.start(listening)
    wait_for(lambda: host.statistics().epoch == 1)
    assert not request.is_sent()
    spark_runner.write(topics[0], lines(["a b", "a"]))
    request.send()
    assert listening.ended.wait(TIMEOUT_SECONDS)
    assert listening.error is None
    with CheckpointLock(Checkpoint(config.checkpoint_directory()), None, "its successor"):
        assert host.close(CLOSE_MS)
    assert final(spark_runner.read(topics[1])) == {"a": 2, "b": 1}


@pytest.mark.one_broker
def test_a_paused_application_that_is_asked_to_end_ends(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    host = spark_runner.host(word_count(*topics), config)
    listening = Listening()
    host.start(listening)
    wait_for(lambda: host.statistics().epoch == 1)
    host.pause()
    EndRequest(config.checkpoint_directory()).send()
    assert listening.ended.wait(TIMEOUT_SECONDS)
    assert listening.error is None
    assert host.close(CLOSE_MS)


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
    spark_runner.run(word_count(*topics), spark_runner.config(application))
    assert session.conf.get("spark.sql.adaptive.enabled") == before
    assert session.range(3).count() == 3

    def left() -> list[str]:
        names = [thread.name for thread in threading.enumerate()]
        return [name for name in names if name.startswith("penstock-") and name not in threads]

    wait_for(lambda: not left())
