"""Which task is next, how much it gets, what it waits for, and which partitions are not fetched for now."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.config import StreamsConfig
from penstock.host.threads.task_manager import FIRST_RECORDS, Limits, TaskManager, TaskState
from penstock.host.threads.vocabulary import Arrived, Ran
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch, TopicPartition
from penstock.task.partition_group import BufferSize

FIRST, SECOND = TaskId(0, 0), TaskId(0, 1)
A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)


def manager(workers: int = 2, **config: Any) -> TaskManager:
    """Return two tasks that run, each in its worker if there are two: the first reads A and B, the second reads C."""
    limits = Limits(records=10, bytes=1_000_000)
    tasks = TaskManager(StreamsConfig(config, environment={}), limits, lambda task: task.partition % workers)
    for id, partitions in ((FIRST, (A, B)), (SECOND, (C,))):
        task = tasks.add(id, partitions)
        task.state = TaskState.RUNNING
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
        tasks[run.task].ran(Ran(run.task))
    assert ran == [SECOND, SECOND, FIRST, SECOND]


@pytest.mark.parametrize(
    ("slice_ms", "wanted"),
    # at 1 ms a record, 50 ms are 50 records; at 10 ms they are 5, and from there a quick run doubles the next one
    [(50, [FIRST_RECORDS, 50, 5, 10]), (20, [FIRST_RECORDS, 20, 2, 4])],
)
def test_a_run_takes_what_the_task_does_in_a_slice_of_time(slice_ms: int, wanted: list[int]) -> None:
    tasks = manager(**{"penstock.task.slice.ms": slice_ms})
    arrive(tasks, C, records(5_000))
    sizes = []
    for nanoseconds in (FIRST_RECORDS * 1_000_000, 10 * wanted[1] * 1_000_000, 0, 0):
        run = tasks.next_run(0)
        assert run is not None
        taken = sum(len(batch) for _, batch in run.records)
        sizes.append(taken)
        tasks[SECOND].ran(Ran(SECOND, records=taken, nanoseconds=nanoseconds))
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
    tasks.next_run(0)
    assert tasks.to_resume() == set()  # more than half waits for the other task
    tasks.next_run(0)
    assert tasks.to_resume() == {A, C}


def test_a_task_that_holds_too_many_records_of_a_partition_gets_no_more_of_it() -> None:
    tasks = manager()
    arrive(tasks, A, records(11))
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
