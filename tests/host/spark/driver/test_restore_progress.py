"""What workers say of a restore comes to the driver and its listener, if it is of this run and not over."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import KafkaStreams, Materialized, StateRestoreListener, StreamsBuilder, Topology
from penstock.errors import TaskCorruptedError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.driver import restore_watch
from penstock.host.spark.driver.restore_watch import RestoreWatch
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.worker import restore_progress
from penstock.host.spark.worker.restore_progress import TaskRestore
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock_broker.common.clock import MockClock
from tests.host.spark.inline import InlineQuery
from tests.host.spark.protocol.test_application_description import description_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_topologies import TEXT, word_count

EPOCH = 5
GENERATION = 3
AT = TopicPartition("app-counts-changelog", 1)


class Listener(StateRestoreListener):
    """Keeps the calls that it receives."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def on_restore_start(
        self, topic_partition: TopicPartition, store_name: str, starting_offset: int, ending_offset: int
    ) -> None:
        self.told.append(("start", topic_partition, store_name, starting_offset, ending_offset))

    def on_batch_restored(
        self, topic_partition: TopicPartition, store_name: str, batch_end_offset: int, num_restored: int
    ) -> None:
        self.told.append(("batch", topic_partition, store_name, batch_end_offset, num_restored))

    def on_restore_end(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        self.told.append(("end", topic_partition, store_name, total_restored))

    def on_restore_suspended(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        self.told.append(("suspended", topic_partition, store_name, total_restored))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    clock = MockClock(1_000_000)
    for module in (restore_progress, restore_watch):
        monkeypatch.setattr(module, "elapsed_milliseconds", clock.milliseconds)
    return clock


@pytest.fixture
def description(tmp_path: Path) -> ApplicationDescription:
    return replace(description_of(word_count("in", "out"), tmp_path), generation=GENERATION, tells_restores=True)


def rebuild(description: ApplicationDescription, epoch: int = EPOCH) -> TaskRestore:
    """Return the rebuild of task 1_1, of 100 entries."""
    begun = TaskRestore(description, Checkpoint(description.checkpoint), TaskId(1, 1), epoch, is_restore=True)
    begun.begin(100)
    return begun


def files(description: ApplicationDescription) -> list[Path]:
    directory = Path(description.checkpoint) / "restoring"
    return list(directory.iterdir()) if directory.exists() else []


def test_a_rebuild_that_takes_long_is_reported_until_it_ends(
    description: ApplicationDescription, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = RestoreWatch(Checkpoint(description.checkpoint))
    with caplog.at_level(logging.INFO, logger="penstock"):
        with rebuild(replace(description, tells_restores=False)) as progress:
            clock.advance(10_000)
            progress.restored({"counts": 40})
            watch.look(GENERATION, EPOCH - 1)
            assert watch.snapshot() == {"1_1": (40, 100)}
            clock.advance(10_000)
            progress.restored({"counts": 60})
        watch.look(GENERATION, EPOCH - 1)
    assert watch.snapshot() == {}
    told = [record for record in caplog.records if record.name == restore_watch.__name__]
    assert [record.getMessage() for record in told] == [
        "Task 1_1 restores its state: 40 of 100 entries.",
        "Task 1_1 has restored its state.",
    ]
    assert not files(description)


def test_a_short_rebuild_writes_nothing_where_nobody_listens(
    description: ApplicationDescription, clock: MockClock
) -> None:
    with rebuild(replace(description, tells_restores=False)) as progress:
        progress.restored({"counts": 100})
    assert not files(description)


def test_a_listener_hears_of_a_rebuild_from_start_to_end(description: ApplicationDescription, clock: MockClock) -> None:
    listener = Listener()
    watch = RestoreWatch(Checkpoint(description.checkpoint), listener)
    with rebuild(description) as progress:
        clock.advance(10_000)
        progress.restored({"counts": 40})
        watch.look(GENERATION, EPOCH - 1)
        progress.restored({"counts": 60})
    clock.advance(10_000)
    watch.look(GENERATION, EPOCH)  # the epoch is committed meanwhile
    assert listener.told == [
        ("start", AT, "counts", 0, 100),
        ("batch", AT, "counts", 39, 40),
        ("batch", AT, "counts", 99, 60),
        ("end", AT, "counts", 100),
    ]
    assert not files(description)


def test_offsets_are_those_of_the_task_and_records_those_of_the_store(
    description: ApplicationDescription, tmp_path: Path, clock: MockClock
) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.count(materialized=Materialized.as_("a"))
    grouped.reduce(max, materialized=Materialized.as_("b"))
    both = replace(description_of(builder.build(), tmp_path), generation=GENERATION, tells_restores=True)
    listener = Listener()
    with TaskRestore(both, Checkpoint(both.checkpoint), TaskId(0, 1), EPOCH, is_restore=True) as progress:
        progress.begin(10)
        progress.restored({"a": 3, "b": 1})
        progress.begin(10)  # the base has to grow: all over again
        progress.restored({"a": 8, "b": 2})
    RestoreWatch(Checkpoint(both.checkpoint), listener).look(GENERATION, EPOCH)
    assert sorted(listener.told) == [
        ("batch", TopicPartition("app-a-changelog", 1), "a", 9, 8),
        ("batch", TopicPartition("app-b-changelog", 1), "b", 9, 2),
        ("end", TopicPartition("app-a-changelog", 1), "a", 8),
        ("end", TopicPartition("app-b-changelog", 1), "b", 2),
        ("start", TopicPartition("app-a-changelog", 1), "a", 0, 10),
        ("start", TopicPartition("app-b-changelog", 1), "b", 0, 10),
    ]


@pytest.mark.parametrize("over", ["failed", "killed", "committed", "ended"])
def test_a_rebuild_that_is_given_up_is_suspended(
    description: ApplicationDescription, clock: MockClock, over: str
) -> None:
    listener = Listener()
    watch = RestoreWatch(Checkpoint(description.checkpoint), listener)
    progress = rebuild(description)
    clock.advance(10_000)
    progress.restored({"counts": 40})
    watch.look(GENERATION, EPOCH - 1)
    clock.advance(10_000)
    match over:
        case "failed":
            with pytest.raises(TaskCorruptedError), progress:
                raise TaskCorruptedError("a file is missing")
            watch.look(GENERATION, EPOCH - 1)
        case "killed":
            watch.look(GENERATION + 1, EPOCH - 1)
        case "committed":
            watch.look(GENERATION, EPOCH)
        case "ended":
            watch.end(GENERATION, EPOCH - 1)
    assert listener.told[-1] == ("suspended", AT, "counts", 40)
    assert watch.snapshot() == {}
    assert bool(files(description)) == (over == "ended")  # its worker may keep running for a while


@pytest.mark.parametrize(("generation", "epoch"), [(GENERATION - 1, EPOCH), (GENERATION, EPOCH - 1)])
def test_news_of_another_run_or_a_committed_epoch_is_void(
    description: ApplicationDescription, clock: MockClock, generation: int, epoch: int
) -> None:
    left_behind = rebuild(replace(description, generation=generation), epoch)
    clock.advance(10_000)
    left_behind.restored({"counts": 10})
    listener = Listener()
    watch = RestoreWatch(Checkpoint(description.checkpoint), listener)
    watch.look(GENERATION, EPOCH - 1)
    assert watch.snapshot() == {}
    assert listener.told == []
    assert not files(description)


def test_news_of_another_version_is_void(description: ApplicationDescription) -> None:
    checkpoint = Checkpoint(description.checkpoint)
    checkpoint.restores().write("1_1", b"[3,5,40,100]")
    RestoreWatch(checkpoint).look(GENERATION, EPOCH - 1)
    assert not files(description)


def test_reports_for_a_newer_driver_are_left_to_it(description: ApplicationDescription, clock: MockClock) -> None:
    with rebuild(description) as progress:
        progress.restored({"counts": 100})
    RestoreWatch(Checkpoint(description.checkpoint), Listener()).look(GENERATION - 1, EPOCH - 1)
    assert len(files(description)) == 1


def test_a_listener_that_fails_receives_the_next_event(
    description: ApplicationDescription, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Listener):
        def on_restore_start(
            self, topic_partition: TopicPartition, store_name: str, starting_offset: int, ending_offset: int
        ) -> None:
            raise ValueError("no")

    listener = Failing()
    with rebuild(description) as progress:
        progress.restored({"counts": 100})
    RestoreWatch(Checkpoint(description.checkpoint), listener).look(GENERATION, EPOCH)
    assert listener.told == [("batch", AT, "counts", 99, 100), ("end", AT, "counts", 100)]
    assert "The restore listener failed on store counts" in caplog.text


def test_the_driver_looks_every_other_second(description: ApplicationDescription, clock: MockClock) -> None:
    watch = RestoreWatch(Checkpoint(description.checkpoint))
    watch.look(GENERATION, EPOCH - 1)
    progress = rebuild(description)
    clock.advance(1_000)
    progress.restored({"counts": 10})
    watch.look(GENERATION, EPOCH - 1)
    assert watch.snapshot() == {}
    clock.advance(1_000)
    watch.look(GENERATION, EPOCH - 1)
    assert watch.snapshot() == {"1_1": (10, 100)}


def named_counts(source: str, names: str) -> Topology:
    builder = StreamsBuilder()
    builder.global_table(names, TEXT, Materialized.as_("names"))
    builder.stream(source, consumed=TEXT).group_by_key().count(materialized=Materialized.as_("counts"))
    return builder.build()


@pytest.mark.one_broker
def test_a_machine_that_begins_with_nothing_restores_tasks_and_global_stores(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, names = unique_name("in"), unique_name("names")
    spark_runner.create_topics({source: 1, names: 1})
    config = spark_runner.config(application)
    query = InlineQuery(named_counts(source, names), config, spark_runner.admin, tells_restores=True)

    def heard() -> list[tuple[Any, ...]]:
        query.run_to_end()
        listener = Listener()
        checkpoint = Checkpoint(query.description.checkpoint)
        RestoreWatch(checkpoint, listener).end(query.description.generation, query.epochs)
        assert not checkpoint.restores().find("")
        return listener.told

    global_topic, changelog = TopicPartition(names, 0), TopicPartition(f"{application}-counts-changelog", 0)
    spark_runner.write(names, [InputRecord(key, b"name", 1, 0) for key in (b"a", b"b", b"a")])
    spark_runner.write(source, [InputRecord(key, b"", 1, 0) for key in (b"a", b"b")])
    assert heard() == [
        ("start", global_topic, "names", 0, 3),
        ("batch", global_topic, "names", 2, 3),
        ("end", global_topic, "names", 3),
    ]
    spark_runner.write(names, [InputRecord(b"c", b"name", 1, 0)])
    spark_runner.write(source, [InputRecord(b"c", b"", 1, 0)])
    assert heard() == []  # the topic is followed, and nothing was missing
    query.stop()
    shutil.rmtree(Path(config["state.dir"]) / application / "bases")
    query.restart()
    spark_runner.write(names, [InputRecord(b"d", b"name", 1, 0)])
    spark_runner.write(source, [InputRecord(b"d", b"", 1, 0)])
    told = heard()
    assert [each for each in told if each[1] == changelog] == [
        ("start", changelog, "counts", 0, 3),
        ("batch", changelog, "counts", 2, 3),
        ("end", changelog, "counts", 3),
    ]
    assert [each for each in told if each[1] == global_topic] == [
        ("start", global_topic, "names", 4, 5),
        ("batch", global_topic, "names", 4, 1),
        ("end", global_topic, "names", 1),
    ]


@pytest.mark.one_broker
@pytest.mark.parametrize("base", ["lmdb", "rocksdb"])
def test_a_restore_of_one_commit_is_reported_and_the_usual_way_is_not(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], base: str
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    config = spark_runner.config(application, {"penstock.state.base": base})
    query = InlineQuery(word_count(source, target), config, spark_runner.admin, tells_restores=True)

    def heard_with(word: bytes) -> list[tuple[Any, ...]]:
        spark_runner.write(source, [InputRecord(None, word, 1, 0)])
        query.run_to_end()
        listener = Listener()
        RestoreWatch(Checkpoint(query.description.checkpoint), listener).end(query.description.generation, query.epochs)
        return listener.told

    changelog = TopicPartition(f"{application}-counts-changelog", 0)
    assert heard_with(b"a") == []
    query.stop()
    for bases in (Path(config["state.dir"]) / application).glob("bases*"):
        shutil.rmtree(bases)
    query.restart()
    assert heard_with(b"b") == [
        ("start", changelog, "counts", 0, 1),
        ("batch", changelog, "counts", 0, 1),
        ("end", changelog, "counts", 1),
    ]
    assert heard_with(b"c") == []
    query.stop()
    query.restart()
    assert heard_with(b"d") == []


@pytest.mark.slow
@pytest.mark.one_broker
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_program_hears_of_restores_in_workers(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    config = spark_runner.config(application)
    query = InlineQuery(word_count(source, target), config, spark_runner.admin)
    for words in ("a b", "c"):
        spark_runner.write(source, [InputRecord(None, words.encode(), 1, 0)])
        query.run_to_end()
    query.close()
    shutil.rmtree(Path(config["state.dir"]) / application / "bases")
    spark_runner.write(source, [InputRecord(None, b"a b c", 1, 0)])
    streams = KafkaStreams(word_count(source, target), config, spark=spark_runner.session)
    listener = Listener()
    streams.set_global_state_restore_listener(listener)
    streams.run_to_end()
    changelog = TopicPartition(f"{application}-counts-changelog", 0)
    assert listener.told == [
        ("start", changelog, "counts", 0, 3),
        ("batch", changelog, "counts", 2, 3),
        ("end", changelog, "counts", 3),
    ]
