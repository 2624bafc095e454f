"""When a commit is due before its interval ends, and in which order it writes."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from penstock import Backoff, Calls, Consumed, Park, Serdes, StreamsBuilder
from penstock.client.api import OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.threads import vocabulary as v
from penstock.host.threads.active_task import ActiveTaskState
from penstock.host.threads.commit_cycle import CommitCycle, changelogs_of_waiting_records
from penstock.host.threads.phases import InstancePhase, Phase
from penstock.host.threads.settings import Settings
from penstock.host.threads.task_manager import BufferLimits, TaskManager
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from tests.host.threads.test_workers import config_in, layout_in

HUNG, OTHER = TaskId(1, 0), TaskId(1, 1)
CALLING = TaskId(0, 0)
MOST = 1_000


def test_uncommitted_bytes_of_a_task_that_hangs_bring_no_commit_forward() -> None:
    settings = {"enable.transactional.statestores": True, "statestore.uncommitted.max.bytes": MOST}
    config = config_in(Path("nowhere"), **settings)
    limits = BufferLimits(1_000, 1_000)
    tasks = TaskManager(config, limits)
    for id in (HUNG, OTHER):
        tasks.add(id, [TopicPartition("words", id.partition)]).state = ActiveTaskState.RUNNING
    layout = layout_in(config)
    cycle = CommitCycle(layout, Settings(30_000, limits), tasks, InstancePhase(), Mock(), Mock(), 0)
    cycle.ran(v.Ran(OTHER, uncommitted_bytes=1))
    assert not cycle.is_due(1)
    cycle.ran(v.Ran(HUNG, uncommitted_bytes=MOST))
    assert cycle.is_due(1)
    tasks.set_aside([HUNG])  # a function hangs in that commit, which is undone; the next one is without the task
    cycle.finish(2)
    cycle.ran(v.Ran(OTHER, uncommitted_bytes=2))
    assert not cycle.is_due(3)


def calling() -> Layout:
    builder = StreamsBuilder()
    stream = builder.stream("orders", Consumed.with_(Serdes.string(), Serdes.string()))
    parked = stream.map_values(str.upper, on_error=Park(then="letters", backoff=Backoff(1), attempts=2), named="upper")
    parked.map_values(risk, named="risk", calls=Calls()).to("risks")
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "localhost:9092"})
    return layout_of(builder.build().build("shop"), config, {"orders": 1, "risks": 1, "letters": 1})


async def risk(value: str) -> str:
    return value


def cycle_of(phase: InstancePhase, do: Mock, *, exactly_once: bool) -> CommitCycle:
    """Return the cycle of an instance whose only task runs, has changes, and needs an interval of 30 s."""
    limits = BufferLimits(1_000, 1_000)
    layout = calling()
    tasks = TaskManager(layout.config, limits)
    task = tasks.add(CALLING, [TopicPartition("orders", 0)])
    task.state, task.changed, task.positions = ActiveTaskState.RUNNING, True, {TopicPartition("orders", 0): 1}
    settings = Settings(30_000, limits, exactly_once)
    return CommitCycle(layout, settings, tasks, phase, Mock(), do, 0)


def prepared() -> v.CommitPrepared:
    topics = ["risks", "shop-risk-calls-changelog", "shop-other-changelog", "shop-upper-parked-changelog"]
    output = [PartitionBatch(topic, 0, RecordBatch.of([(b"k", b"v", 1, 0, ())])) for topic in topics]
    return v.CommitPrepared(CALLING, output, {TopicPartition("orders", 0): OffsetAndMetadata(1)})


def steps(do: Mock) -> list[object]:
    """Return the actions: the topics of each write, and the types of the others."""
    actions = [each.args[0] for each in do.call_args_list]
    return [[batch.topic for batch in a.output] if isinstance(a, v.Send) else type(a) for a in actions]


def test_waiting_records_are_deleted_from_changelogs_after_all_output_is_written() -> None:
    do, phase = Mock(), InstancePhase()
    cycle = cycle_of(phase, do, exactly_once=False)
    waiting = ["shop-risk-calls-changelog", "shop-upper-parked-changelog"]
    assert changelogs_of_waiting_records(calling()) == set(waiting)
    phase.change(Phase.QUIESCING)
    cycle.begin(1)
    cycle.take(prepared(), 1)
    written = [["risks", "shop-other-changelog"], v.Flush]
    assert steps(do) == written
    cycle.take(v.Written({TopicPartition("shop-other-changelog", 0): 7}), 1)
    assert steps(do) == [*written, waiting, v.Flush]
    assert phase.current is Phase.WRITING
    cycle.take(v.Written({TopicPartition(waiting[0], 0): 8}), 1)
    assert steps(do)[4:] == [v.CommitOffsets]


def test_an_undone_commit_writes_no_changelog_of_waiting_records() -> None:
    do, phase = Mock(), InstancePhase()
    cycle = cycle_of(phase, do, exactly_once=False)
    for _ in range(2):
        phase.change(Phase.QUIESCING)
        cycle.begin(1)
        cycle.take(prepared(), 1)
        cycle.undo()
        phase.change(Phase.DROPPING)
        phase.change(Phase.RUNNING)
    cycle.take(v.Written({}), 1)
    assert steps(do) == 2 * [["risks", "shop-other-changelog"], v.Flush]


def test_a_transaction_has_all_output_at_once() -> None:
    do, phase = Mock(), InstancePhase()
    cycle = cycle_of(phase, do, exactly_once=True)
    phase.change(Phase.QUIESCING)
    cycle.begin(1)
    cycle.take(prepared(), 1)
    assert steps(do) == [[batch.topic for batch in prepared().output], v.CommitTransaction]


def test_records_that_wait_for_their_calls_bring_a_commit_forward() -> None:
    cycle = cycle_of(InstancePhase(), Mock(), exactly_once=False)
    cycle.ran(v.Ran(CALLING))
    assert (cycle.due_ms, cycle.is_due(100)) == (30_000, False)
    cycle.ran(v.Ran(CALLING, adds_calls=True))
    assert (cycle.due_ms, cycle.is_due(99), cycle.is_due(100)) == (100, False, True)
    cycle.finish(150)
    assert cycle.due_ms == 30_150
    cycle.ran(v.Ran(CALLING, adds_calls=True))
    assert cycle.due_ms == 250
    cycle.undo()
    assert cycle.due_ms == 30_150


def test_a_transaction_keeps_its_interval() -> None:
    cycle = cycle_of(InstancePhase(), Mock(), exactly_once=True)
    cycle.ran(v.Ran(CALLING, adds_calls=True))
    assert cycle.due_ms == 30_000
