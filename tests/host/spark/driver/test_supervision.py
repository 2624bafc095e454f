"""What an application on Spark does between its queries: restarts after errors, pauses, cleaning up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from penstock.config import StreamsConfig
from penstock.errors import LockError, StreamsError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.host.spark.driver import query_starter
from penstock.host.spark.driver.running_query import RunningQuery, start_query
from penstock.host.spark.driver.spark_host import SparkHost
from penstock.host.spark.planner.topic_ends import TopicEnds
from penstock.host.spark.protocol.failures import ProcessLostError, error_of_spark
from penstock.host.spark.protocol.mailbox import Mailbox, Signal
from penstock.termination import TERMINATED, terminating
from penstock_broker.common.clock import SystemClock
from tests.crash.processes import descendants, kill, victims
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import TIMEOUT_SECONDS, Listening, lines, wait_for
from tests.host.test_life import QUICK, REPLACE, failing_with, listened, text_values
from tests.host.test_topologies import final, word_count

pytestmark = pytest.mark.partitions(2, 1)


def test_an_epoch_that_spark_gives_up_with_an_executor_is_distinguished_from_errors_of_the_program() -> None:
    lost = (
        "Job aborted due to stage failure: A shuffle map stage with indeterminate output was failed and retried. "
        "However, Spark cannot rollback the ResultStage 8 to re-process the input data, and has to fail this job."
    )
    assert isinstance(error_of_spark("of app", lost), ProcessLostError)
    assert not isinstance(error_of_spark("of app", "Job aborted due to stage failure: Task 0 failed"), ProcessLostError)
    query = "[STREAM_FAILED] Query app (level 0: x [1]) [id = 1, runId = 2] terminated with exception: "
    assert isinstance(error_of_spark("of app", f"{query}{lost} SQLSTATE: XXKST"), ProcessLostError)
    assert isinstance(error_of_spark("of app", "failed", f"org.apache.spark.SparkException: {lost}"), ProcessLostError)


@pytest.mark.parametrize(
    "said",
    [
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: ValueError: with indeterminate output",
        "[CAST_INVALID_INPUT] The value 'Job aborted due to stage failure: A with indeterminate output' cannot be cast",
        "ValueError: a\nJob aborted due to stage failure: A stage with indeterminate output was failed and retried.",
    ],
)
def test_an_error_that_quotes_what_spark_says_of_lost_executors_is_one_of_the_program(said: str) -> None:
    query = "[STREAM_FAILED] Query app [id = 1, runId = 2] terminated with exception: "
    assert not isinstance(error_of_spark("of app", f"{query}{said}"), ProcessLostError)


@pytest.mark.parametrize(
    "cause",
    [
        "java.io.EOFException",
        "java.io.IOException: Broken pipe",
        "java.io.IOException: Stream closed",
        "java.net.SocketException: Connection reset",
        "org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's",
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting",
        "org.apache.spark.SparkException: Python worker failed to connect back.",
    ],
)
def test_a_lost_process_is_recognised_by_the_errors_of_the_jvm(cause: str) -> None:
    text = f"terminated with exception\n=== Streaming Query ===\nJVM stacktrace:\n{cause}"
    assert isinstance(error_of_spark("of app", text, f"{cause}\n\nJVM stacktrace:"), ProcessLostError)
    job = f"org.apache.spark.SparkException: Job aborted due to stage failure: {cause}"
    assert not isinstance(error_of_spark("of app", text, job), ProcessLostError), "Spark has tried a task again"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
def test_restarts_have_a_limit_and_the_last_error_ends_the_application(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    marker = tmp_path / "marker"
    marker.touch()
    config = spark_runner.config(application, {**QUICK, "penstock.restart.max.attempts": 1})
    spark_runner.write(source, lines(["a"]))
    with listened(spark_runner.host(failing_with(marker, 9, source, target), config), *[REPLACE] * 9) as listening:
        assert listening.ended.wait(TIMEOUT_SECONDS)
    assert isinstance(listening.error, StreamsError)
    assert "ValueError: the marker is there" in "\n".join(listening.error.__notes__)
    assert listening.states == ["RUNNING", "StreamsError", "REBALANCING", "RUNNING", "StreamsError"]
    assert text_values(spark_runner, target) == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by way of /proc")
@pytest.mark.parametrize("victim", ["source", "commit"])
@pytest.mark.one_broker
def test_a_process_of_spark_that_is_killed_ends_nothing(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], victim: str
) -> None:
    config = spark_runner.config(application, QUICK)
    with counting(spark_runner, spark_runner.host(word_count(*topics), config), topics):
        assert wait_for(lambda: killed(victim))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by way of /proc")
@pytest.mark.one_broker
def test_a_planner_that_is_killed_while_it_plans_ends_nothing(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    clock = StoppableClock(tmp_path / "stop", tmp_path / "stopped")
    built = word_count(*topics).build(application)
    host = SparkHost(built, spark_runner.config(application, QUICK), spark_runner.session, clock=clock)
    with counting(spark_runner, host, topics):
        clock.stop.touch()
        wait_for(clock.stopped.exists)
        assert killed("source")
        clock.stop.unlink()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
def test_a_start_is_tried_again_where_a_process_was_not_up_in_time(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [ProcessLostError("Python worker failed to connect back")] * 2

    def started(*given: Any, **named: Any) -> RunningQuery:
        if errors:
            raise errors.pop()
        return start_query(*given, **named)

    monkeypatch.setattr(query_starter, "start_query", started)
    source, target = topics
    with listened(spark_runner.host(word_count(source, target), spark_runner.config(application, QUICK))) as listening:
        spark_runner.write(source, lines(["a"]))
        wait_for(lambda: final(spark_runner.read(target)) == {"a": 1})
    assert listening.states == ["RUNNING"]
    errors += [ProcessLostError("Python worker failed to connect back")] * 2
    once = spark_runner.config(application, {**QUICK, "penstock.restart.max.attempts": 1})
    with pytest.raises(ProcessLostError):
        spark_runner.host(word_count(source, target), once).start(Listening())


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
def test_a_start_says_when_the_jvm_has_ended(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*given: Any, **named: Any) -> RunningQuery:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(query_starter, "start_query", started)
    with pytest.raises(StreamsError, match=f"JVM of Spark in which {application} ran has ended"):
        spark_runner.host(word_count(*topics), spark_runner.config(application)).start(Listening())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
def test_sigterm_during_a_start_ends_the_query_and_leaves_the_session_usable(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[RunningQuery] = []

    def started(*given: Any, **named: Any) -> RunningQuery:
        signal.raise_signal(signal.SIGTERM)
        queries.append(start_query(*given, **named))
        return queries[0]

    monkeypatch.setattr(query_starter, "start_query", started)
    host = spark_runner.host(word_count(*topics), spark_runner.config(application, QUICK))
    with pytest.raises(SystemExit) as ended, terminating():
        host.start(Listening())
    assert ended.value.code == TERMINATED
    assert [query.is_active for query in queries] == [False]
    assert spark_runner.session.range(3).count() == 3


@contextmanager
def counting(spark_runner: SparkRunner, host: SparkHost, topics: tuple[str, str]) -> Iterator[None]:
    """Run a word count of `topics` on `host` while the block disturbs it; it must continue without calling the
    handler."""
    source, target = topics
    with listened(host) as listening:
        spark_runner.write(source, lines(["a"]))
        wait_for(lambda: final(spark_runner.read(target)) == {"a": 1})
        yield
        spark_runner.write(source, lines(["a b"]))
        wait_for(lambda: listening.ended.is_set() or final(spark_runner.read(target)) == {"a": 2, "b": 1})
        assert listening.error is None
        assert not listening.ended.is_set()
    assert "ProcessLostError" not in listening.states, "no handler is asked"


def killed(kind: str) -> bool:
    """Kill what Spark runs of a kind of process below this one; return whether there was any."""
    found = victims(kind, os.getpid(), descendants(os.getpid()))
    return sum(kill(process.pid) for process in found) > 0


@dataclass(frozen=True)
class StoppableClock:
    """The clock of the machine; a request for the time waits while the file `stop` exists, and creates `stopped`."""

    stop: Path
    stopped: Path

    def milliseconds(self) -> int:
        while self.stop.exists():
            self.stopped.touch()
            time.sleep(0.01)
        return SystemClock().milliseconds()


def test_nothing_is_planned_in_a_pause(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    query.run_to_end()
    mailbox = Mailbox(query.description.control_directory)
    mailbox.create()
    mailbox.send(Signal.PAUSE)
    spark_runner.write(topics[0], lines(["a"]))
    assert not query.epoch()
    mailbox.withdraw(Signal.PAUSE)
    assert query.epoch()
    assert final(spark_runner.read(topics[1])) == {"a": 1}


@pytest.mark.one_broker
def test_nothing_is_planned_of_what_is_written_behind_a_pause_that_comes_while_ends_are_requested(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = InlineQuery(word_count(*topics), spark_runner.config(application), spark_runner.admin)
    query.run_to_end()
    mailbox = Mailbox(query.description.control_directory)
    mailbox.create()
    ends_now = TopicEnds.now

    def behind_a_pause(ends: TopicEnds) -> Any:
        mailbox.send(Signal.PAUSE)
        spark_runner.write(topics[0], lines(["a"]))
        return ends_now(ends)

    with monkeypatch.context() as patched:
        patched.setattr(TopicEnds, "now", behind_a_pause)
        assert not query.epoch()
    assert mailbox.has(Signal.PAUSED)
    mailbox.withdraw(Signal.PAUSE)
    assert query.epoch()
    assert final(spark_runner.read(topics[1])) == {"a": 1}


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
def test_a_run_to_the_end_that_was_paused_still_reaches_it(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    host = spark_runner.host(word_count(source, target), spark_runner.config(application), until_end=True)
    spark_runner.write(source, lines(["a", "a"]))
    host.pause()
    with listened(host) as listening:
        wait_for(lambda: not host._current.query or not host._current.query.is_active)  # Spark has found nothing to do
        assert not listening.ended.is_set()
        host.resume()
        assert listening.ended.wait(TIMEOUT_SECONDS)
        assert listening.error is None
    assert final(spark_runner.read(target)) == {"a": 2}


def test_cleaning_up_keeps_the_checkpoint_alone(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    directory = Path(config["state.dir"]) / application
    assert (directory / "bases").is_dir()
    host = SparkHost(word_count(*topics).build(application), config)
    host.clean_up()
    assert sorted(path.name for path in directory.iterdir()) == ["checkpoint", "lock"]
    query.restart()
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    assert final(spark_runner.read(topics[1])) == {"a": 2}


def test_cleaning_up_is_refused_beside_a_running_program(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config: StreamsConfig = spark_runner.config(application)
    built = word_count(*topics).build(application)
    running = CheckpointLock(
        Checkpoint(config.checkpoint_directory()), Path(config["state.dir"]) / application, application
    )
    running.acquire()
    with pytest.raises(LockError):
        SparkHost(built, config).clean_up()
    running.release()
    SparkHost(built, config).clean_up()


class TestCheckpointLock:
    def test_what_cannot_be_taken_whole_is_not_taken(self, tmp_path: Path) -> None:
        state = tmp_path / "state"
        one, other = Checkpoint(str(tmp_path / "one")), Checkpoint(str(tmp_path / "other"))
        second = CheckpointLock(other, state, "app")
        with CheckpointLock(one, state, "app"):
            with pytest.raises(LockError, match=r"This program already runs 'app' and holds .*state: close"):
                second.acquire()
            with CheckpointLock(other, tmp_path / "another machine", "app"):
                pass
        with second:
            pass

    def test_another_program_is_named_by_its_process(self, tmp_path: Path) -> None:
        hold = (
            "import sys\nfrom penstock.host.spark.checkpoints.checkpoint import Checkpoint\n"
            "from penstock.host.spark.checkpoints.lock import CheckpointLock\n"
            "with CheckpointLock(Checkpoint(sys.argv[1]), None, 'app'): print('held', flush=True); sys.stdin.read()"
        )
        where = str(tmp_path / "checkpoint")
        with subprocess.Popen(
            [sys.executable, "-c", hold, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(LockError, match=rf"pid {other.pid}\) runs with application.id 'app'.*checkpoint"):
                CheckpointLock(Checkpoint(where), None, "app").acquire()
            other.communicate()

    def test_what_is_held_stays_held_where_it_is_asked_for_again(self, tmp_path: Path) -> None:
        checkpoint = Checkpoint(str(tmp_path))
        with CheckpointLock(checkpoint, None, "app") as running:
            with pytest.raises(LockError):
                running.acquire()
            with pytest.raises(LockError):
                CheckpointLock(checkpoint, None, "app").acquire()
