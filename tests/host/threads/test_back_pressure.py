"""How much waits in an instance while tasks are slow, or wait for a partition that is behind: it is bounded, and every
record is processed in the end, in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.host.threads.active_task import ActiveTaskState
from penstock.host.threads.task_manager import BufferLimits, TaskManager
from penstock.host.threads.vocabulary import Arrived, Ran, RunTask
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch, TopicPartition
from penstock.task.stream_task import StreamTask
from tests.task.test_partition_group import forwarding_topology
from tests.task.topologies import task_of

Choose = Callable[[int], int]
"""Returns a number from 0 to before the one given."""

LIMITS = BufferLimits(records=20, bytes=1_500)
LOT = 8
PARTITIONS = [TopicPartition(topic, number) for number in range(2) for topic in "ab"]
_MOST_STEPS = 20_000


def log_of(times: list[int], size: int) -> RecordBatch:
    """Return records with these timestamps, of so many bytes each."""
    offsets = np.arange(len(times), dtype=np.int64)
    return RecordBatch([None] * len(times), [bytes(size)] * len(times), np.array(times, np.int64), offsets)


class Instance:
    """Two tasks that merge two topics, each in a worker of its own, over logs that can be read to their ends."""

    def __init__(self, logs: dict[TopicPartition, RecordBatch], limits: BufferLimits) -> None:
        self.logs = logs
        self.fetched = dict.fromkeys(logs, 0)
        self.paused: set[TopicPartition] = set()
        self.output: dict[TaskId, list[int]] = {}
        self.tasks: dict[TaskId, StreamTask] = {}
        self.runs: dict[TaskId, RunTask] = {}
        self.manager = TaskManager(StreamsConfig({}, environment={}), limits, lambda task: task.partition)
        self.manager.know_ends({partition: len(log) for partition, log in logs.items()})
        for number in range(2):
            id = TaskId(0, number)
            partitions = [partition for partition in logs if partition.partition == number]
            task = self.manager.add(id, partitions)
            task.state, task.positions = ActiveTaskState.RUNNING, dict.fromkeys(partitions, 0)
            self.tasks[id], self.output[id] = task_of(forwarding_topology()), []

    def readable(self) -> list[TopicPartition]:
        """Return the partitions of which the consumer has more to fetch."""
        return [p for p, log in self.logs.items() if p not in self.paused and self.fetched[p] < len(log)]

    def fetch(self, partition: TopicPartition, most: int) -> None:
        """Let records arrive."""
        start = self.fetched[partition]
        batch = self.logs[partition].slice(start, min(start + most, len(self.logs[partition])))
        self.fetched[partition] += len(batch)
        self.manager.arrived(Arrived(partition, batch))
        self.hand_out()

    def finish(self, id: TaskId) -> None:
        """Let a run end."""
        run, task = self.runs.pop(id), self.tasks[id]
        for (topic, number), batch in run.records:
            task.add_records(topic, number, batch)
        processed = task.process(run.wait)
        self.output[id] += [t for each in task.take_output() for t in each.batch.timestamps.tolist()]
        self.manager[id].ran(Ran(id, waiting=task.waiting(), records=processed, nanoseconds=1_000 * processed))
        self.hand_out()

    def hand_out(self) -> None:
        """Do what the core does behind each event."""
        while (run := self.manager.next_run(0)) is not None:
            self.runs[run.task] = run
        self.paused |= self.manager.to_pause()
        self.paused -= self.manager.to_resume()

    def check_bounds(self, limits: BufferLimits, record_bytes: int) -> None:
        """Check that no more is in the instance than two times what may wait, with what arrives at one time: once where
        it is counted, once in runs that began with it."""
        positions = {p: at for task in self.tasks.values() for p, at in task.positions().items()}
        inside = [fetched - positions.get(partition, 0) for partition, fetched in self.fetched.items()]
        assert max(inside) <= 2 * (limits.records + LOT)
        assert sum(inside) * record_bytes <= 2 * (limits.bytes + len(inside) * LOT * record_bytes)

    def step(self, choose: Choose) -> bool:
        """Let something happen, if anything can."""
        readable, running = self.readable() if self.manager.room() is not None else [], sorted(self.runs)
        if not readable and not running:
            return False
        chosen = choose(len(readable) + len(running))
        if chosen < len(readable):
            self.fetch(readable[chosen], 1 + choose(LOT))
        else:
            self.finish(running[chosen - len(readable)])
        return True


_times = st.lists(st.integers(0, 300), max_size=100)


@settings(max_examples=100, deadline=None)
@given(st.tuples(_times, _times, _times, _times), st.sampled_from([1, 10, 200]), st.randoms(use_true_random=False))
def test_what_waits_is_bounded_and_nothing_waits_for_ever(
    times: tuple[list[int], ...], size: int, random: np.random.RandomState
) -> None:
    logs = {partition: log_of(each, size) for partition, each in zip(PARTITIONS, times, strict=True)}
    instance = Instance(logs, LIMITS)
    for _ in range(_MOST_STEPS):
        if not instance.step(lambda count: random.randrange(count)):
            break
        instance.check_bounds(LIMITS, size)
    assert {p: instance.fetched[p] for p in logs} == {p: len(log) for p, log in logs.items()}
    for number in range(2):
        merged = task_of(forwarding_topology())
        for (topic, of), log in logs.items():
            if of == number:
                merged.add_records(topic, of, log)
        merged.process()
        wanted = [t for each in merged.take_output() for t in each.batch.timestamps.tolist()]
        assert instance.output[TaskId(0, number)] == wanted


@pytest.mark.parametrize("size", [10, 1_000])
def test_a_task_that_waits_for_a_partition_does_not_take_in_all_of_the_other_one(size: int) -> None:
    a, b = PARTITIONS[:2]
    count = 8_000
    logs = {a: log_of([1] * count, size), b: log_of([2] * 30, size)}
    limits = BufferLimits(records=1_000, bytes=20_000)
    instance = Instance(logs, limits)
    while a in instance.readable() or instance.runs:  # b is slow
        if a in instance.readable():
            instance.fetch(a, LOT)
        for id in list(instance.runs):
            instance.finish(id)
        instance.check_bounds(limits, size)
    assert instance.fetched[a] < 2_000
    assert b in instance.readable()
    instance.fetch(b, LOT)
    while instance.step(lambda _: 0):
        instance.check_bounds(limits, size)
    assert instance.output[TaskId(0, 0)] == [1] * count + [2] * 30


def test_what_waits_for_a_slow_task_is_bounded() -> None:
    slow, quick = PARTITIONS[0], PARTITIONS[2]
    logs = {slow: log_of([1] * 5_000, 10), quick: log_of([1] * 5_000, 10)}
    instance = Instance(logs, LIMITS)
    instance.fetch(slow, LOT)
    while readable := instance.readable():  # the first run of the slow task takes until all others are done
        instance.fetch(readable[0], LOT)
        if TaskId(0, 1) in instance.runs:
            instance.finish(TaskId(0, 1))
        instance.check_bounds(LIMITS, 10)
    assert instance.fetched[slow] <= LIMITS.records + 2 * LOT
    assert len(instance.output[TaskId(0, 1)]) == 5_000
    while instance.step(lambda _: 0):
        instance.check_bounds(LIMITS, 10)
    assert len(instance.output[TaskId(0, 0)]) == 5_000
