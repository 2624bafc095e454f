"""What a host keeps of a task besides its stores: it is read as it was written."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from penstock.processor.api import PunctuationType
from penstock.record import TopicPartition
from penstock.task.task_checkpoint import ScheduleState, TaskCheckpoint


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


def test_equal_checkpoints_have_equal_bytes_in_any_order() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    one = TaskCheckpoint(5, {a: 1, b: 2}, (), {a: 3, b: 4}, {"x": 5, "y": 6}, {a: 7, b: 8})
    other = TaskCheckpoint(5, {b: 2, a: 1}, (), {b: 4, a: 3}, {"y": 6, "x": 5}, {b: 8, a: 7})
    assert one.encode() == other.encode()
    assert TaskCheckpoint.decode(one.encode()) == one


def test_the_cursors_of_sweeps_are_read_as_they_were_written() -> None:
    checkpoint = TaskCheckpoint(5, sweep_cursors={"s": b"\xff", "r": b"a"})
    assert TaskCheckpoint.decode(checkpoint.encode()) == checkpoint
    assert TaskCheckpoint(5, sweep_cursors={"r": b"a", "s": b"\xff"}).encode() == checkpoint.encode()


def test_a_checkpoint_of_an_earlier_version_has_no_deadlines() -> None:
    content = orjson.loads(TaskCheckpoint(5, idle_deadlines={TopicPartition("a", 0): 7}).encode())
    assert TaskCheckpoint.decode(orjson.dumps(content[:-1])) == TaskCheckpoint(5)
