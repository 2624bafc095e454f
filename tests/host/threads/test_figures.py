"""What an instance counts and measures."""

from __future__ import annotations

import json
import threading

import pytest

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Produced
from penstock.host.api import CommitFigures, HostStatistics
from penstock.host.deployment.layout import layout_of
from penstock.host.supervision.progress import progress_line
from penstock.host.threads import vocabulary as v
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.vocabulary import OpenedState
from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.metrics.host_metrics import (
    COMMIT,
    DROPPED_RECORDS,
    NODE_ID,
    PROCESS,
    PUNCTUATE,
    Operation,
    dropped_for,
    operation_of,
    streams_metrics,
)
from penstock.metrics.measurements import Measurement
from penstock.metrics.record_counts import RecordCounts
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import built_topology
from penstock.processor.api import Processor, ProcessorContext, PunctuationType
from penstock.record import PartitionBatch, Record, RecordBatch, TopicPartition
from penstock.serdes import Serdes
from penstock.state.memory import MemoryBase
from penstock.task.changelog_copy import ChangelogStamp
from penstock.task.idling import NO_WAIT
from penstock.task.partition_group import BufferSize
from penstock.task.task_checkpoint import TaskCheckpoint

TASK = TaskId(1, 0)


class Punctuated(Processor[bytes, bytes, bytes, bytes]):
    """Is called once a second, and does nothing."""

    def init(self, context: ProcessorContext[bytes, bytes]) -> None:
        super().init(context)
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda now: None)

    def process(self, record: Record[bytes, bytes]) -> None:
        pass


def batch(*values: bytes) -> RecordBatch:
    return RecordBatch.of([(b"k", value, 1, number, ()) for number, value in enumerate(values)])


def test_events_and_output_are_added_up_and_the_topics_of_the_application_left_out() -> None:
    figures = InstanceFigures(2, 30_000, lambda topic: topic.startswith("app-"), lambda: 0)
    for topic in ("in", "app-repartition", "in"):
        figures.take(v.Arrived(TopicPartition(topic, 0), batch(b"a", b"bc")))
    figures.sent([PartitionBatch("out", 0, batch(b"x")), PartitionBatch("app-changelog", 0, batch(b"y"))])
    figures.take(v.Ran(TASK, records=3))
    figures.take(v.Ran(TASK, records=1))
    late = Dropped("COUNT", DropReason.LATE)
    figures.take(v.CommitPrepared(TASK, (), {}, {dropped_for(late): Measurement(2)}, dropped=2))
    assert figures.dropped() == {late: 2}
    assert figures.snapshot() == HostStatistics(
        commits=0,
        records_in=4,
        bytes_in=10,
        records_out=1,
        lag=0,
        unread="",
        consumed={"in": (4, 10), "app-repartition": (2, 5)},
        produced={"out": (1, 2), "app-changelog": (1, 2)},
        processed={"1_0": 4},
        dropped={"1_0": 2},
        recent_commits=[],
    )


def test_a_task_waits_until_a_run_leaves_nothing_or_it_is_closed() -> None:
    figures, waits = InstanceFigures(2, 30_000, lambda topic: False, lambda: 0), (TopicPartition("b", 0),)
    figures.take(v.Started(TASK, None))
    figures.take(v.Ran(TASK, awaited=waits))
    assert figures.snapshot().awaited == {"1_0": waits}
    figures.take(v.Ran(TASK, records=1))
    assert figures.snapshot().awaited == {}
    figures.take(v.Ran(TASK, awaited=waits))
    figures.take(v.Closed(TASK))
    assert figures.snapshot().awaited == {}


def test_tasks_and_commits_are_measured() -> None:
    now = [0]
    figures = InstanceFigures(2, 30_000, lambda topic: False, lambda: now[0])
    figures.commit_ended(0)  # none has begun
    figures.commits.began(0)
    now[0] = 5
    figures.commits.began(0)
    now[0] = 7
    figures.commit_ended(7)
    figures.take(v.CommitPrepared(TASK, (), {}, {PUNCTUATE: Measurement(2, 6.0, 4.0, 4.0)}, dropped=1))
    measured = figures.measured()
    assert measured.operations[Operation(COMMIT)].total == 7
    assert figures.snapshot().recent_commits == []
    assert measured.operations[Operation(DROPPED_RECORDS, "1_0")].number == 1
    names = {name.name for name in streams_metrics("client", {}, figures.snapshot(), measured)}
    assert {"commit-latency-max", "punctuate-rate", "dropped-records-total"} <= names


def test_what_waits_for_a_task_is_measured_while_it_has_it() -> None:
    figures = InstanceFigures(2, 30_000, lambda topic: False, lambda: 0)
    figures.lags({}, {TASK: BufferSize(3, 40), v.GLOBAL_TASK: BufferSize(1, 1)})
    metrics = streams_metrics("client", {}, RecordCounts(), figures.measured())
    found = {
        (key.name, key.tags["task-id"]): each.metric_value for key, each in metrics.items() if "task-id" in key.tags
    }
    assert found == {("active-buffer-count", "1_0"): 3, ("input-buffer-bytes-total", "1_0"): 40}
    figures.lags({}, {})
    assert "active-buffer-count" not in {
        key.name for key in streams_metrics("client", {}, RecordCounts(), figures.measured())
    }


def test_an_instance_is_blocked_while_it_fetches_and_while_brokers_commit() -> None:
    now = [0]
    figures = InstanceFigures(2, 30_000, lambda topic: False, lambda: now[0])
    figures.poll_began()
    now[0] = 30
    figures.poll_ended(1)
    figures.commits.began(30)
    figures.take(v.CommitPrepared(TASK, (), {}))
    now[0] = 37
    figures.take(v.OffsetsCommitted())
    now[0] = 40
    figures.take(v.CommitApplied(TASK, None))
    figures.commit_ended(40)
    metrics = streams_metrics("client", {}, RecordCounts(), figures.measured())
    assert [each.metric_value for key, each in metrics.items() if key.name == "blocked-time-ns-total"] == [37_000_000]


def test_tasks_that_come_and_go_leave_no_metrics_behind_and_the_totals_of_all_stay() -> None:
    figures = InstanceFigures(2, 30_000, lambda topic: False, lambda: 0)
    node = operation_of(PROCESS, NODE_ID, "node")
    numbers = set()
    for partition in range(300):
        task = TaskId(0, partition)
        measured = {PROCESS: Measurement(3, 6e6, 2e6, 2e6), node: Measurement(3, 3.0, 1.0, 1.0)}
        figures.take(v.Started(task, None))
        figures.take(v.CommitPrepared(task, (), {}, measured))
        operations = figures.measured().operations
        assert {each.name for each in operations if each.task == str(task)} == {PROCESS}
        figures.take(v.Closed(task))
        numbers.add(len(operations))
    assert max(numbers) < 12
    metrics = streams_metrics("client", {}, RecordCounts(), figures.measured())
    assert {key.tags["task-id"] for key in metrics if "task-id" in key.tags} == set()
    values = {key.name: each.metric_value for key, each in metrics.items()}
    assert values["process-total"] == 900
    assert values["task-closed-total"] == 300


def test_a_commit_is_split_into_its_phases() -> None:
    now = [0]
    figures = InstanceFigures(2, 30_000, lambda topic: False, lambda: now[0])
    for records in (3, 4):
        figures.take(v.Ran(TASK, records=records, nanoseconds=records * 1_000_000))
    figures.commits.began(0)
    for event, took in ((v.CommitPrepared(TASK, (), {}), 5), (v.Written({}), 20), (v.TransactionCommitted({}), 10)):
        now[0] += took
        figures.take(event)
    now[0] += 2
    figures.take(v.CommitApplied(TASK, None))
    figures.commit_ended(1_000)
    phases = {"process": 7.0, "state": 7.0, "transaction": 30.0}
    assert figures.snapshot().recent_commits == [CommitFigures(1, 1_000, 7, phases)]
    assert json.loads(json.dumps(figures.snapshot().by_name()))["recent_commits"] == [[1, 1_000, 7, phases]]


def shown(figures: InstanceFigures) -> dict[tuple[str, ...], float | str]:
    """Return the metrics by group and name, and task where they have one."""
    metrics = streams_metrics("client", {}, RecordCounts(), figures.measured())
    return {
        (name.group, name.name, *(tag for key, tag in name.tag_items if key == "task-id")): metric.metric_value
        for name, metric in metrics.items()
    }


def test_the_ratios_of_a_thread_are_shares_of_the_time_that_has_passed() -> None:
    now, millisecond = [1_000], 1_000_000
    figures = InstanceFigures(2, 30_000, lambda topic: False, lambda: now[0])
    figures.started(workers=2, now_ms=5_000)
    figures.poll_began()
    now[0] += 50
    figures.poll_ended(3)
    for records in (4, 6):
        figures.take(
            v.Ran(TASK, records=records, nanoseconds=40 * millisecond, punctuation_nanoseconds=10 * millisecond)
        )
    figures.commits.began(0)
    now[0] += 20
    figures.commit_ended(0)
    now[0] += 130
    thread = "stream-thread-metrics"
    found = shown(figures)
    expected = {"poll": 0.25, "process": 0.15, "punctuate": 0.05, "commit": 0.1}
    assert {name: found[thread, f"{name}-ratio"] for name in expected} == pytest.approx(expected)
    assert (found[thread, "process-records-avg"], found[thread, "process-records-max"]) == (5, 6)
    assert found[thread, "thread-start-time"] == 5_000


def test_restores_and_standby_tasks_are_measured() -> None:
    now = [0]
    figures = InstanceFigures(2, 30_000, lambda topic: False, lambda: now[0])
    other, cancelled, standby = TaskId(1, 1), TaskId(1, 2), TaskId(1, 3)
    updater, of_task = "stream-state-updater-metrics", "stream-task-metrics"
    for action in (*map(v.Restore, (v.GLOBAL_TASK, TASK, other, cancelled)), v.StandBy(standby), v.StandBy(other)):
        figures.asked(action)
    figures.asked(v.StandDown(other))
    with figures.updating():
        now[0] += 20
        figures.updated(standby, 0)
        figures.updated(standby, 5)
    with figures.restoring():
        figures.restored(TASK, 0, 12)
        figures.restored(cancelled, 0, 3)
        now[0] += 10
        figures.restored(TASK, 10, 2)
        found = shown(figures)
        assert [found[updater, f"{name}-ratio"] for name in ("active-restore", "standby-update", "idle")] == (
            pytest.approx([1 / 3, 2 / 3, 0])
        )
    now[0] += 10
    assert found[updater, "active-restoring-tasks"] == 3
    assert found[updater, "standby-updating-tasks"] == 1
    assert (found[of_task, "restore-total", "1_0"], found[of_task, "update-total", "1_3"]) == (10, 5)
    assert found[of_task, "restore-remaining-records-total", "1_0"] == 2
    rates = [found[updater, f"restore-{name}-rate"] for name in ("records", "call")]
    assert rates == pytest.approx([15 / 30, 2 / 30], rel=0.01)
    figures.take(v.Restored(TASK, OpenedState(MemoryBase(), ChangelogStamp({}, {}), {}, TaskCheckpoint())))
    figures.take(v.Failed(ValueError("no disk"), other))
    figures.take(v.Closed(cancelled))
    figures.asked(v.Restore(standby))
    found = shown(figures)
    assert found[updater, "active-restoring-tasks"] == 1
    assert found[updater, "standby-updating-tasks"] == 0
    assert found[updater, "idle-ratio"] == 0.25
    assert (of_task, "restore-remaining-records-total", "1_2") not in found
    figures.started(1, 0)
    assert shown(figures)[updater, "active-restoring-tasks"] == 0


def test_a_task_tells_how_much_of_a_run_its_punctuations_took() -> None:
    builder = StreamsBuilder()
    bytes_ = Serdes.bytes()
    builder.stream("in", Consumed.with_(bytes_, bytes_)).process(Punctuated)
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": ""})
    runner = TaskRunner(layout_of(built_topology(builder.build(), "app"), config, {"in": 1}), {})
    task, partition = TaskId(0, 0), TopicPartition("in", 0)
    runner.do(v.Start(task, OpenedState(MemoryBase(), ChangelogStamp({}, {}), {partition: 0}, TaskCheckpoint()), 0))
    none, some = (runner.do(v.RunTask(task, [(partition, batch(b"v"))], NO_WAIT, now)) for now in (0, 1_000))
    assert isinstance(none, v.Ran)
    assert isinstance(some, v.Ran)
    assert none.punctuation_nanoseconds == 0
    assert 0 < some.punctuation_nanoseconds < some.nanoseconds


def test_a_task_measures_its_records_and_their_ages_behind_sinks() -> None:
    builder = StreamsBuilder()
    bytes_ = Serdes.bytes()
    builder.stream("in", Consumed.with_(bytes_, bytes_)).to("out", Produced.with_(bytes_, bytes_).with_name("sink"))
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": ""})
    runner = TaskRunner(layout_of(built_topology(builder.build(), "app"), config, {"in": 1, "out": 1}), {"out": 1})
    task, partition = TaskId(0, 0), TopicPartition("in", 0)
    state = OpenedState(MemoryBase(), ChangelogStamp({}, {}), {partition: 0}, TaskCheckpoint())
    runner.do(v.Start(task, state, 0))
    records = RecordBatch.of([(b"k", b"v", time, offset, ()) for offset, time in enumerate((1_000, 3_000))])
    runner.do(v.RunTask(task, [(partition, records)], NO_WAIT, 1_000_000))
    now = [0]
    figures = InstanceFigures(2, 30_000, lambda topic: False, lambda: now[0])
    figures.commits.began(0)
    figures.take(runner.do(v.Prepare(task, 1_000_000)))
    figures.commit_ended(1_000_000)  # none was made: what was sent is sent again
    assert figures.measured().output_ages == {}
    runner.do(v.RunTask(task, [(partition, RecordBatch.of([(b"k", b"v", 1_500_000, 2, ())]))], NO_WAIT, 2_000_000))
    figures.commits.began(0)
    figures.take(runner.do(v.Prepare(task, 2_000_000)))
    figures.take(v.CommitApplied(task, None))
    figures.commit_ended(2_100_000)
    found = {
        (name.name, *(tag for key, tag in name.tag_items if key not in ("client-id", "thread-id"))): metric.metric_value
        for name, metric in streams_metrics("client", {}, RecordCounts(), figures.measured()).items()
    }
    assert found["process-latency-max", "0_0"] >= found["process-latency-avg", "0_0"] > 0
    least, average, most = (found[f"record-e2e-latency-{end}", "0_0", "sink"] for end in ("min", "avg", "max"))
    assert least < average < most
    assert least >= 500_000
    assert found["committed-output-age-p99",] == pytest.approx(600_000, rel=0.2)
    assert found["stream-time", "0_0"] == 1_500_000


def test_open_tasks_are_known_while_one_of_them_runs() -> None:
    has_begun, let_go = threading.Event(), threading.Event()

    def hang(key: bytes, value: bytes) -> None:
        has_begun.set()
        assert let_go.wait(60)

    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(Serdes.bytes(), Serdes.bytes())).foreach(hang)
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": ""})
    runner = TaskRunner(layout_of(built_topology(builder.build(), "app"), config, {"in": 1}), {})
    task, partition = TaskId(0, 0), TopicPartition("in", 0)
    runner.do(v.Start(task, OpenedState(MemoryBase(), ChangelogStamp({}, {}), {partition: 0}, TaskCheckpoint()), 0))
    found: list[TaskId] = []
    run = v.RunTask(task, [(partition, batch(b"v"))], NO_WAIT, 0)
    running = threading.Thread(target=runner.do, args=(run,), daemon=True)
    looking = threading.Thread(target=lambda: found.extend(runner.open_tasks()), daemon=True)
    running.start()
    try:
        assert has_begun.wait(60)
        looking.start()
        looking.join(10)
        assert found == [task]
    finally:
        let_go.set()
        running.join(60)


def test_a_line_says_what_was_done_between_two_snapshots() -> None:
    before, now = (HostStatistics(records_in=n, records_out=2 * n, commits=n) for n in (1, 4))
    assert progress_line("app", before, now, 120.5) == "app: 3 records in and 6 out, in 3 commits of the last 120 s"
