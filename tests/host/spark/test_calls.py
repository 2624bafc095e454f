"""Calls on Spark: each answer is used once, whatever ends and begins again. Spark's part is played in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pytest

from penstock import (
    Calls,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
    savepoints,
)
from penstock.errors import MissingInternalTopicError, StreamsError
from penstock.host.api import Host
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.task_segments import read_segment
from penstock.host.spark.driver.replaying import EpochReplay
from penstock.host.spark.driver.resetting import planned_reset
from penstock.host.spark.planner import call_reports, call_stores
from penstock.host.spark.planner.call_reports import CALLS_FILE, read_call_reports
from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.metrics.host_metrics import streams_metrics
from penstock.plan.partitioning import partition_for
from penstock.record import TopicPartition
from penstock.state.segments import Segment, SegmentInfo
from tests.host.calling_service import STRING, TEXT, TEXTS, Service, ask, asking
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import ON_CONNECT, ON_SPARK, InputRecord, OutputRecord, Runner, wait_for
from tests.support.call_answers import first_results

pytestmark = [pytest.mark.one_broker, pytest.mark.usefixtures("service")]

KEYS = "abcdef"


class Asking(Processor[str, str, str, str]):
    """Asks for each record, and marks an answer that it gets again."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._answers = context.get_state_store("answers")

    def process(self, record: Record[str, str]) -> None:
        self.context.call(ask, record.value)

    def answered(self, record: Record[str, str], answer: str) -> None:
        before = self._answers.get(record.value)
        self._answers.put(record.value, answer)
        self.context.forward(record.with_value(answer if before is None else f"again: {answer}"))


def asking_in_a_processor(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_store_builder(Stores.persistent_key_value_store("answers"), STRING, STRING)
    )
    stream = builder.stream(source, TEXT)
    stream.process(Asking, "answers", named="ask", calls=Calls(), call_functions=(ask,)).to(target, TEXTS)
    return builder.build()


def rows(first: int, count: int, partitions: int) -> list[InputRecord]:
    """Return `count` records from the number `first` on, of the keys by turns, each in the partition of its key."""
    return [
        InputRecord(key, b"%s%d" % (key, number), 1_000 + number, partition_for(key, partitions))
        for number in range(first, first + count)
        for key in [KEYS[number % len(KEYS)].encode()]
    ]


def asked(records: list[OutputRecord]) -> dict[str, list[str]]:
    """Return the values that were asked for, by key in the order of the output."""
    found: dict[str, list[str]] = {}
    for record in records:
        assert record.key is not None
        assert record.value is not None
        found.setdefault(record.key.decode(), []).append(record.value.decode().partition(" ")[0])
    return found


def expected(count: int) -> dict[str, list[str]]:
    return {key: [f"{key}{n}" for n in range(count) if KEYS[n % len(KEYS)] == key] for key in KEYS[: min(count, 6)]}


def run_to_last_answer(query: InlineQuery, runner: SparkRunner, target: str, count: int) -> list[OutputRecord]:
    """Run epochs until there are `count` records of output; return them."""

    def has_come() -> bool:
        query.run_to_end()
        return len(runner.read(target)) >= count

    wait_for(has_come)
    return runner.read(target)


def first_answers(runner: SparkRunner, topic: str) -> set[str]:
    """Return the first answer for each record."""
    return {*first_results([(record.partition, record.value) for record in runner.read(topic)], topic)}


def check_each_answer_is_used_once(
    spark_runner: SparkRunner, query: InlineQuery, application: str, topics: tuple[str, str]
) -> None:
    """Run a query that asks for 48 records to its end over kills, and check that each first answer is used once."""
    for part in range(4):
        spark_runner.write(topics[0], rows(part * 12, 12, 2))
        run_to_end_over_kills(query)

    def has_come() -> bool:
        run_to_end_over_kills(query)
        return len(spark_runner.read(topics[1])) >= 48

    wait_for(has_come)
    output = spark_runner.read(topics[1])
    assert asked(output) == expected(48)
    used = {record.value.decode() for record in output if record.value is not None}
    assert used == first_answers(spark_runner, f"{application}-ask-answers")


@pytest.mark.partitions(2, 2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("build", [asking, asking_in_a_processor])
def test_each_answer_is_used_once_whatever_fails_when(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    build: Callable[..., Topology],
    seed: int,
) -> None:
    query = InlineQuery(build(*topics), spark_runner.config(application), spark_runner.admin)
    installed = crashes(seed, 0.1, 20)
    check_each_answer_is_used_once(spark_runner, query, application, topics)
    assert sum(installed.struck.values()) >= 5
    query.close()


@pytest.mark.partitions(1, 1)
def test_calls_without_an_answer_are_made_again_after_a_kill(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    query = InlineQuery(asking(*topics), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 2, 1))
    query.run_to_end()
    wait_for(lambda: sum(service.calls.values()) == 2)
    query.restart()
    query.run_to_end()
    wait_for(lambda: sum(service.calls.values()) == 4)
    service.is_up = True
    found = run_to_last_answer(query, spark_runner, topics[1], 2)
    assert [each.value for each in found] == [b"a0 2", b"b1 2"]
    query.close()


@pytest.mark.partitions(1, 1)
def test_a_full_store_after_a_repartition_stops_the_input(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    calls = Calls(max_records=2, order="partition")
    builder = StreamsBuilder()
    repartitioned = builder.stream(topics[0], TEXT).repartition()
    repartitioned.map_values(ask, named="ask", calls=calls).to(topics[1], TEXTS)
    config = spark_runner.config(application, {"default.key.serde": STRING, "default.value.serde": STRING})
    query = InlineQuery(builder.build(), config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 5, 1))
    query.run_to_end()
    spark_runner.write(topics[0], rows(5, 3, 1))
    query.run_to_end()
    wait_for(lambda: sum(service.calls.values()) == 2)
    assert not query.epoch()
    assert len(spark_runner.store(config, "ask-calls")) == 2
    service.is_up = True
    found = run_to_last_answer(query, spark_runner, topics[1], 8)
    assert [each.value for each in found] == [b"%s%d 1" % (KEYS[n % 6].encode(), n) for n in range(8)]
    query.close()


@pytest.mark.partitions(1, 1)
def test_commits_of_other_stores_are_not_read_for_calls(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def counting(checkpoint: Checkpoint, task: str, info: SegmentInfo, stores: Collection[str]) -> Segment:
        read.append(info.id)
        return read_segment(checkpoint, task, info, stores)

    monkeypatch.setattr(call_stores, "read_segment", counting)
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], TEXT)
    stream.to_table(materialized=Materialized.as_("last"))
    stream.filter(lambda key, value: key == "a").map_values(ask, named="ask", calls=Calls()).to(topics[1], TEXTS)
    config = spark_runner.config(application, {"default.key.serde": STRING, "default.value.serde": STRING})
    query = InlineQuery(builder.build(), config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 6, 1))
    run_to_last_answer(query, spark_runner, topics[1], 1)
    query.run_to_end()
    count, epochs = len(read), query.epochs
    for number in (7, 8, 9):
        spark_runner.write(topics[0], rows(number, 1, 1))
        query.run_to_end()
    assert (len(read), query.epochs) == (count, epochs + 3)
    spark_runner.write(topics[0], rows(12, 1, 1))
    run_to_last_answer(query, spark_runner, topics[1], 2)
    query.run_to_end()
    assert len(read) == count + 2  # the commits with the record and with its answer
    query.close()


@pytest.mark.partitions(2, 1)
def test_a_run_to_the_end_waits_for_all_answers(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    query = InlineQuery(asking(*topics), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 12, 2))
    query.restart(until_end=True)
    query.run_to_end()
    assert asked(spark_runner.read(topics[1])) == expected(12)
    query.close()


@pytest.mark.partitions(1, 1)
def test_the_end_of_a_query_reports_its_last_calls(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_reports, "EVERY_MS", 3_600_000)
    query = InlineQuery(asking(*topics), spark_runner.config(application), spark_runner.admin)
    mailbox = Mailbox(query.description.control_directory)
    mailbox.create()
    spark_runner.write(topics[0], rows(0, 3, 1))
    run_to_last_answer(query, spark_runner, topics[1], 3)
    query.close()
    _, reports = read_call_reports(mailbox.read(CALLS_FILE), 0)
    assert sum(figures["ask"].answered for figures in reports if "ask" in figures) == 3


@pytest.mark.partitions(1, 1)
def test_a_raised_limit_counts_from_the_start_of_a_run(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    config = spark_runner.config(application)
    query = InlineQuery(asking(*topics, calls=Calls(max_records=2)), config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 2, 1))
    query.run_to_end()
    spark_runner.write(topics[0], rows(2, 4, 1))
    query.run_to_end()
    wait_for(lambda: sum(service.calls.values()) == 2)
    query.change(asking(*topics, calls=Calls(max_records=100)))
    query.run_to_end()
    wait_for(lambda: sum(service.calls.values()) == 8)  # the first two are made again
    service.is_up = True
    assert asked(run_to_last_answer(query, spark_runner, topics[1], 6)) == expected(6)
    query.close()


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("exists", [False, True])
def test_a_run_to_the_end_fails_without_its_answers_topic(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service, exists: bool
) -> None:
    service.is_up = False
    query = InlineQuery(asking(*topics), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 3, 1))
    query.restart(until_end=True)
    query.epoch()
    answers = f"{application}-ask-answers"
    spark_runner.admin.delete_topics([answers])
    wait_for(lambda: answers not in spark_runner.admin.topics())
    if exists:
        spark_runner.create_topics({answers: 1})
    error = failure_of(query.run_to_end)
    assert isinstance(error, MissingInternalTopicError)
    assert f"{answers} (the answers of ask)" in str(error)
    service.is_up = True
    query.restart(until_end=True)
    query.run_to_end()
    assert asked(spark_runner.read(topics[1])) == expected(3)
    query.close()


@pytest.mark.partitions(2, 1)
def test_another_host_could_continue_with_changelog_topics(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service
) -> None:
    config = spark_runner.config(application, {"penstock.changelog.topics": True})
    query = InlineQuery(asking(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 6, 2))
    run_to_last_answer(query, spark_runner, topics[1], 6)
    query.restart()
    spark_runner.write(topics[0], rows(6, 6, 2))
    assert asked(run_to_last_answer(query, spark_runner, topics[1], 12)) == expected(12)
    answers = [TopicPartition(f"{application}-ask-answers", number) for number in range(2)]
    committed = spark_runner.admin.committed_offsets(application, answers)
    assert {each: found.offset for each, found in committed.items()} == spark_runner.admin.end_offsets(answers)
    assert set(service.calls.values()) == {1}
    query.close()


@pytest.mark.partitions(2, 1)
def test_a_replay_of_an_epoch_makes_no_calls(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service, tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    topology = asking(*topics)
    query = InlineQuery(topology, config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 6, 2))
    run_to_last_answer(query, spark_runner, topics[1], 6)
    made = service.calls.copy()
    for epoch in (1, query.epochs):
        replay = EpochReplay(topology.build(application), config, tmp_path / str(epoch), epoch).run()
        assert replay.differences == ()
    assert service.calls == made
    query.close()


@pytest.mark.partitions(1, 1)
def test_a_replay_of_an_epoch_names_deleted_answers(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    config = spark_runner.config(application, {"repartition.purge.interval.ms": 0})
    topology, answers = asking(*topics), TopicPartition(f"{application}-ask-answers", 0)
    query = InlineQuery(topology, config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 1, 1))
    run_to_last_answer(query, spark_runner, topics[1], 1)
    used = query.epochs
    spark_runner.write(topics[0], rows(6, 1, 1))
    run_to_last_answer(query, spark_runner, topics[1], 2)
    wait_for(lambda: spark_runner.admin.beginning_offsets([answers])[answers] > 0)
    with pytest.raises(
        StreamsError, match=f"has read {answers} from offset 0, and the records before offset 2 are deleted"
    ):
        EpochReplay(topology.build(application), config, tmp_path / "replay", used).run()
    query.close()


@pytest.mark.partitions(3, 1)
def test_waiting_records_are_called_by_the_tasks_of_their_keys_after_a_re_partitioning(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    service: Service,
    tmp_path: Path,
) -> None:
    service.is_up = False
    config = spark_runner.config(application)
    query = InlineQuery(asking(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 12, 3))
    query.run_to_end()
    wait_for(lambda: sum(service.calls.values()) == 6)  # the first of each key
    query.close()
    savepoints.take(config, str(tmp_path / "saved"))
    spark_runner.add_partitions(topics[0], 5)
    other = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "other")})
    savepoints.restore(str(tmp_path / "saved"), other, 5)
    waiting = spark_runner.store_by_task(other, "ask-calls")
    assert {task: len(entries) for task, entries in waiting.items() if entries} == {
        f"0_{partition}": 2 * sum(partition_for(key.encode(), 5) == partition for key in KEYS)
        for partition in {partition_for(key.encode(), 5) for key in KEYS}
    }
    service.is_up = True
    continued = InlineQuery(asking(*topics), other, spark_runner.admin)
    assert spark_runner.admin.topics()[f"{application}-ask-answers"] == 5
    assert asked(run_to_last_answer(continued, spark_runner, topics[1], 12)) == expected(12)
    continued.close()


@pytest.mark.partitions(1, 1)
def test_a_restored_savepoint_uses_the_answers_that_have_come_since(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service, tmp_path: Path
) -> None:
    service.is_up = False
    config = spark_runner.config(application)
    query = InlineQuery(asking(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 3, 1))
    query.run_to_end()
    savepoints.take(config, str(tmp_path / "saved"))
    service.is_up = True
    run_to_last_answer(query, spark_runner, topics[1], 3)
    query.close()
    other = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "other")})
    savepoints.restore(str(tmp_path / "saved"), other)
    continued = InlineQuery(asking(*topics), other, spark_runner.admin)
    found = run_to_last_answer(continued, spark_runner, topics[1], 6)
    assert [each.value for each in found] == [b"a0 1", b"b1 1", b"c2 1"] * 2
    assert set(service.calls.values()) == {1}
    continued.close()


@pytest.mark.partitions(1, 1)
def test_answers_that_are_lost_are_asked_for_again(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service
) -> None:
    query = InlineQuery(asking(*topics), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 2, 1))
    assert query.epoch()
    assert not query.epoch()
    answers = TopicPartition(f"{application}-ask-answers", 0)
    wait_for(lambda: spark_runner.admin.end_offsets([answers])[answers] == 2)
    query.close()
    spark_runner.admin.delete_topics([answers.topic])
    wait_for(lambda: answers.topic not in spark_runner.admin.topics())
    query.restart()
    found = run_to_last_answer(query, spark_runner, topics[1], 2)
    assert [each.value for each in found] == [b"a0 2", b"b1 2"]
    query.close()


@pytest.mark.partitions(2, 1)
def test_a_reset_deletes_the_answers(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(asking(*topics), config, spark_runner.admin)
    query.close()
    plan = planned_reset(asking(*topics).build(application), config, spark_runner.admin.topics())
    assert f"{application}-ask-answers" in plan.topics


async def noted(made: str, value: str) -> str:
    """Note the call in a file, which each process reaches."""
    with Path(made).open("a") as file:
        file.write(f"{value}\n")
    await asyncio.sleep(0.01)
    return f"{value} 1"


def noting(source: str, target: str, made: Path) -> Topology:
    builder = StreamsBuilder()
    asked = builder.stream(source, TEXT).map_values(partial(noted, str(made)), named="ask", calls=Calls(capacity=5))
    asked.to(target, TEXTS)
    return builder.build()


def has_output(runner: Runner, topic: str, count: int) -> bool:
    return len(runner.read(topic)) >= count


def has_answered(host: Host) -> bool:
    """Return whether the metrics count the answers for 24 records."""
    metrics = streams_metrics("me", {}, host.statistics(), host.measured())
    answered = [metric.metric_value for name, metric in metrics.items() if name.name == "calls-answered-total"]
    return answered == [24]


@pytest.mark.parametrize("runner", [ON_SPARK, ON_CONNECT], indirect=True)
@pytest.mark.partitions(2, 2)
def test_an_application_on_spark_uses_each_answer_once(
    runner: Runner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    made = tmp_path / "made"
    topology, config = noting(*topics, made), runner.config(application)
    for part in range(2):
        count = 24 * (part + 1)
        with runner.running(topology, config) as host:
            runner.write(topics[0], rows(part * 24, 24, 2))
            wait_for(partial(has_output, runner, topics[1], count))
            wait_for(partial(has_answered, host))
    assert asked(runner.read(topics[1])) == expected(48)
    assert sorted(made.read_text().split()) == sorted(value for values in expected(48).values() for value in values)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.partitions(2, 2)
def test_an_application_on_spark_that_ends_at_the_end_has_all_answers(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    spark_runner.write(topics[0], rows(0, 24, 2))
    ended = spark_runner.run(noting(*topics, tmp_path / "made"), spark_runner.config(application))
    assert asked(spark_runner.read(topics[1])) == expected(24)
    assert (ended.statistics.records_in, ended.statistics.answers_in) == (24, 24)
