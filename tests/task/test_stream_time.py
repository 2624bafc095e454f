"""How a task's clock follows its records: the two policies, and which partitions are to be paused."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorContext, PunctuationType
from penstock.record import NO_TIMESTAMP, Record, TopicPartition
from penstock.task.stream_task import StreamTask
from penstock.task.stream_time import partitions_ahead
from penstock.task.task_checkpoint import TaskCheckpoint
from tests.task.topologies import batch_of, sent, supplier, task_of


class Clock(Processor):
    """Shows the stream time with each record, and ticks."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.STREAM_TIME, lambda now: context.forward(Record("tick", str(now), now)))

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_value(f"{record.value}@{self.context.current_stream_time_ms()}"))


def _task(policy: str, checkpoint: TaskCheckpoint | None = None) -> StreamTask:
    topology = Topology().add_source("source", "a", "b").add_processor("clock", supplier(Clock), "source")
    topology.add_sink("sink", "out", "clock")
    return task_of(topology, config={"stream.time.policy": policy}, checkpoint=checkpoint)


def _values(task: StreamTask) -> list[str | None]:
    task.process()
    return [value for _, _, value, _ in sent(task)]


def test_the_smallest_partition_time_drives_the_minimum_policy() -> None:
    task = _task("min")
    task.add_records("a", 0, batch_of(("k", "a1", 5), ("k", "a2", 25)))
    assert _values(task) == ["a1@-1", "a2@-1"]
    task.add_records("b", 0, batch_of(("k", "b1", 12), ("k", "b2", 3), ("k", "b3", 40)))
    assert _values(task) == ["b1@12", "12", "b2@12", "b3@25", "25"]


def test_the_largest_timestamp_drives_the_maximum_policy() -> None:
    task = _task("max")
    task.add_records("a", 0, batch_of(("k", "a1", 5), ("k", "a2", 25)))
    assert _values(task) == ["a1@5", "5", "a2@25", "25"]


def test_a_task_continues_from_the_partition_times_of_its_checkpoint() -> None:
    task = _task("min")
    task.add_records("a", 0, batch_of(("k", "a1", 5)))
    task.process()
    again = _task("min", task.checkpoint())
    again.add_records("b", 0, batch_of(("k", "b1", 9)))
    assert _values(again) == ["b1@5", "5"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50)), max_size=20))
def test_batches_of_any_size_give_the_same_minimum(rows: list[tuple[str, int]]) -> None:
    """Records of one partition after the other, all of a partition together or one by one."""
    ordered = sorted(rows)
    one_by_one, at_once = _task("min"), _task("min")
    single: list[str | None] = []
    together: list[str | None] = []
    for topic in "ab":
        times = [time for name, time in ordered if name == topic]
        for offset, time in enumerate(times):
            one_by_one.add_records(topic, 0, batch_of(("k", "v", time), first_offset=offset))
            single += _values(one_by_one)
        at_once.add_records(topic, 0, batch_of(*(("k", "v", time) for time in times)))
        together += _values(at_once)
    assert single == together


def test_partitions_far_ahead_of_the_slowest_are_to_be_paused() -> None:
    slow, near, far, empty = (TopicPartition("t", number) for number in range(4))
    times = {slow: 100, near: 150, far: 151, empty: NO_TIMESTAMP}
    assert partitions_ahead(times, 50) == {far}
    assert partitions_ahead({}, 50) == frozenset()


def test_a_task_says_which_partitions_to_pause_until_the_others_catch_up() -> None:
    topology = Topology().add_source("source", "a", "b").add_sink("sink", "out", "source")
    task = task_of(topology, config={"partition.pause.threshold.ms": 10})
    task.add_records("a", 0, batch_of(("k", "v", 0), ("k", "v", 20)))
    task.add_records("b", 0, batch_of(("k", "v", 5)))
    task.process()
    assert task.partitions_to_pause() == {TopicPartition("a", 0)}
    task.add_records("b", 0, batch_of(("k", "v", 10), first_offset=1))
    task.process()
    assert task.partitions_to_pause() == frozenset()
