"""The life of an instance: assignment, commits, errors, the end; played without threads and without brokers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized, Produced
from penstock.errors import (
    BrokerNotFoundError,
    LockError,
    OffsetOutOfRangeError,
    StreamsError,
    UnstableOffsetCommitError,
)
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.deployment.layout import Layout
from penstock.host.threads import vocabulary as v
from penstock.host.threads.changelog_reader import ChangelogReader, RestoreStoppedError
from penstock.host.threads.phases import Phase
from penstock.host.threads.restoring import StateOpener
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorContext, PunctuationType, Record
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.serdes import Serdes
from penstock.state.api import Base
from penstock_broker.common.clock import MockClock
from tests.host.threads.inline import InlineInstance, KeptBase
from tests.host.threads.memory_broker import MemoryBroker

CONFIG = StreamsConfig(
    {
        "application.id": "app",
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.string(),
        "penstock.restart.backoff.ms": 100,
    },
    environment={},
)
IN = TopicPartition("in", 0)


def word_count(split: Callable[[str], list[str]] = str.split) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in").flat_map_values(split)
    counts = words.group_by(lambda _, word: word).count()
    counts.to_stream().to("out", Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


def lines(*values: str) -> RecordBatch:
    return RecordBatch.of([(None, value.encode(), time, 0, ()) for time, value in enumerate(values)])


class Play:
    """Topics, a disk and a clock, and instances over them."""

    def __init__(self, partitions: int = 1) -> None:
        self.broker = MemoryBroker({"in": partitions, "out": 1})
        self.clock = MockClock(1_000)
        self.disk: dict[TaskId, Base] = {}

    def instance(self, topology: Topology | None = None, **options: Any) -> InlineInstance:
        return InlineInstance(topology or word_count(), CONFIG, self.broker, self.clock, bases=self.disk, **options)

    def write(self, *values: str, partition: int = 0) -> None:
        self.broker.append([PartitionBatch("in", partition, lines(*values))])

    def output(self) -> list[tuple[str, int]]:
        """Return words and counts in the order of the output."""
        out = TopicPartition("out", 0)
        if not self.broker.end(out):
            return []
        batch = self.broker.read(out, 0, self.broker.end(out))
        return [(key.decode(), int.from_bytes(value)) for key, value in zip(batch.keys, batch.values, strict=True)]

    def counts(self) -> dict[str, int]:
        """Return the last count of each word in the output."""
        return dict(self.output())


def test_all_tasks_are_opened_and_the_application_learns_that_they_run() -> None:
    instance = Play(partitions=2).instance()
    instance.run()
    assert instance.told == [v.TellRunning]
    assert len(instance.layout.groups) == 4


def test_nothing_is_committed_before_its_interval_but_output_is_sent_before() -> None:
    play = Play()
    instance = play.instance(commit_interval_ms=500, records_at_once=10)
    instance.run()
    play.clock.advance(600)
    play.write("a b a")
    instance.run()
    repartition = next(p for p in instance.layout.readers if p.topic.endswith("-repartition"))
    assert play.broker.end(repartition) == 3
    assert play.broker.committed[IN].offset == 0
    play.clock.advance(500)
    instance.run()
    assert play.counts() == {"a": 2, "b": 1}
    assert {place: each.offset for place, each in play.broker.committed.items()} == {IN: 1, repartition: 3}
    assert instance.purged == {repartition: 3}  # nobody else reads them


def test_an_instance_goes_on_from_its_disk_and_one_without_from_the_changelogs() -> None:
    play = Play()
    play.instance().run()
    for disk in ({}, play.disk):
        play.disk = disk
        play.write("a b", "a")
        play.instance().run()
    play.write("a")
    instance = play.instance()
    fetched: list[TopicPartition] = []
    fetch = play.broker.fetch
    play.broker.fetch = lambda partition, *rest: (fetched.append(partition), fetch(partition, *rest))[1]  # type: ignore[assignment, func-returns-value, method-assign]  # it tells what is restored
    instance.run()
    assert play.counts() == {"a": 5, "b": 2}
    assert fetched == []


@pytest.mark.parametrize(
    ("settings", "commits"),
    [
        ({"enable.transactional.statestores": True}, False),
        ({"enable.transactional.statestores": True, "statestore.uncommitted.max.bytes": 1_000}, True),
        ({"enable.transactional.statestores": True, "statestore.uncommitted.max.bytes": 0}, False),
        ({"enable.transactional.statestores": True, "statestore.uncommitted.max.bytes": -1}, False),
        ({"statestore.uncommitted.max.bytes": 1_000}, False),
    ],
)
def test_many_uncommitted_bytes_of_all_tasks_bring_the_commit_forward(
    settings: Mapping[str, Any], commits: bool
) -> None:
    play = Play(partitions=3)
    config = CONFIG.overridden({"statestore.cache.max.bytes": 0, **settings})
    instance = InlineInstance(
        word_count(), config, play.broker, play.clock, bases=play.disk, commit_interval_ms=30_000, records_at_once=100
    )
    instance.run()
    for number in range(12):
        play.write(f"word{number}", partition=number % 3)
        instance.run()
    assert any(each.offset for each in play.broker.committed.values()) is commits


def test_what_was_not_committed_is_done_again_from_the_last_commit() -> None:
    play = Play()
    first = play.instance(commit_interval_ms=10_000)
    first.run()
    play.write("a b")
    first.run()  # and is killed: the changes of its stores are lost, and its input is read again
    play.instance().run()
    assert play.counts()["b"] in (1, 2)  # at least once: the repartition topic has the word twice
    assert play.broker.committed[IN].offset == 1


def failing_once(word: str, error: Exception) -> Callable[[str], list[str]]:
    left = [error]

    def split(line: str) -> list[str]:
        if word in line and left:
            raise left.pop()
        return line.split()

    return split


def test_an_error_ends_the_instance_without_a_commit_unless_tasks_are_to_be_replaced() -> None:
    play = Play()
    instance = play.instance(word_count(failing_once("x", ValueError("x"))))
    instance.run()
    play.write("a")
    instance.run()
    play.write("x")
    with pytest.raises(StreamsError, match="topic=in, partition=0, offset=1"):
        instance.run()
    assert instance.instance.phase is Phase.ENDED
    assert play.broker.committed[IN].offset == 1


def test_a_function_that_ends_the_program_is_an_error_of_its_task() -> None:
    play = Play()

    def split(line: str) -> list[str]:
        sys.exit(line)

    instance = play.instance(word_count(split))
    instance.run()
    play.write("x")
    with pytest.raises(StreamsError, match=r"A function of task 0_0 raised SystemExit\('x'\)\. .*call close\(\)"):
        instance.run()
    assert play.broker.committed[IN].offset == 0


def test_tasks_that_are_replaced_go_on_behind_a_wait_from_the_last_commit() -> None:
    play = Play()
    topology = word_count(failing_once("x", ValueError("x")))
    instance = play.instance(topology, response=StreamThreadExceptionResponse.REPLACE_THREAD)
    instance.run()
    play.write("a")
    instance.run()
    play.write("x a")
    instance.run()
    assert instance.instance.phase is Phase.WAITING
    assert play.counts() == {"a": 1}
    play.clock.advance(100)
    instance.run()
    assert play.counts() == {"a": 2, "x": 1}
    assert instance.told == [v.TellRunning, v.TellRebalancing, v.TellRunning]


def test_a_close_does_not_wait_until_tasks_would_be_opened_again() -> None:
    play = Play()
    topology = word_count(failing_once("x", ValueError("x")))
    instance = play.instance(topology, response=StreamThreadExceptionResponse.REPLACE_THREAD)
    instance.run()
    play.write("x")
    instance.run()
    assert instance.instance.phase is Phase.WAITING
    instance.close()


@pytest.mark.parametrize(
    "also",
    [v.MembershipLost(StreamsError("lost")), v.TransactionLost(StreamsError("lost"), is_fenced=False)],
    ids=["membership", "transaction"],
)
def test_the_handler_is_asked_once_about_an_error_whatever_is_lost_while_it_decides(also: v.Event) -> None:
    instance = restoring(Play(), response=StreamThreadExceptionResponse.REPLACE_THREAD)
    error = StreamsError("the consumer failed")
    instance.tell(v.Failed(error))
    instance.tell(also)
    instance.run()
    assert instance.asked == [error]
    assert instance.instance.phase is Phase.WAITING


def test_an_error_that_shuts_down_the_application_ends_the_instance_when_the_group_has_heard() -> None:
    play = Play()
    topology = word_count(failing_once("x", ValueError("x")))
    instance = play.instance(topology, response=StreamThreadExceptionResponse.SHUTDOWN_APPLICATION)
    instance.run()
    play.write("x")
    with pytest.raises(StreamsError, match="topic=in, partition=0, offset=0"):
        instance.run()
    assert instance.instance.phase is Phase.ENDED
    assert instance.instance.next_due_ms() is None
    assert instance.shut_downs == 1


def test_an_instance_whose_group_does_not_hear_that_it_shuts_down_ends_alone_after_a_time() -> None:
    play = Play()
    topology = word_count(failing_once("x", ValueError("x")))
    instance = play.instance(topology, response=StreamThreadExceptionResponse.SHUTDOWN_APPLICATION)
    instance.group_hears = False
    instance.run()
    play.write("x")
    instance.run()
    instance.tell(v.MembershipLost(StreamsError("lost")))
    instance.tell(v.Failed(StreamsError("no coordinator")))
    instance.run()
    assert instance.instance.phase is Phase.TELLING
    play.clock.advance(10_000)
    with pytest.raises(StreamsError, match="topic=in, partition=0, offset=0"):
        instance.run()


def test_an_application_that_another_instance_shuts_down_ends_behind_a_commit() -> None:
    play = Play()
    instance = play.instance(commit_interval_ms=60_000)
    instance.run()
    play.write("a")
    instance.run()
    assert IN not in play.broker.committed
    instance.tell(v.ApplicationShutDown(StreamsError("shut down by another")))
    with pytest.raises(StreamsError, match="shut down by another"):
        instance.run()
    assert play.broker.committed[IN].offset == 1
    assert play.counts() == {"a": 1}


def test_an_application_that_is_shut_down_while_it_restarts_ends_with_the_error_of_the_other() -> None:
    play = Play()
    topology = word_count(failing_once("x", ValueError("x")))
    instance = play.instance(topology, response=StreamThreadExceptionResponse.REPLACE_THREAD)
    instance.run()
    play.write("x")
    instance.run()
    assert instance.instance.phase is Phase.WAITING
    instance.tell(v.ApplicationShutDown(StreamsError("shut down by another")))
    play.clock.advance(100)
    with pytest.raises(StreamsError, match="shut down by another"):
        instance.run()


def test_restarts_without_a_commit_between_them_end() -> None:
    def split(line: str) -> list[str]:
        raise ValueError(line)

    play = Play()
    instance = play.instance(word_count(split), response=StreamThreadExceptionResponse.REPLACE_THREAD)
    instance.run()
    play.write("x")
    for _ in range(CONFIG["penstock.restart.max.attempts"]):
        instance.run()
        assert instance.instance.phase is Phase.WAITING
        play.clock.advance(CONFIG["penstock.restart.backoff.max.ms"])
    with pytest.raises(StreamsError):
        instance.run()


def test_tasks_that_fail_together_are_one_failure() -> None:
    play = Play()
    instance = play.instance(response=StreamThreadExceptionResponse.REPLACE_THREAD)
    instance.holds_restores = True
    instance.run()
    for _ in range(CONFIG["penstock.restart.max.attempts"]):
        for task in instance.held_restores:
            instance.tell(v.Failed(StreamsError("no broker answers"), task))
        instance.held_restores.clear()
        instance.run()
        assert instance.instance.phase is Phase.WAITING
        play.clock.advance(CONFIG["penstock.restart.backoff.max.ms"])
        instance.run()
        assert sorted(instance.held_restores) == sorted(instance.layout.groups)


def test_what_brokers_do_not_serve_is_tried_again_until_the_timeout_of_tasks() -> None:
    play = Play()
    instance = play.instance()
    instance.holds_restores = True
    instance.run()
    for _ in range(300):
        assert sorted(instance.held_restores) == sorted(instance.layout.groups)
        for task in instance.held_restores:
            instance.tell(v.Failed(BrokerNotFoundError("no broker answers"), task))
        instance.held_restores.clear()
        instance.run()
        assert instance.instance.phase is Phase.RUNNING
        play.clock.advance(1_000)
        instance.run()
    for task in instance.held_restores:
        instance.tell(v.Failed(BrokerNotFoundError("no broker answers"), task))
    with pytest.raises(BrokerNotFoundError):
        instance.run()


def test_a_restore_that_brokers_do_not_serve_is_tried_again_while_other_tasks_go_on() -> None:
    play = Play(partitions=2)
    instance = play.instance()
    instance.run()
    tasks = frozenset(instance.layout.groups)
    moved = TaskId(0, 1)
    instance.tell(v.Assigned(tasks - {moved}))
    instance.run()
    instance.holds_restores = True
    instance.tell(v.Assigned(tasks))
    instance.run()
    for words in ("a", "a a"):
        assert instance.held_restores == [moved]
        instance.held_restores.clear()
        instance.tell(v.Failed(UnstableOffsetCommitError("a transaction is open"), moved))
        play.write(words)
        instance.run()
        assert instance.held_restores == []
        play.clock.advance(100)
        instance.run()
    assert play.output() == [("a", 1), ("a", 2), ("a", 3)]
    instance.holds_restores = False
    instance.held_restores.clear()
    instance.tell(v.Failed(UnstableOffsetCommitError("a transaction is open"), moved))
    instance.run()
    play.clock.advance(100)
    play.write("b", partition=1)
    instance.run()
    assert play.counts() == {"a": 3, "b": 1}
    assert instance.asked == []


def test_an_error_of_a_start_ends_the_instance() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out", Produced.with_(Serdes.string(), Serdes.string()))
    config = StreamsConfig({"application.id": "app"}, environment={})
    play = Play()
    with pytest.raises(StreamsError):
        InlineInstance(builder.build(), config, play.broker, play.clock).run()


def test_a_close_commits_and_closes() -> None:
    play = Play()
    instance = play.instance(commit_interval_ms=10_000)
    instance.run()
    play.write("a b a")
    instance.run()
    instance.close()
    assert play.broker.committed[IN].offset == 1
    play.instance().run()
    assert play.counts() == {"a": 2, "b": 1}


def test_a_paused_instance_processes_nothing_until_it_goes_on() -> None:
    play = Play()
    instance = play.instance()
    instance.run()
    instance.tell(v.PauseRequested())
    play.write("a")
    instance.run()
    assert play.counts() == {}
    instance.tell(v.ResumeRequested())
    instance.run()
    assert play.counts() == {"a": 1}


def test_a_task_that_another_instance_gets_is_given_up_behind_a_commit() -> None:
    play = Play(partitions=2)
    instance = play.instance(commit_interval_ms=10_000)
    instance.run()
    play.write("a", partition=1)
    instance.run()
    kept = frozenset(task for task in instance.layout.groups if task != TaskId(0, 1))
    instance.tell(v.Assigned(kept))
    instance.run()
    assert play.broker.committed[TopicPartition("in", 1)].offset == 1
    assert instance.given_up == [TaskId(0, 1)]
    play.write("b", partition=1)
    instance.run()
    assert play.broker.committed[TopicPartition("in", 1)].offset == 1
    instance.tell(v.Assigned(kept | {TaskId(0, 1)}))
    instance.run()
    instance.close()
    assert play.broker.committed[TopicPartition("in", 1)].offset == 2


def test_a_member_that_was_counted_out_drops_its_tasks_without_a_commit() -> None:
    play = Play()
    instance = play.instance(commit_interval_ms=10_000)
    instance.run()
    play.write("a")
    instance.run()
    instance.tell(v.MembershipLost(StreamsError("the session has ended")))
    instance.run()
    assert play.broker.committed == {}
    instance.tell(v.Assigned(frozenset(instance.layout.groups)))
    instance.run()
    instance.close()
    assert play.broker.committed[IN].offset == 1


@pytest.mark.parametrize("exactly_once", [False, True])
def test_an_instance_that_the_group_refuses_gives_up_its_tasks_and_the_handler_decides(exactly_once: bool) -> None:
    play = Play()
    replace = StreamThreadExceptionResponse.REPLACE_THREAD
    instance = play.instance(commit_interval_ms=10_000, response=replace, exactly_once=exactly_once)
    instance.run()
    play.write("a")
    instance.run()
    error = StreamsError("not allowed")
    instance.tell(v.MembershipRefused(error))
    instance.run()
    assert (instance.asked, play.broker.committed) == ([error], {})
    assert sorted(instance.given_up) == sorted(instance.layout.groups)  # else it would not join again
    play.clock.advance(100)
    instance.run()
    assert instance.told == [v.TellRunning]  # without tasks
    instance.tell(v.Assigned(frozenset(instance.layout.groups)))
    instance.run()
    instance.close()
    assert play.broker.committed[IN].offset == 1


def test_an_instance_that_was_cut_off_goes_on_with_what_it_has_not_committed() -> None:
    play = Play()
    instance = play.instance(commit_interval_ms=500)
    instance.run()
    play.write("a b")
    instance.run()
    instance.tell(v.SessionTimedOut())
    play.write("a")
    play.clock.advance(60_000)
    instance.run()
    assert instance.instance.next_due_ms() is None
    assert play.broker.committed == {}
    instance.tell(v.Reconnected())
    instance.run()
    play.clock.advance(500)
    instance.run()
    assert play.broker.committed[IN].offset == 2
    assert play.output() in ([("a", 1), ("b", 1), ("a", 2)], [("a", 2), ("b", 1)])
    assert instance.told == [v.TellRunning]


def test_a_task_that_is_lost_while_it_is_closed_is_given_up_too() -> None:
    play = Play()
    replace = StreamThreadExceptionResponse.REPLACE_THREAD
    instance = play.instance(word_count(failing_once("x", ValueError("x"))), response=replace)
    instance.run()
    play.write("x")
    instance.run()
    assert instance.given_up == []
    instance.tell(v.MembershipLost(StreamsError("the session has ended")))
    play.clock.advance(100)
    instance.run()
    assert sorted(instance.given_up) == sorted(instance.layout.groups)


def test_an_instance_ends_at_the_planned_end_with_all_that_follows_from_it() -> None:
    play = Play()
    play.write("a b", "a")
    instance = play.instance(commit_interval_ms=10_000, until={IN: 2})
    instance.run()
    assert instance.instance.phase is Phase.ENDED
    assert play.counts() == {"a": 2, "b": 1}


def test_an_instance_ends_though_a_punctuation_is_due_again_and_again() -> None:
    play = Play()

    class Busy(Processor[str, str, str, str]):
        """Has a timer that is due again whenever it, or a record, has been processed."""

        def init(self, context: ProcessorContext[str, str]) -> None:
            context.schedule(1, PunctuationType.WALL_CLOCK_TIME, lambda _: play.clock.advance(2))

        def process(self, record: Record[str, str]) -> None:
            play.clock.advance(2)

    builder = StreamsBuilder()
    builder.stream("in").process(Busy)
    play.write("a", "b")
    instance = play.instance(builder.build(), commit_interval_ms=10_000, records_at_once=2, until={IN: 2})
    instance.run()
    assert instance.instance.phase is Phase.ENDED
    assert play.broker.committed[IN].offset == 2


def test_a_transaction_that_is_refused_is_done_again_from_the_last_commit() -> None:
    play = Play()
    instance = play.instance(exactly_once=True)
    instance.run()
    play.write("a b")
    instance.refusals.append(v.TransactionLost(StreamsError("counted out"), is_fenced=False))
    instance.run()
    assert play.counts() == {"a": 1, "b": 1}
    assert instance.told == [v.TellRunning, v.TellRebalancing, v.TellRunning]


def test_global_stores_are_committed_without_a_transaction_also_while_the_instance_is_no_member() -> None:
    play = Play()
    play.broker.create_topic("names", 1)
    builder = StreamsBuilder()
    names = builder.global_table("names", materialized=Materialized.as_("names"))
    builder.stream("in").join(names, lambda value, name: name, key_selector=lambda _, value: value).to("out")
    instance = play.instance(builder.build(), exactly_once=True)
    instance.run()
    instance.tell(v.MembershipLost(StreamsError("the session has ended")))
    instance.run()
    instance.refusals.append(v.TransactionLost(StreamsError("no member"), is_fenced=False))
    told = list(instance.told)
    play.broker.append([PartitionBatch("names", 0, RecordBatch.of([(b"a", b"Ann", 0, 0, ())]))])
    instance.run()
    assert len(instance.refusals) == 1
    assert instance.told == told  # the task was not opened again
    [(_, entry)] = play.disk[v.GLOBAL_TASK].view("names").range(None, None, False)
    assert entry.endswith(b"Ann")


def test_an_instance_that_is_fenced_twice_in_a_minute_shares_its_directory() -> None:
    play = Play()
    instance = play.instance(exactly_once=True)
    instance.run()
    for _ in range(2):
        play.write("a")
        instance.refusals.append(v.TransactionLost(StreamsError("fenced"), is_fenced=True))
        instance.run()
        play.clock.advance(60_001)
    play.write("a")
    instance.refusals += [v.TransactionLost(StreamsError("fenced"), is_fenced=True)] * 2
    with pytest.raises(LockError, match="copies of one state directory"):
        instance.run()


LINES = ("a b", "c a c", "b")
STEPS = st.sampled_from([*LINES, "run", "commit", "kill", "lose the disk", "refuse", "fail"])


@given(st.lists(STEPS, min_size=10, max_size=40), st.integers(1, 5))
def test_each_word_is_counted_once_whatever_happens(steps: list[str], records_at_once: int) -> None:
    play = Play(partitions=2)
    settings = {"statestore.cache.max.bytes": 0, "penstock.restart.backoff.ms": 0, "penstock.restart.max.attempts": 99}
    config = StreamsConfig({**CONFIG.given(), **settings}, environment={})
    written: Counter[str] = Counter()
    errors: list[Exception] = []

    def split(line: str) -> list[str]:
        if errors:
            raise errors.pop()
        return line.split()

    def start() -> InlineInstance:
        return InlineInstance(
            word_count(split),
            config,
            play.broker,
            play.clock,
            commit_interval_ms=100,
            records_at_once=records_at_once,
            bases=play.disk,
            exactly_once=True,
            response=StreamThreadExceptionResponse.REPLACE_THREAD,
        )

    instance = start()
    for number, step in enumerate([*steps, "commit", "commit", "commit"]):
        match step:
            case "run" | "commit":
                play.clock.advance(100 if step == "commit" else 0)
                instance.run()
            case "kill" | "lose the disk":
                play.disk = play.disk if step == "kill" else {}
                instance = start()
            case "fail":
                errors.append(ValueError("once"))
            case "refuse":
                instance.refusals.append(v.TransactionLost(StreamsError("refused"), is_fenced=False))
            case words:
                play.write(words, partition=number % 2)
                written.update(words.split())
    output: dict[str, list[int]] = {}
    for key, count in play.output():
        output.setdefault(key, []).append(count)
    assert output == {word: list(range(1, times + 1)) for word, times in written.items()}


def test_an_instance_leaves_its_tasks_to_others_where_a_function_does_not_return() -> None:
    play = Play()
    instance = play.instance()
    instance.run()
    run, held = instance.runner.do, list[v.RunTask]()

    def hold(action: Any) -> v.Event:
        if isinstance(action, v.RunTask):
            held.append(action)
            return v.TimePassed()
        return run(action)

    instance.runner.do = hold  # type: ignore[method-assign]  # the function does not return yet
    play.write("a")
    instance.run()
    play.clock.advance(299_999)
    instance.tell(v.TimePassed())
    instance.run()
    assert instance.stepped_back == []
    play.clock.advance(1)
    for _ in range(2):
        instance.tell(v.TimePassed())
        instance.run()
    assert instance.ended_hung == 2
    [error] = instance.stepped_back
    assert "no progress for max.poll.interval.ms=300000 (tasks 0_0)" in str(error)
    instance.tell(v.MembershipLost(error))
    instance.run()
    assert instance.given_up == []
    instance.runner.do = run  # type: ignore[method-assign]
    instance.tell(run(held.pop()))
    instance.run()
    assert sorted(instance.given_up) == sorted(instance.layout.groups)
    assert instance.instance.phase is Phase.RUNNING
    instance.tell(v.Assigned(frozenset(instance.layout.groups)))
    instance.run()
    assert play.counts() == {"a": 1}


def test_an_instance_whose_tasks_answer_one_after_the_other_keeps_them() -> None:
    play = Play(partitions=2)
    instance = play.instance(commit_interval_ms=500)
    instance.run()
    run, held = instance.runner.do, list[v.Prepare]()

    def hold(action: Any) -> v.Event:
        if isinstance(action, v.Prepare):
            held.append(action)
            return v.TimePassed()
        return run(action)

    instance.runner.do = hold  # type: ignore[method-assign]  # each flush of a cache takes its time
    for partition in range(2):
        play.write("a", partition=partition)
    instance.run()
    play.clock.advance(500)
    instance.run()
    assert len(held) >= 2
    play.clock.advance(200_000)
    instance.tell(run(held.pop(0)))
    instance.run()
    play.clock.advance(200_000)
    instance.tell(v.TimePassed())
    instance.run()
    assert instance.stepped_back == []


def test_standbys_are_kept_until_they_are_taken_over_or_given_to_others() -> None:
    play = Play(partitions=2)
    instance = play.instance()
    instance.run()
    tasks = frozenset(instance.layout.groups)
    first, second = sorted(tasks)[2:]
    assert instance.standbys == []
    instance.tell(v.Assigned(tasks - {first, second}, frozenset([first])))
    instance.run()
    assert sorted(instance.given_up) == [first, second]
    assert instance.standbys == [first]  # behind the close of the task, which had its state
    instance.tell(v.Assigned(tasks - {first, second}, frozenset([second])))
    instance.run()
    assert instance.standbys == [second]
    instance.tell(v.Assigned(tasks))
    instance.run()
    assert instance.standbys == [second]  # the restore of the task takes it over
    play.write("a", partition=1)
    instance.run()
    assert play.counts() == {"a": 1}


@pytest.mark.parametrize(
    "also", [None, v.TransactionLost(StreamsError("lost"), is_fenced=False)], ids=["alone", "with a transaction"]
)
def test_standbys_that_fail_are_asked_for_again(also: v.Event | None) -> None:
    play = Play(partitions=2)
    instance = play.instance(response=StreamThreadExceptionResponse.REPLACE_THREAD)
    instance.run()
    tasks = frozenset(instance.layout.groups)
    first, second = sorted(tasks)[2:]
    instance.tell(v.Assigned(tasks - {first, second}, frozenset([first, second])))
    instance.run()
    assert instance.standbys == [first, second]
    if also is not None:
        instance.tell(also)
    instance.tell(v.StandbysFailed(StreamsError("a record that is not of the store")))
    instance.standbys.clear()
    instance.run()
    play.clock.advance(100)
    instance.run()
    assert instance.standbys == [first, second]


def test_a_task_that_others_are_to_have_is_given_up_in_the_middle_of_its_restore() -> None:
    play = Play(partitions=2)
    instance = play.instance()
    instance.holds_restores = True
    instance.run()
    tasks = sorted(instance.layout.groups)
    assert sorted(instance.held_restores) == tasks
    instance.tell(v.Assigned(frozenset(tasks[1:])))
    instance.run()
    assert (instance.given_up, sorted(instance.held_restores)) == ([tasks[0]], tasks[1:])
    instance.tell(v.MembershipLost(RuntimeError("counted out")))
    instance.run()
    assert sorted(instance.given_up) == tasks


def restoring(play: Play, **options: Any) -> InlineInstance:
    """Return an instance that restores its tasks."""
    instance = play.instance(**options)
    instance.holds_restores = True
    instance.run()
    assert len(instance.held_restores) == len(instance.layout.groups)
    return instance


def test_a_close_does_not_wait_for_a_restore() -> None:
    restoring(Play()).close()


def test_an_application_that_another_instance_shuts_down_ends_in_the_middle_of_a_restore() -> None:
    instance = restoring(Play())
    instance.tell(v.ApplicationShutDown(StreamsError("shut down by another")))
    with pytest.raises(StreamsError, match="shut down by another"):
        instance.run()


@pytest.mark.parametrize(
    "response", [StreamThreadExceptionResponse.SHUTDOWN_CLIENT, StreamThreadExceptionResponse.SHUTDOWN_APPLICATION]
)
def test_an_error_ends_an_instance_in_the_middle_of_a_restore(response: StreamThreadExceptionResponse) -> None:
    instance = restoring(Play(), response=response)
    instance.tell(v.Failed(StreamsError("the consumer failed")))
    with pytest.raises(StreamsError, match="the consumer failed"):
        instance.run()


def test_a_restore_that_is_given_up_goes_on_later_from_where_it_stands() -> None:
    play = Play()
    play.write("a b c d e f g h i j k l m n o p")
    play.instance().run()
    layout, disk = play.instance().layout, dict[TaskId, Base]()
    [counts] = layout.stateful
    fetched: list[int] = []

    class Fetcher(MemoryBroker):
        def __init__(self) -> None: ...

        def fetch(self, partition: TopicPartition, start: int, end: int, read_committed: bool) -> Iterator[RecordBatch]:
            for batch in play.broker.fetch(partition, start, end, read_committed):
                fetched.append(int(batch.offsets[0]))
                yield batch
                opener.cancel(counts)

    admin = cast(Admin, play.broker)
    reader = ChangelogReader(admin, Fetcher())
    opener = StateOpener(layout, admin, reader, lambda task: disk.setdefault(task, KeptBase()), play.clock)
    for _ in range(2):
        with pytest.raises(RestoreStoppedError):
            opener.open(counts)
    assert fetched == [0, 7, 7, 14]
    assert opener.open(counts).stamp.offsets == {
        TopicPartition(place.topic, 0): 16 for place in layout.changelogs(counts).values()
    }


def test_a_restore_tells_what_it_has_applied_and_what_remains() -> None:
    play = Play()
    play.write("a b c d e f g h i j k l m n o p")
    play.instance().run()
    layout, told = play.instance().layout, list[tuple[TaskId, int, int]]()
    admin = cast(Admin, play.broker)
    reader = ChangelogReader(
        admin, play.broker, restored=lambda task, records, remaining: told.append((task, records, remaining))
    )
    opener = StateOpener(layout, admin, reader, lambda task: KeptBase(), play.clock)
    for task in layout.groups:
        opener.open(task)
    [counts] = layout.stateful
    assert told == [(counts, 0, 16), (counts, 7, 9), (counts, 7, 2), (counts, 2, 0), (counts, 0, 0)]


class Expiring(MemoryBroker):
    """Loses the first records of partitions when they are to be read, a few more each time."""

    def __init__(self, broker: MemoryBroker, losses: Mapping[str, list[int]]) -> None:
        """losses: the offsets before which the records of a topic are gone, at each of its next fetches."""
        self._broker = broker
        self._losses = losses
        self.begins: Counter[TopicPartition] = Counter()
        self.fetched: list[tuple[str, int]] = []

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.begins[partition] for partition in partitions}

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        return self._broker.end_offsets(partitions)

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._broker.committed_offsets(group, partitions)

    def fetch(self, partition: TopicPartition, start: int, end: int, read_committed: bool) -> Iterator[RecordBatch]:
        if losses := self._losses.get(partition.topic):
            self.begins[partition] = losses.pop(0)
        self.fetched.append((partition.topic.split("-")[1], start))
        if start < self.begins[partition]:
            raise OffsetOutOfRangeError(f"{partition} has no records at {start} any more.")
        yield from self._broker.fetch(partition, start, end, read_committed)


def two_tables(play: Play) -> tuple[Layout, dict[TaskId, Base]]:
    """Return the tasks of two tables in one, whose changelogs have 16 records each, and an empty disk."""
    builder = StreamsBuilder()
    words = builder.stream("in").flat_map_values(str.split)
    grouped = words.group_by(lambda _, word: word)
    grouped.count(Materialized.as_("first"))
    grouped.count(Materialized.as_("second"))
    play.write("a b c d e f g h i j k l m n o p")
    topology = builder.build({"topology.optimization": "merge.repartition.topics"})
    instance = play.instance(topology)
    instance.run()
    instance.close()
    return instance.layout, {}


@pytest.mark.parametrize(
    ("losses", "fetched"),
    [
        ([0], [("first", 0), ("second", 0)]),
        ([3], [("first", 0), ("second", 0), ("second", 3)]),
        ([3, 5, 8], [("first", 0), ("second", 0), ("second", 3), ("second", 5), ("second", 8)]),
    ],
)
def test_a_restore_goes_on_where_a_changelog_begins_that_has_lost_records_meanwhile(
    losses: list[int], fetched: list[tuple[str, int]]
) -> None:
    play = Play()
    layout, disk = two_tables(play)
    [counts] = layout.stateful
    changelogs = layout.changelogs(counts)
    broker = Expiring(play.broker, {changelogs["second"].topic: losses})
    reader = ChangelogReader(cast(Admin, broker), broker)
    opener = StateOpener(
        layout, cast(Admin, broker), reader, lambda task: disk.setdefault(task, KeptBase()), play.clock
    )
    state = opener.open(counts)
    assert broker.fetched == fetched
    assert state.stamp.offsets == dict.fromkeys(changelogs.values(), 16)
    kept = [state.base.view(name).approximate_num_entries() for name in ("first", "second")]
    assert kept == [16, 16 - fetched[-1][1]]


def test_a_restore_whose_changelog_loses_its_records_again_and_again_ends_with_the_error() -> None:
    play = Play()
    layout, disk = two_tables(play)
    [counts] = layout.stateful
    broker = Expiring(play.broker, {layout.changelogs(counts)["second"].topic: list(range(1, 16))})
    reader = ChangelogReader(cast(Admin, broker), broker)
    opener = StateOpener(
        layout, cast(Admin, broker), reader, lambda task: disk.setdefault(task, KeptBase()), play.clock
    )
    with pytest.raises(OffsetOutOfRangeError):
        opener.open(counts)
    assert len(broker.fetched) == 6
