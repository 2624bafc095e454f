"""What a task remembers: schedules of one epoch, checkpoints, a crash before the commit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamsError
from penstock.plan.topology import Topology
from penstock.processor.aggregate import StreamCount
from penstock.processor.api import Processor, ProcessorContext, PunctuationType
from penstock.processor.table import TableToStream
from penstock.record import Record, TopicPartition
from penstock.state.api import StoreBuilder
from penstock.state.memory import MemoryBase
from penstock.state.suppliers import KeyValueBytesStoreSupplier
from penstock.task.order_trace import TracedCommit, TracedRange
from penstock.task.punctuation import EpochSchedules
from penstock.task.task_checkpoint import ScheduleState, TaskCheckpoint
from tests.task.topologies import LONG, STRING, batch_of, sent, supplier, task_of


class Ticker(Processor):
    """Ticks by both clocks; a record 'late' schedules outside of init."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.STREAM_TIME, lambda time: self.tick("stream", time))
        self.wall = context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda time: self.tick("wall", time))

    def tick(self, kind: str, time: int) -> None:
        self.context.forward(Record(kind, str(time), time))
        if kind == "wall":
            self.wall.cancel()

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "late":
            self.context.schedule(1, PunctuationType.STREAM_TIME, lambda time: None)


def ticking() -> Topology:
    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("P", supplier(Ticker), "S")
    topology.add_sink("K", "out", "P")
    return topology


def counting() -> Topology:
    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("C", supplier(lambda: StreamCount("counts")), "S")
    topology.add_state_store(StoreBuilder(KeyValueBytesStoreSupplier("counts", True), STRING, LONG, True, True), "C")
    topology.add_processor("T", supplier(TableToStream), "C")
    topology.add_sink("K", "out", "T", value_serde=LONG)
    return topology


def test_schedules_continue_from_epoch_to_epoch_and_stay_cancelled() -> None:
    first = task_of(ticking(), schedules=EpochSchedules(()))
    first.add_records("in", 0, batch_of(("k", "v", 12)))
    first.process()
    first.advance_wall_clock(10)
    assert [(key, value) for _, key, value, _ in sent(first)] == [("stream", "12"), ("wall", "10")]
    checkpoint = TaskCheckpoint.decode(first.checkpoint().encode())
    assert [(s.type, s.next_time) for s in checkpoint.schedules] == [
        (PunctuationType.STREAM_TIME, 20),
        (PunctuationType.WALL_CLOCK_TIME, None),
    ]
    second = task_of(ticking(), schedules=EpochSchedules(checkpoint.schedules), checkpoint=checkpoint)
    second.add_records("in", 0, batch_of(("k", "v", 19), ("k", "v", 21)))
    second.process()
    assert not second.advance_wall_clock(100)
    assert [(key, value) for _, key, value, _ in sent(second)] == [("stream", "21")]


def test_a_schedule_outside_init_is_refused_where_processors_live_for_an_epoch() -> None:
    task = task_of(ticking(), schedules=EpochSchedules(()))
    task.add_records("in", 0, batch_of(("k", "late", 1)))
    with pytest.raises(StreamsError) as caught:
        task.process()
    assert "Processor P calls schedule() outside init()" in str(caught.value.__cause__)


@given(
    st.integers(-1, 1 << 60),
    st.dictionaries(st.builds(TopicPartition, st.text(), st.integers(0, 9)), st.integers(0, 1 << 60)),
    st.lists(
        st.builds(
            ScheduleState,
            st.text(),
            st.integers(0, 9),
            st.sampled_from(PunctuationType),
            st.none() | st.integers(0, 99),
        )
    ),
)
def test_a_checkpoint_is_read_as_it_was_written(
    stream_time: int, times: dict[TopicPartition, int], schedules: list[ScheduleState]
) -> None:
    checkpoint = TaskCheckpoint(stream_time, times, tuple(schedules), times)
    assert TaskCheckpoint.decode(checkpoint.encode()) == checkpoint
    wall = [s.next_time for s in schedules if s.type is PunctuationType.WALL_CLOCK_TIME and s.next_time is not None]
    assert checkpoint.next_wall_clock_ms() == (min(wall) if wall else None)


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=6), st.integers(0, 5))
def test_a_crash_before_a_commit_loses_nothing(epochs: list[list[str]], crash_at: int) -> None:
    base, checkpoint = MemoryBase(), TaskCheckpoint()
    offset = 0
    for number, keys in enumerate(epochs):
        batch = batch_of(*((key, "v", number) for key in keys), first_offset=offset)
        if number == crash_at:  # an attempt that gets as far as it can without the commit
            lost = task_of(counting(), base=base, checkpoint=checkpoint, cache_bytes=1000)
            lost.add_records("in", 0, batch)
            lost.process()
            lost.prepare_commit()
        task = task_of(counting(), base=base, checkpoint=checkpoint, cache_bytes=1000)
        task.add_records("in", 0, batch)
        task.process()
        commit = task.prepare_commit()
        task.committed(commit.changes, str(number).encode())
        task.close()
        checkpoint = TaskCheckpoint.decode(commit.checkpoint.encode())
        offset += len(keys)
    everything = [key for keys in epochs for key in keys]
    final = task_of(counting(), base=base).store("counts")
    assert {key: entry.value for key, entry in final.all()} == {key: everything.count(key) for key in set(everything)}


@pytest.mark.parametrize("cached", [True, False])
def test_a_trace_replayed_gives_the_same_bytes(cached: bool) -> None:
    config = {"penstock.trace.order": "somewhere"}
    lanes = {0: [("a", "v", 5), ("b", "v", 1)], 1: [("a", "v", 4), ("c", "v", 9)]}
    batches = {lane: batch_of(*rows) for lane, rows in lanes.items()}
    cache_bytes = 1000 if cached else 0
    first = task_of(counting(), cache_bytes=cache_bytes, config=config)
    for lane, batch in batches.items():
        first.add_records("in", 0, batch, lane)
    first.process()
    order = first.prepare_commit().order
    assert order is not None
    traced = TracedCommit.decode(order.encode())
    assert traced.ranges == (
        TracedRange(TopicPartition("in", 0), 1, 0, 1),
        TracedRange(TopicPartition("in", 0), 0, 0, 2),
        TracedRange(TopicPartition("in", 0), 1, 1, 1),
    )
    again, original = task_of(counting(), cache_bytes=cache_bytes), task_of(counting(), cache_bytes=cache_bytes)
    for lane, batch in batches.items():
        original.add_records("in", 0, batch, lane)
    original.process()
    for partition, lane, start, count in traced.ranges:
        again.add_records(*partition, batches[lane].slice(start, start + count))
        again.process()
    for task in (again, original):
        task.flush()
    assert sent(again) == sent(original)
    assert again.changes() == original.changes()
