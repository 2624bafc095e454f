"""What a person sees of a running application: lines in the log, names on Spark's pages."""

from __future__ import annotations

import contextlib
import io
import logging
from dataclasses import replace

import pytest

from penstock import StreamsBuilder
from penstock.host.measuring.record_counters import RecordCounters
from penstock.host.spark.checkpoints.checkpoint import Manifest, TopicFigures
from penstock.host.spark.driver.figures import ManifestFigures
from penstock.host.supervision.progress import DroppedRecordsLog, ProgressLog
from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.metrics.host_metrics import dropped_for
from penstock.record import TopicPartition
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, lines, wait_for
from tests.host.test_topologies import TEXT, TEXT_OUT, word_count
from tests.support.brokers import EMBEDDED_ONLY


def manifest(epoch: int) -> Manifest:
    return Manifest("q", epoch, 1, 1_000, 1_250, {}, input={"t": TopicFigures(10, 100)}, records_out=3)


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="penstock")
    return caplog


def test_a_line_comes_after_each_interval_with_what_happened_in_it(told: pytest.LogCaptureFixture) -> None:
    figures, time = ManifestFigures(), Time()
    progress = ProgressLog("app", 120_000, figures.snapshot, time)
    figures.take(manifest(1))
    figures.take(manifest(2))
    time.seconds = 119
    progress.look()
    assert not told.messages
    time.seconds = 121
    progress.look()
    progress.look()
    figures.take(manifest(3))
    time.seconds = 241
    progress.look()
    assert told.messages == [
        "app: 20 records in and 6 out, in 2 epochs of the last 121 s; epoch 2 took 250 ms",
        "app: 10 records in and 3 out, in 1 epoch of the last 120 s; epoch 3 took 250 ms",
    ]


def test_a_task_keeps_its_worker_and_waits_until_it_runs_again() -> None:
    figures = ManifestFigures()
    workers, waits = {"0_0": "here (pid 1)", "0_1": "here (pid 2)"}, {"0_0": [["t", 1]], "0_1": [["t", 0]]}
    figures.take(replace(manifest(1), workers=workers, awaited=waits))
    figures.take(replace(manifest(2), workers={"0_1": "here (pid 3)"}))
    seen = figures.snapshot()
    assert seen.workers == {"0_0": "here (pid 1)", "0_1": "here (pid 3)"}
    assert seen.awaited == {"0_0": (TopicPartition("t", 1),)}
    figures.begin(manifest(2), {}, {})
    assert (figures.snapshot().workers, figures.snapshot().awaited) == ({}, {})


def test_answers_of_calls_are_no_records_read() -> None:
    figures = ManifestFigures(counters=RecordCounters("t-answers".__eq__, frozenset(("t-answers",))))
    taken = {"t": TopicFigures(10, 100), "t-answers": TopicFigures(7, 70)}
    figures.take(replace(manifest(1), input=taken))
    found = figures.snapshot()
    assert (found.records_in, found.bytes_in, found.answers_in, found.records_per_second) == (10, 100, 7, 40)


LATE, DUPLICATE = Dropped("COUNT", DropReason.LATE), Dropped("DEDUPLICATE", DropReason.DUPLICATE)


def dropping(epoch: int, records: int, dropped: Dropped) -> Manifest:
    return replace(manifest(epoch), measured={"0_0": {dropped_for(dropped): (records, float(records), 1.0, 1.0)}})


def test_dropped_records_are_a_warning_once_a_minute_and_at_the_end(told: pytest.LogCaptureFixture) -> None:
    figures, time = ManifestFigures(), Time()
    log = DroppedRecordsLog("app", figures.dropped, time)
    log.look()
    assert not told.messages
    for at, epoch in enumerate((1, 2, 3)):
        figures.take(dropping(epoch, 2_000, LATE))
        time.seconds = at
        log.look()
    metric = "The metric dropped-records-by-reason-total counts them."
    assert [record.levelname for record in told.records] == ["WARNING"]
    assert told.messages == [f"app dropped 2,000 records, 2,000 since its start: 2,000 late in COUNT. {metric}"]
    time.seconds = 61
    log.look()
    log.look()
    assert told.messages[1:] == [f"app dropped 4,000 records, 6,000 since its start: 6,000 late in COUNT. {metric}"]
    figures.take(dropping(4, 1, LATE))
    log.look()
    log.end()
    log.end()
    assert told.messages[2:] == [f"app dropped 1 record, 6,001 since its start: 6,001 late in COUNT. {metric}"]


def test_duplicates_are_no_loss(told: pytest.LogCaptureFixture) -> None:
    figures = ManifestFigures()
    log = DroppedRecordsLog("app", figures.dropped, Time())
    figures.take(dropping(1, 5, DUPLICATE))
    log.end()
    assert not told.messages
    assert figures.dropped() == {DUPLICATE: 5}


@pytest.mark.parametrize("interval", [0, -1])
def test_no_interval_is_no_line(told: pytest.LogCaptureFixture, interval: int) -> None:
    time = Time()
    progress = ProgressLog("app", interval, ManifestFigures().snapshot, time)
    time.seconds = 1e9
    progress.look()
    assert not told.messages


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@EMBEDDED_ONLY
def test_spark_shows_the_nodes_of_each_level(spark_runner: SparkRunner, application: str) -> None:
    source, target = f"{application}-in", f"{application}-out"
    spark_runner.create_topics({source: 1, target: 1})
    spark_runner.write(source, lines(["a"]))
    with spark_runner.running(word_count(source, target), spark_runner.config(application)) as host:
        wait_for(lambda: host.statistics().records_in == 1)
        running = host._current.query  # it runs in a separate session, whose queries nobody else can list
        assert running is not None
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            running._query.explain()
    name = running._query.name
    assert name.startswith(f"{application} (level 0: sub-topology 0: KSTREAM-SOURCE-0000000000, KSTREAM-FLATMAPVALUES-")
    for text in (name, shown.getvalue()):
        assert "level 1: sub-topology 1: counts-repartition-source, KSTREAM-AGGREGATE-0000000003" in text


@pytest.mark.xdist_group("spark")
@EMBEDDED_ONLY
def test_what_tasks_take_drop_and_write_is_counted(spark_runner: SparkRunner, application: str) -> None:
    source, target = f"{application}-in", f"{application}-out"
    spark_runner.create_topics({source: 1, target: 1})
    spark_runner.write(source, [*lines(["a b", "a"]), InputRecord(None, None, 5_000)])
    builder = StreamsBuilder()
    stream = builder.stream(source, consumed=TEXT)
    stream.group_by_key().count()  # drops what has no key
    stream.to(target, produced=TEXT_OUT)
    query = InlineQuery(builder.build(), spark_runner.config(application), spark_runner.admin)
    query.run_to_end()
    figures = ManifestFigures()
    figures.take(spark_runner.manifest(spark_runner.config(application)))
    counted = figures.snapshot()
    assert counted.consumed == {source: (3, 4)}
    assert counted.produced == {target: (3, 4)}
    assert counted.processed == {"0_0": 3}
    assert counted.dropped == {"0_0": 3}
