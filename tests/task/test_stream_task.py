"""The life of a task: schedules of one epoch, a crash before the commit, errors, and its end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamsError
from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorContext, PunctuationType
from penstock.record import Record, TopicPartition
from penstock.state.memory import MemoryBase
from penstock.task.punctuation import EpochSchedules
from penstock.task.task_checkpoint import TaskCheckpoint
from tests.task.topologies import batch_of, counting, sent, supplier, task_of


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


class Failing(Processor):
    """Fails for the value 'bad', and when it is closed."""

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "bad":
            raise ValueError("no good")

    def close(self) -> None:
        raise OSError("stuck")


def failing() -> Topology:
    return Topology().add_source("S", "in").add_processor("P", supplier(Failing), "S")


def test_an_error_names_task_node_and_the_place_of_the_record() -> None:
    task = task_of(failing())
    task.add_records("in", 0, batch_of(("k", "good", 1), ("k", "bad", 2), first_offset=7))
    with pytest.raises(StreamsError) as caught:
        task.process()
    assert str(caught.value) == (
        "Exception caught in process. taskId=0_0, processor=P, topic=in, partition=0, offset=8"
    )
    assert caught.value.failed_record is not None
    assert (caught.value.failed_record.offset, caught.value.failed_record.value) == (8, "'bad'")


def test_stores_are_closed_though_a_processor_cannot_be() -> None:
    topology = counting().add_processor("P", supplier(Failing), "S")
    task = task_of(topology)
    with pytest.raises(StreamsError, match="failed to close processor P"):
        task.close()
    assert not task.store("counts").is_open()


def test_names_that_a_task_does_not_have_are_refused_with_those_it_has() -> None:
    task = task_of(counting())
    with pytest.raises(StreamsError, match=r"no store 'other': expected one of counts\."):
        task.store("other")
    with pytest.raises(StreamsError, match="no source node 'other'"):
        task.add_source_topic("more", "other")
    with pytest.raises(StreamsError, match="none"):
        task_of(failing()).store("counts")


def test_a_commit_has_the_changes_and_output_since_the_last_one() -> None:
    task = task_of(counting())
    for offset, expected in enumerate((1, 2)):
        task.add_records("in", 0, batch_of(("k", "v", 5), first_offset=offset))
        assert task.process() == 1
        commit = task.prepare_commit()
        assert [len(part.batch) for part in commit.output] == [1]
        assert commit.changes["counts"].keys() == {b"k"}
        assert task.positions() == {TopicPartition("in", 0): expected}
        task.committed(commit.changes, b"stamp")
        assert task.changes() == {}
    assert task.prepare_commit().output == []
