"""An epoch of an application runs again from its checkpoint, with the same state and output, and writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Backoff,
    Consumed,
    JoinWindows,
    Materialized,
    Park,
    Produced,
    StreamJoined,
    StreamsBuilder,
    Topology,
)
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.checkpoint import Manifest, checkpoint_of
from penstock.host.spark.driver.replaying import EpochReplay, Replay
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from tests.host.spark.crashes import Crashes, answer_by_chance, calls_so_far, is_killed
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, lines
from tests.host.test_changes import PAIRS
from tests.host.test_topologies import COUNT_OUT, STRING, TEXT, TEXT_OUT

pytestmark = pytest.mark.one_broker


def shouting(source: str, target: str, change: Callable[[str], str] = str.upper) -> Topology:
    """Counts changed words, in two levels."""
    builder = StreamsBuilder()
    words = builder.stream(source, consumed=TEXT).flat_map_values(str.split).map_values(change, named="changed")
    counts = words.group_by(lambda _, word: word, grouped=PAIRS).count(
        materialized=Materialized.as_("counts"), named="counted"
    )
    counts.to_stream().to(target, produced=COUNT_OUT)
    return builder.build()


def replayed(topology: Topology, config: StreamsConfig, scratch: Path, epoch: int | None = None, **how: Any) -> Replay:
    built = topology.build(str(config["application.id"]))
    scratch.mkdir(exist_ok=True)
    return EpochReplay(built, config, scratch / f"{epoch}-{len(list(scratch.iterdir()))}", epoch).run(**how)


def files(directory: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


@pytest.mark.partitions(3, 2)
def test_each_epoch_gives_what_it_gave_and_nothing_is_written(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    config = spark_runner.config(application, {"penstock.trace.order": str(trace)})
    query = InlineQuery(shouting(*topics), config, spark_runner.admin)
    for words in (["a b", "b c", "a"], ["b", "d d a"], ["c"]):
        spark_runner.write(topics[0], lines(words, partitions=3))
        query.run_to_end()
    query.stop()
    before = files(Path(config["state.dir"])) | files(trace)
    written = spark_runner.read(topics[1])
    found = [replayed(shouting(*topics), config, tmp_path / "scratch", epoch) for epoch in range(1, query.epochs + 1)]
    assert [(each.epoch, each.is_committed, each.is_same, each.differences) for each in found] == [
        (epoch, True, True, ()) for epoch in range(1, query.epochs + 1)
    ]
    again = [
        (each.partition, key, value)
        for done in found
        for _, each in done.output
        for key, value in zip(each.batch.keys, each.batch.values, strict=True)
    ]
    assert sorted(again) == sorted((each.partition, each.key, each.value) for each in written)
    assert files(Path(config["state.dir"])) | files(trace) == before
    assert spark_runner.read(topics[1]) == written
    newest = replayed(shouting(*topics), config, tmp_path / "scratch")
    assert newest.epoch == query.epochs
    one = replayed(shouting(*topics), config, tmp_path / "scratch", 1, task=TaskId(1, 0))
    assert {task.task for task in one.tasks} == {TaskId(0, 0), TaskId(0, 1), TaskId(0, 2), TaskId(1, 0)}
    assert {task for task, _ in one.output} <= {TaskId(1, 0)}
    alone = replayed(shouting(*topics), config, tmp_path / "scratch", 1, task=TaskId(0, 1))
    assert ([task.task for task in alone.tasks], alone.is_same) == ([TaskId(0, 1)], True)
    (tampered,) = trace.glob(f"0_0/{1:012d}")
    tampered.write_bytes(b"[0,[]]\n")
    order = replayed(shouting(*topics), config, tmp_path / "scratch", 1)
    assert "order trace" in str(order.tasks[0].differences)


@pytest.mark.partitions(2, 2)
def test_other_functions_are_told_by_what_differs(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(shouting(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a b", "b"], partitions=2))
    query.run_to_end()
    query.close()
    done = replayed(shouting(*topics, str.title), config, tmp_path, 1)
    assert done.is_same  # a word of one letter
    done = replayed(shouting(*topics, str.lower), config, tmp_path, 1)
    assert not done.is_same
    assert {task.task.subtopology for task in done.tasks if task.differences} == {1}
    assert any("its state, schedules or times differ" in line for task in done.tasks for line in task.differences)
    longer = replayed(shouting(*topics, lambda word: word + word), config, tmp_path, 1)
    assert f"topic {topics[1]} would get" in longer.differences[0]
    builder = StreamsBuilder()
    builder.stream(topics[0], consumed=TEXT).to(topics[1], produced=TEXT_OUT)
    with pytest.raises(StreamsError, match="another shape than the application in the checkpoint"):
        replayed(builder.build(), config, tmp_path, 1)
    with pytest.raises(StreamsError, match="has begun epochs 1 to 1 with"):
        replayed(shouting(*topics), config, tmp_path, 2)
    with pytest.raises(StreamsError, match="has no task 7_0; it has 0_0, 0_1, 1_0"):
        replayed(shouting(*topics), config, tmp_path, 1, task=TaskId(7, 0))


@pytest.mark.partitions(1, 1)
def test_an_epoch_that_failed_fails_again(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    def refuse(word: str) -> str:
        if word == "bad":
            raise ValueError("a bad word")
        return word

    config = spark_runner.config(application)
    query = InlineQuery(shouting(*topics, refuse), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["good"]))
    query.run_to_end()
    spark_runner.write(topics[0], lines(["bad"]))
    failure_of(query.run_to_end)
    query.close()
    with pytest.raises(StreamsError, match="processor=changed") as caught:
        replayed(shouting(*topics, refuse), config, tmp_path)
    assert isinstance(caught.value.__cause__, ValueError)
    mended = replayed(shouting(*topics), config, tmp_path)
    assert (mended.epoch, mended.is_committed, mended.is_same) == (query.epochs + 1, False, True)
    assert [part.batch.keys[0] for _, part in mended.output] == [b"BAD"]


@pytest.mark.partitions(2, 2)
def test_records_that_waited_and_records_in_transit_are_as_they_were(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    other = unique_name("other")
    spark_runner.create_topics({other: 2})
    builder = StreamsBuilder()
    left = builder.table(topics[0], consumed=Consumed.with_(STRING, STRING), materialized=Materialized.as_("left"))
    right = builder.table(other, consumed=Consumed.with_(STRING, STRING), materialized=Materialized.as_("right"))
    joined = left.join(right, lambda one, two: one + two, foreign_key_extractor=lambda value: value[0])
    joined.to_stream().to(topics[1], Produced.with_(STRING, STRING))
    streams = builder.stream(topics[0] + "-s", Consumed.with_(STRING, STRING))
    streams.join(
        builder.stream(other + "-s", Consumed.with_(STRING, STRING)),
        lambda one, two: one + two,
        JoinWindows.of_time_difference_with_no_grace(1_000),
        stream_joined=StreamJoined.with_(STRING, STRING, STRING).with_name("joined"),
    ).to(topics[1], Produced.with_(STRING, STRING))
    spark_runner.create_topics({topics[0] + "-s": 2, other + "-s": 2})
    topology = builder.build()
    config = spark_runner.config(application, {"penstock.batch.max.bytes": 1024, "max.task.idle.ms": 60_000})
    query = InlineQuery(topology, config, spark_runner.admin)
    for turn in range(3):
        for topic in (topics[0], other, topics[0] + "-s", other + "-s"):
            rows = [
                InputRecord(
                    str(turn).encode(), (f"k{turn}{number}" + 300 * "x").encode(), 1_000 + 10 * number, number % 2
                )
                for number in range(6)
            ]
            spark_runner.write(topic, rows)
        query.run_to_end()
    query.close()
    manifests = [checkpoint_of(config).read_manifest(epoch, "") for epoch in range(1, query.epochs + 1)]
    assert any(entry.carried for each in manifests if each is not None for entry in each.tasks.values())
    assert any(each.lagging for each in manifests if each is not None)
    for epoch in range(1, query.epochs + 1):
        done = replayed(topology, config, tmp_path, epoch)
        assert done.is_same, (epoch, done.differences, [task for task in done.tasks if task.differences])
    checkpoint, first = checkpoint_of(config), next(each for each in manifests if each is not None)
    checkpoint.write_manifest(replace(first, idle_ms=None), lambda: None)
    with pytest.raises(StreamsError, match="which did not keep what its tasks waited for"):
        replayed(topology, config, tmp_path, 1)
    checkpoint.delete_manifest(1)
    with pytest.raises(StreamsError, match=r"its manifest, or the one before it, is deleted. The oldest is of epoch 2"):
        replayed(topology, config, tmp_path, 2)
    spark_runner.admin.delete_records({TopicPartition(topics[0], 0): 9})
    with pytest.raises(StreamsError, match="and the records before offset 9 are deleted"):
        replayed(topology, config, tmp_path, next(n for n in range(3, query.epochs) if reads(manifests, n, topics[0])))


def answered_by_chance(source: str, target: str, calls: Path, park: Park | None) -> Topology:
    """Return a topology whose function counts its calls in a file, and fails by chance."""
    builder = StreamsBuilder()
    answered = builder.stream(source, consumed=TEXT).map_values(
        partial(answer_by_chance, calls, 1, 0.5), named="answered", on_error=park
    )
    answered.to(target, produced=TEXT_OUT)
    return builder.build()


@pytest.mark.partitions(2, 2)
@pytest.mark.parametrize("way", ["park", "result log"])
def test_a_task_with_a_result_log_calls_no_function_again(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    tmp_path: Path,
    way: str,
) -> None:
    settings: dict[str, Any] = {"processing.exception.handler": "LogAndContinueProcessingExceptionHandler"}
    park = None
    if way == "park":
        park = Park(backoff=Backoff(3_600_000, limit=3_600_000), attempts=2)
    else:
        settings["penstock.result.log"] = True
    topology = answered_by_chance(*topics, tmp_path / "calls", park)
    config = spark_runner.config(application, settings)
    query = InlineQuery(topology, config, spark_runner.admin)
    for words in (["a", "b", "c", "d"], ["e", "f", "g", "h"]):
        spark_runner.write(topics[0], lines(words, partitions=2))
        query.run_to_end()
    made = calls_so_far(tmp_path / "calls")
    propose_later(config, query.epochs)
    done = replayed(topology, config, tmp_path / "scratch")
    assert (done.epoch, done.is_same, [task.is_logged for task in done.tasks]) == (query.epochs, True, [True, True])
    again = [value for _, each in done.output for value in each.batch.values]
    assert again
    assert Counter(again) <= Counter(each.value for each in spark_runner.read(topics[1]))
    with pytest.raises(StreamsError, match=r"the result of task 0_\d in the result log is deleted.*omit --epoch"):
        replayed(topology, config, tmp_path / "scratch", 1)
    spark_runner.write(topics[0], lines(["i", "j", "k", "l"], partitions=2))
    crashes(at="transaction.before")
    assert is_killed(query)
    unfinished = calls_so_far(tmp_path / "calls")
    assert unfinished == made + 5  # of the four records, and of the look before
    before = files(Path(config["state.dir"]))
    started = replayed(topology, config, tmp_path / "scratch")
    assert (started.epoch, started.is_committed) == (query.epochs + 1, False)
    assert [task.is_logged for task in started.tasks] == [True, True]
    assert calls_so_far(tmp_path / "calls") == unfinished + 1
    assert files(Path(config["state.dir"])) == before
    query.close()


def propose_later(config: StreamsConfig, epoch: int) -> None:
    """Propose another result of each task, as attempts do that are slower and killed before they vote."""
    results = checkpoint_of(config).results().below(f"{epoch:012d}")
    proposals = [each.name for each in results.find("") if ".proposal." in each.name]
    assert proposals
    for name in proposals:
        before, _, digest = name.rpartition(".")
        results.write(f"{before}.{'0' * len(digest)}", b"late")


def reads(manifests: list[Manifest | None], epoch: int, topic: str) -> bool:
    """Return whether an epoch reads the first partition of a topic."""
    before, after = manifests[epoch - 2], manifests[epoch - 1]
    assert before is not None
    assert after is not None
    return after.offsets[topic][0] > before.offsets[topic][0]
