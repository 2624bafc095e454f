"""Which task is next, how much it gets, what it waits for, and which partitions are not fetched for now."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.api import OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.host.threads.active_task import ActiveTask, ActiveTaskState
from penstock.host.threads.run_time import FIRST_RECORDS
from penstock.host.threads.task_manager import BufferLimits, TaskManager
from penstock.host.threads.vocabulary import Arrived, Ran
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch, TopicPartition
from penstock.task.partition_group import BufferSize

FIRST, SECOND = TaskId(0, 0), TaskId(0, 1)
SLICE_NS = 100_000_000
A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)


def manager(workers: int = 2, **config: Any) -> TaskManager:
    """Return two tasks that run, each in its worker if there are two: the first reads A and B, the second reads C."""
    limits = BufferLimits(records=10, bytes=1_000_000)
    tasks = TaskManager(StreamsConfig(config, environment={}), limits, lambda task: task.partition % workers)
    for id, partitions in ((FIRST, (A, B)), (SECOND, (C,))):
        task = tasks.add(id, partitions)
        task.state = ActiveTaskState.RUNNING
        task.positions = dict.fromkeys(partitions, 0)
    return tasks


def arrive(tasks: TaskManager, partition: TopicPartition, batch: RecordBatch) -> None:
    tasks.arrived(Arrived(partition, batch))


def records(count: int, start: int = 0) -> RecordBatch:
    offsets = np.arange(start, start + count, dtype=np.int64)
    return RecordBatch([b"k"] * count, [b"v"] * count, offsets, offsets)


def test_the_task_for_which_most_waits_is_next_and_none_runs_twice_at_one_time() -> None:
    tasks = manager()
    arrive(tasks, A, records(2))
    arrive(tasks, C, records(3))
    run = tasks.next_run(0)
    assert run is not None
    assert (run.task, [(p, len(batch)) for p, batch in run.records]) == (SECOND, [(C, 3)])
    arrive(tasks, C, records(9, start=3))
    following = tasks.next_run(0)
    assert following is not None
    assert following.task == FIRST
    assert tasks.next_run(0) is None
    tasks[SECOND].ran(Ran(SECOND))
    again = tasks.next_run(0)
    assert again is not None
    assert [batch.offsets.tolist() for _, batch in again.records] == [list(range(3, 12))]


def test_a_worker_runs_one_task_at_a_time_and_has_room_for_records_until_then() -> None:
    tasks = manager(workers=1)
    assert tasks.has_room()
    arrive(tasks, A, records(2))
    arrive(tasks, C, records(3))
    assert tasks.next_run(0) is not None
    assert tasks.next_run(0) is None
    assert not tasks.has_room()
    tasks[SECOND].ran(Ran(SECOND))
    assert tasks.has_room()
    assert tasks.next_run(0) is not None


def test_a_task_with_few_records_has_its_turn_beside_one_with_many() -> None:
    tasks = manager(workers=1)
    arrive(tasks, A, records(1))
    ran = []
    for turn in range(4):
        arrive(tasks, C, records(500, start=500 * turn))
        run = tasks.next_run(0)
        assert run is not None
        ran.append(run.task)
        tasks[run.task].ran(Ran(run.task, nanoseconds=SLICE_NS))
    assert ran == [FIRST, SECOND, SECOND, SECOND]


def many(count: int, workers: int = 1) -> tuple[TaskManager, list[TaskId]]:
    """Return tasks that run, each with a partition of its own."""
    ids = [TaskId(0, number) for number in range(count)]
    limits = BufferLimits(records=100_000, bytes=1 << 30)
    tasks = TaskManager(StreamsConfig({}, environment={}), limits, lambda task: task.partition % workers)
    for id in ids:
        task = tasks.add(id, [TopicPartition("in", id.partition)])
        task.state = ActiveTaskState.RUNNING
    return tasks, ids


def run_next(tasks: TaskManager, nanoseconds: int) -> TaskId:
    run = tasks.next_run(0)
    assert run is not None
    count = sum(len(batch) for _, batch in run.records)
    tasks[run.task].ran(Ran(run.task, records=count, nanoseconds=nanoseconds))
    return run.task


@pytest.mark.parametrize("count", [2, 20, 200])
def test_a_quiet_task_waits_for_the_run_that_goes_on_and_for_no_backlog(count: int) -> None:
    tasks, ids = many(count)
    *backlogged, quiet = ids
    for id in backlogged:
        arrive(tasks, TopicPartition("in", id.partition), records(50_000))
    ran = []
    for turn in range(3 * count):
        if turn % 5 == 4:  # it has had nothing to do meanwhile
            arrive(tasks, TopicPartition("in", quiet.partition), records(1, start=turn))
            assert run_next(tasks, 200_000) == quiet
        ran.append(run_next(tasks, SLICE_NS))
    turns = {id: ran.count(id) for id in backlogged}
    assert max(turns.values()) - min(turns.values()) <= 1, "a slice in each round"


def test_a_task_that_reads_a_repartition_topic_has_more_time_than_the_writers_of_the_topic() -> None:
    config = StreamsConfig({}, environment={})
    tasks = TaskManager(config, BufferLimits(records=100_000, bytes=1 << 30), repartition_topics=["words"])
    for id, topic in ((FIRST, "in"), (SECOND, "words")):
        tasks.add(id, [TopicPartition(topic, 0)]).state = ActiveTaskState.RUNNING
        arrive(tasks, TopicPartition(topic, 0), records(50_000))
    ran = [run_next(tasks, SLICE_NS) for _ in range(20)]
    assert ran.count(FIRST) == 4
    assert ran.count(SECOND) == 16


@given(st.lists(st.integers(1, 100), min_size=5, max_size=100), st.integers(1, 2))
def test_tasks_with_a_backlog_have_the_same_time(milliseconds: list[int], workers: int) -> None:
    tasks, ids = many(4, workers)
    for id in ids:
        arrive(tasks, TopicPartition("in", id.partition), records(50_000))
    had: dict[TaskId, int] = dict.fromkeys(ids, 0)
    for each in milliseconds:
        had[run_next(tasks, each * 1_000_000)] += each
    for worker in range(workers):
        together = [ms for id, ms in had.items() if id.partition % workers == worker]
        assert max(together) - min(together) <= 200, "the longest run here, and a slice"


@pytest.mark.parametrize(
    ("slice_ms", "wanted"),
    # a quick run doubles the next one; at 10 ms a record, 50 ms are 5 records
    [(50, [FIRST_RECORDS, 20, 5, 10]), (20, [FIRST_RECORDS, 20, 2, 4])],
)
def test_a_run_takes_what_the_task_does_in_a_slice_of_time(slice_ms: int, wanted: list[int]) -> None:
    tasks = manager(**{"penstock.task.slice.ms": slice_ms})
    arrive(tasks, C, records(5_000))
    sizes = []
    for milliseconds in (FIRST_RECORDS, 10 * wanted[1], 0, 0):
        run = tasks.next_run(0)
        assert run is not None
        taken = sum(len(batch) for _, batch in run.records)
        sizes.append(taken)
        tasks[SECOND].ran(Ran(SECOND, records=taken, nanoseconds=milliseconds * 1_000_000))
    assert sizes == wanted


def test_a_task_waits_for_a_partition_of_which_more_is_known_or_nothing_is_known() -> None:
    tasks = manager()
    arrive(tasks, A, records(1))
    run = tasks.next_run(0)
    assert run is not None
    assert run.wait.lagging == {A, B}
    tasks.know_ends({A: 1, B: 2})
    assert tasks[FIRST].busy
    tasks[FIRST].ran(Ran(FIRST, waiting={A: BufferSize(1, 2)}))
    arrive(tasks, B, records(1))
    run = tasks.next_run(0)
    assert run is not None
    assert run.wait.lagging == {B}
    tasks[FIRST].ran(Ran(FIRST, waiting={A: BufferSize(1, 2)}))
    assert tasks.next_run(0) is None
    tasks.reached({B: 2})  # what was behind the record is no record
    run = tasks.next_run(0)
    assert run is not None
    assert (run.records, run.wait.lagging) == ([], set())


def test_no_committed_offset_goes_back_to_before_the_end_of_a_transaction() -> None:
    tasks = manager()
    arrive(tasks, C, records(1))
    assert tasks.next_run(0) is not None
    tasks[SECOND].ran(Ran(SECOND))
    tasks.reached({C: 2})  # the end of a transaction follows the record
    assert tasks[SECOND].committable({C: OffsetAndMetadata(1)}) == {C: OffsetAndMetadata(2)}
    arrive(tasks, C, records(1, start=2))
    assert tasks[SECOND].committable({C: OffsetAndMetadata(1)}) == {C: OffsetAndMetadata(2)}
    assert tasks[SECOND].committable({C: OffsetAndMetadata(3)}) == {C: OffsetAndMetadata(3)}
    tasks[SECOND].reposition(C, 0)  # the records were deleted, with their topic
    assert tasks[SECOND].committable({C: OffsetAndMetadata(0)}) == {C: OffsetAndMetadata(0)}


def test_what_becomes_known_of_ends_while_a_task_is_busy_lets_it_look_again_behind_that() -> None:
    tasks = manager()
    arrive(tasks, A, records(1))
    assert tasks.next_run(0) is not None
    tasks.know_ends({A: 1, B: 0})
    tasks[FIRST].ran(Ran(FIRST, waiting={A: BufferSize(1, 2)}))
    run = tasks.next_run(0)
    assert run is not None
    assert run.wait.lagging == set()
    tasks[FIRST].ran(Ran(FIRST, waiting={A: BufferSize(1, 2)}))
    tasks[FIRST].busy = True  # a commit
    tasks.reached({B: 1})
    tasks[FIRST].busy, tasks[FIRST].due_ms = False, None  # which is done, and leaves nothing due
    assert tasks.next_run(0) is not None
    tasks[FIRST].ran(Ran(FIRST))
    assert tasks.next_run(0) is None


def test_a_task_with_one_partition_or_without_patience_waits_for_nothing() -> None:
    tasks = manager(**{"max.task.idle.ms": -1})
    arrive(tasks, A, records(1))
    arrive(tasks, C, records(1))
    assert [run.wait.lagging for run in (tasks.next_run(0), tasks.next_run(0)) if run is not None] == [set(), set()]


def test_a_partition_of_which_too_much_waits_is_fetched_no_further_until_half_is_left() -> None:
    tasks = manager()
    arrive(tasks, C, records(11))
    assert tasks.to_pause() == {C}
    assert tasks.to_pause() == set()
    assert tasks.to_resume() == set()
    tasks.next_run(0)
    assert tasks.to_resume() == {C}
    assert tasks.to_resume() == set()


def test_partitions_with_records_are_fetched_no_further_while_too_many_bytes_wait_in_all() -> None:
    tasks = manager()
    large = RecordBatch([b"k"] * 2, [bytes(300_000)] * 2, *[np.arange(2, dtype=np.int64)] * 2)
    arrive(tasks, A, large)
    arrive(tasks, C, large)
    assert tasks.to_pause() == {A, C}
    assert tasks.to_resume() == set()
    assert tasks.next_run(0) is not None
    assert tasks.to_resume() == {A}  # of C more waits than its share
    assert tasks.next_run(0) is not None
    assert tasks.to_resume() == {C}


def test_a_backlog_leaves_room_for_partitions_that_have_been_quiet() -> None:
    tasks = manager()
    lot = RecordBatch([b"k"] * 2, [bytes(50_000)] * 2, *[np.arange(2, dtype=np.int64)] * 2)
    while not (paused := tasks.to_pause()):
        arrive(tasks, A, lot)
    assert paused == {A}
    assert tasks[FIRST].waiting_bytes() < 500_000
    arrive(tasks, C, records(1))
    assert tasks.to_pause() == set()
    room = tasks.room()
    assert room is not None
    assert room.bytes > 100_000


def test_a_task_that_holds_too_many_records_of_a_partition_gets_no_more_of_it() -> None:
    tasks = manager()
    arrive(tasks, A, records(5))
    assert tasks.next_run(0) is not None
    tasks[FIRST].ran(Ran(FIRST, waiting={A: BufferSize(5, 10)}))
    arrive(tasks, A, records(6, start=5))
    assert tasks.next_run(0) is not None
    arrive(tasks, A, records(2, start=11))
    tasks[FIRST].ran(Ran(FIRST, waiting={A: BufferSize(11, 22)}))
    assert tasks.next_run(0) is None
    assert tasks.to_pause() == {A}
    arrive(tasks, B, records(1))
    run = tasks.next_run(0)
    assert run is not None
    assert [partition for partition, _ in run.records] == [B]
    tasks[FIRST].ran(Ran(FIRST, waiting={A: BufferSize(8, 16)}))
    run = tasks.next_run(0)
    assert run is not None
    assert [(partition, len(batch)) for partition, batch in run.records] == [(A, 2)]


def test_records_of_a_partition_that_nobody_reads_any_more_are_dropped() -> None:
    tasks = manager()
    tasks.remove(SECOND)
    arrive(tasks, C, records(1))
    assert tasks.next_run(0) is None
    assert SECOND not in tasks


def test_no_event_asks_the_tasks_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TaskId] = []
    is_ready = ActiveTask.is_ready

    def recorded(task: ActiveTask, now: int, most_held: int) -> bool:
        asked.append(task.id)
        return is_ready(task, now, most_held)

    monkeypatch.setattr(ActiveTask, "is_ready", recorded)
    tasks, ids = many(200)
    for turn in range(3):
        arrive(tasks, TopicPartition("in", 7), records(1, start=turn))
        assert run_next(tasks, 1_000) == ids[7]
    assert tasks.next_run(0) is None
    assert set(asked) == {ids[7]}


def test_a_task_without_records_runs_when_its_time_comes() -> None:
    tasks = manager()
    tasks[SECOND].wake_at(10)
    assert tasks.next_run(9) is None
    assert tasks.next_due_ms() == 10
    run = tasks.next_run(10)
    assert run is not None
    assert (run.task, list(run.records)) == (SECOND, [])
    tasks[SECOND].ran(Ran(SECOND))
    assert tasks.next_run(11) is None
